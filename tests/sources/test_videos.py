"""Videos.

Every frame once, with a number that does not depend on where reading began, and sentences for what is broken.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from helpers.cases import adapter
from helpers.errors import raises
from helpers.videos import FRAMES, pixels, told, video
from ostta.sources import decoding
from ostta.sources import open as open_source
from ostta.sources import video as video_room

av = pytest.importorskip("av", reason='needs `pip install "ostta[video]"`')


FORMS = {
    "h264.mp4": ("libx264", {"g": "12", "bf": "3"}),
    "open.mkv": ("libx264", {"g": "12", "bf": "3", "x264-params": "open-gop=1"}),
    "refresh.mp4": ("libx264", {"g": "12", "x264-params": "intra-refresh=1"}),
    # Without an index: a seek may lead behind the frame that is wanted.
    "h264.ts": ("libx264", {"g": "12", "bf": "3"}),
    # Without times: only counting helps.
    "raw.h264": ("libx264", {"g": "12", "bf": "3"}),
    "mjpeg.avi": ("mjpeg", {}),
    "mpeg4.avi": ("mpeg4", {"g": "12", "bf": "2"}),
    "mpeg2.mpg": ("mpeg2video", {"g": "12", "bf": "2"}),
    "one_key.mp4": ("libx264", {"g": "1000", "bf": "3"}),
}


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("videos")
    return {name: video(folder / name, codec, **options) for name, (codec, options) in FORMS.items()}


def test_frames_of_a_video(videos: dict[str, Path]) -> None:
    path = videos["h264.mp4"]
    source = open_source(path)
    found = list(source)
    assert [item.frame for item in found] == list(range(FRAMES))
    assert [item.time for item in found] == pytest.approx([number / 25 for number in range(FRAMES)])
    file = path.stat()
    assert found[7].name == f"{path}#7"
    assert found[7].key == f"{path}|{file.st_size}|{file.st_mtime_ns}#7"
    for item in found[::9]:
        assert np.abs(item.image.astype(int) - pixels(item.frame)).mean() < 25
    assert (source.live, source.dropped, list(source.events)) == (False, 0, [])
    assert [item.frame for item in open_source(path, every=25)] == [0, 25, 50]


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("every", [1, 7])
def test_a_video_goes_on_exactly_where_it_stopped(name: str, every: int, videos: dict[str, Path]) -> None:
    whole = [told(item) for item in open_source(videos[name], every=every)]
    assert [item[2] for item in whole] == list(range(0, FRAMES, every))
    for stopped in {1, len(whole) // 2, len(whole) - 2, len(whole) - 1, len(whole)}:
        seen = {item[1] for item in whole[:stopped]}
        assert [told(item) for item in open_source(videos[name], every=every, skip=seen.__contains__)] == whole[
            stopped:
        ]


def test_going_on_decodes_only_what_is_near(videos: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    path = videos["h264.mp4"]
    seen = {item.key for item in list(open_source(path))[:50]}
    packets, real = [], video_room.Numbers.packet
    monkeypatch.setattr(video_room.Numbers, "packet", lambda self, time: (packets.append(time), real(self, time)))
    source = open_source(path, skip=seen.__contains__)
    packets.clear()
    assert next(iter(source)).frame == 50
    # From the key frame before the last one: 24 at most, and those that are needed to show the frame.
    assert len(packets) < 40


def test_a_skip_that_knows_everything_ends(videos: dict[str, Path]) -> None:
    for path in videos.values():
        assert list(open_source(path, skip=lambda key: True)) == []


def test_a_hole_in_what_was_judged_is_filled(videos: dict[str, Path]) -> None:
    keys = [item.key for item in open_source(videos["h264.mp4"])]
    seen = {*keys[:30], *keys[35:50]}
    found = [item.frame for item in open_source(videos["h264.mp4"], skip=seen.__contains__)]
    assert found == [*range(30, 35), *range(50, FRAMES)]


def test_seeks_that_fail_are_not_believed(videos: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Every seek leads to the end of the video: then all is decoded, and the answer is the same."""
    whole = [told(item) for item in open_source(videos["h264.mp4"])]
    monkeypatch.setattr(video_room, "_frames_from", lambda *_: iter(()))
    seen = {item[1] for item in whole[:40]}
    assert [told(item) for item in open_source(videos["h264.mp4"], skip=seen.__contains__)] == whole[40:]


def test_a_video_through_an_adapter(videos: dict[str, Path]) -> None:
    found = list(adapter("zero_shot").stream(open_source(videos["mjpeg.avi"], every=20)))
    assert [(prediction.name, prediction.frame) for prediction in found] == [
        (f"{videos['mjpeg.avi']}#{number}", number) for number in (0, 20, 40)
    ]
    assert all(prediction.verdict is not None for prediction in found)


def test_a_video_is_turned_upright(tmp_path: Path) -> None:
    path, turned = video(tmp_path / "a.mp4", frames=2), tmp_path / "turned.mp4"
    # The display matrix of the track header: by 90 degrees.
    content = bytearray(path.read_bytes())
    place = content.index(b"tkhd") + 4 + 40
    matrix = [0, 0x10000, 0, -0x10000, 0, 0, 0, 0, 0x40000000]
    content[place : place + 36] = b"".join(value.to_bytes(4, "big", signed=True) for value in matrix)
    turned.write_bytes(content)
    upright, found = next(iter(open_source(path))), next(iter(open_source(turned)))
    assert not np.array_equal(found.image, upright.image)
    np.testing.assert_array_equal(found.image, np.rot90(upright.image, -1))


