"""Sources against programs of others: videos that ffmpeg made, and a real RTSP server on this machine."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from helpers.cases import images
from helpers.paths import TESTS
from helpers.videos import told
from ostta.sources import live
from ostta.sources import open as open_source

SERVER = TESTS / "helpers" / "rtsp_server.py"
# The system's own Python: GStreamer is no package that pip could bring.
PYTHON = "/usr/bin/python3"


def has_rtsp_server() -> bool:
    code = (
        "import gi; gi.require_version('GstRtspServer', '1.0'); from gi.repository import Gst, GstRtspServer; "
        "Gst.init(None);"
    )
    code += "raise SystemExit(Gst.ElementFactory.find('x264enc') is None)"
    return Path(PYTHON).exists() and not subprocess.run([PYTHON, "-c", code], capture_output=True).returncode


def pictures(folder: Path, count: int) -> Path:
    folder.mkdir()
    for number, image in enumerate(images(count)):
        image.resize((64, 64)).save(folder / f"{number:05}.jpg", quality=92)
    return folder


# --- ffmpeg -----------------------------------------------------------------------------------------------------------
@pytest.mark.skipif(shutil.which("ffmpeg") is None, reason="ffmpeg is not installed")
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("hevc.mp4", "-c:v libx265 -preset ultrafast -x265-params log-level=none:keyint=12"),
        ("vp8.webm", "-c:v libvpx -deadline realtime -cpu-used 8 -auto-alt-ref 1 -lag-in-frames 16 -g 12"),
        ("vp9.webm", "-c:v libvpx-vp9 -deadline realtime -cpu-used 8 -g 12"),
        ("interlaced.ts", "-c:v libx264 -flags +ilme+ildct -g 12 -pix_fmt yuv420p"),
        # Only part of the times in the container are shown: an edit list.
        ("edited.mp4", "-c:v libx264 -g 12 -bf 3 -pix_fmt yuv420p"),
        ("variable.mkv", "-c:v libx264 -g 12 -vf select='mod(n,7)' -fps_mode vfr -pix_fmt yuv420p"),
    ],
)
def test_videos_of_ffmpeg_go_on_exactly_where_they_stopped(name: str, options: str, tmp_path: Path) -> None:
    folder, path = pictures(tmp_path / "in", 50), tmp_path / name
    run = ["ffmpeg", "-loglevel", "error", "-y"]
    subprocess.run([*run, "-framerate", "25", "-i", f"{folder}/%05d.jpg", *options.split(), str(path)], check=True)
    if name == "edited.mp4":
        cut = tmp_path / "cut.mp4"
        subprocess.run([*run, "-ss", "0.7", "-i", str(path), "-c", "copy", str(cut)], check=True)
        path = cut
    whole = [told(item) for item in open_source(path)]
    assert len(whole) > 30
    for stopped in (1, len(whole) // 3, len(whole) - 1, len(whole)):
        seen = {item[1] for item in whole[:stopped]}
        assert [told(item) for item in open_source(path, skip=seen.__contains__)] == whole[stopped:]


# --- rtsp -------------------------------------------------------------------------------------------------------------
@contextmanager
def serving(folder: Path, port: int) -> Iterator[str]:
    child = subprocess.Popen([PYTHON, str(SERVER), str(port), str(folder)], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        yield f"rtsp://127.0.0.1:{port}/door"
    finally:
        child.kill()
        child.wait()


# Slow because a server is started twice, and the one that is lost is missed only after a while.
@pytest.mark.slow
@pytest.mark.skipif(not has_rtsp_server(), reason="GStreamer's RTSP server and its Python are not installed")
def test_a_camera_that_is_lost_and_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "RETRY_DELAYS", (0.5,))
    folder = pictures(tmp_path / "in", 50)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with serving(folder, port) as address:
        source = open_source(address)
        waiting = iter(source)
        before = [next(waiting) for _ in range(20)]
    assert {item.image.shape for item in before} == {(240, 320, 3)}
    assert [item.key for item in before] == [""] * 20
    with serving(folder, port):
        while not any(event.kind == "reconnected" for event in source.events):
            item = next(waiting)
        assert item.frame > before[-1].frame
        assert [event.kind for event in source.events if event.kind != "dropped"] == ["lost", "reconnected"]
        source.close()
        assert next(waiting, None) is None