# --- what is broken ---------------------------------------------------------------------------------------------------
def test_videos_that_cannot_be_read_are_sentences(videos: dict[str, Path], tmp_path: Path) -> None:
    whole = videos["h264.mp4"].read_bytes()
    (tmp_path / "empty.mp4").write_bytes(b"")
    (tmp_path / "text.mp4").write_text("no video\n" * 100)
    (tmp_path / "cut.mp4").write_bytes(whole[: len(whole) // 2])
    with av.open(str(tmp_path / "sound.mkv"), "w") as container:
        stream = container.add_stream("pcm_s16le", rate=8000)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 800), np.int16), layout="mono")
        frame.sample_rate = 8000
        container.mux(stream.encode(frame))
    for name, words in (
        ("empty.mp4", "cannot be opened: invalid data"),
        ("text.mp4", "cannot be opened: invalid data"),
        ("cut.mp4", "cannot be opened: invalid data"),
        ("sound.mkv", "contains no video"),
    ):
        with raises("source-unreadable", match=rf"^The video '{tmp_path / name}' {words}[^\n]*\.$"):
            open_source(tmp_path / name)
    # Among others it is an item that says so.
    found = list(open_source(tmp_path / "cut.mp4", videos["mjpeg.avi"], every=30))
    assert [(item.frame, item.problem is None) for item in found] == [(None, False), (0, True), (30, True)]


def test_a_video_does_not_lead_to_other_files(videos: dict[str, Path], tmp_path: Path) -> None:
    """An FFmpeg list or a playlist with the name of a video could read other files, or wait for a pipe."""
    secret = tmp_path / "secret.ts"
    secret.write_bytes(videos["h264.ts"].read_bytes())
    os.mkfifo(tmp_path / "pipe.ts")
    playlist = "#EXTM3U\n#EXT-X-TARGETDURATION:3\n#EXTINF:2.4,\n{}\n#EXT-X-ENDLIST\n"
    for name in ("secret.ts", "pipe.ts"):
        for text in (f"ffconcat version 1.0\nfile {name}\n", playlist.format(name)):
            path = tmp_path / "list.mp4"
            path.write_text(text)
            with raises("source-unreadable"):
                open_source(path)


def test_a_video_that_breaks_off_gives_what_it_has_and_says_so(videos: dict[str, Path], tmp_path: Path) -> None:
    whole = videos["mjpeg.avi"].read_bytes()
    cut = tmp_path / "cut.avi"
    cut.write_bytes(whole[: len(whole) // 2])
    source = open_source(cut)
    found = [item.frame for item in source]
    assert found == list(range(len(found)))
    assert 20 < len(found) < 40
    *_, event = source.new_events()
    assert (event.kind, dict(event.evidence)) == ("lost", {"frames": len(found), "promised": FRAMES})


def test_frames_that_are_damaged_leave_the_others_their_numbers(videos: dict[str, Path], tmp_path: Path) -> None:
    whole = [told(item) for item in open_source(videos["mjpeg.avi"])]
    content = bytearray(videos["mjpeg.avi"].read_bytes())
    # The thirtieth picture, up to the header of the next, becomes zeros.
    places = [found.start() for found in re.finditer(b"\xff\xd8\xff", content)]
    assert len(places) == FRAMES
    content[places[29] : places[30] - 8] = bytes(places[30] - 8 - places[29])
    broken = tmp_path / "broken.avi"
    broken.write_bytes(content)
    source = open_source(broken)
    found = [told(item) for item in source]
    assert [item[2] for item in found] == [number for number in range(FRAMES) if number != 29]
    assert [item[4] for item in found] == [item[4] for item in whole if item[2] != 29]
    (event,) = source.new_events()
    assert (
        event.sentence
        == f"1 part of the video '{broken}' could not be decoded (invalid data found when processing input)."
    )
    # And so they do where reading goes on in the middle.
    seen = {item[1] for item in found[:28]}
    assert [told(item) for item in open_source(broken, skip=seen.__contains__)] == found[28:]


def test_frames_that_are_too_large_are_not_decoded(videos: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "MAX_MEGAPIXELS", 0.001)
    with raises("source-unreadable", match=r"has frames of 64 x 64 pixels: at most 0.001 megapixels are read\."):
        open_source(videos["h264.mp4"])


def test_without_pyav_it_is_one_sentence(videos: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    for source in (videos["h264.mp4"], "rtsp://127.0.0.1:1/door", 0):
        with raises("library-missing", match=r'`pip install "ostta\[video\]"`\.$'):
            open_source(source)


def test_a_video_that_vanishes(videos: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "a.avi"
    path.write_bytes(videos["mjpeg.avi"].read_bytes())
    source = open_source(path)
    path.unlink()
    with raises("file-not-found", match=f"There is no video '{path}'"):
        next(iter(source))
