"""Where images come from: what can be named, what comes out, and one sentence for what cannot be read."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from helpers.cases import adapter, images
from helpers.errors import raises
from helpers.paths import ROOT
from helpers.pictures import encoded
from helpers.streaming import stream as run_stream
from ostta import Error
from ostta.cli.app import app
from ostta.data.images import read_image
from ostta.live.signals import Stoppable
from ostta.sources import Item, following, live
from ostta.sources import open as open_source
from ostta.sources.addresses import without_password
from ostta.sources.live import Live


def photo(path: Path, number: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    images(number + 1)[number].save(path)
    return path


def names(*sources: str | int | Path, **options: object) -> list[str]:
    with open_source(*sources, **options) as source:
        return [item.name for item in source]


# --- files ------------------------------------------------------------------------------------------------------------
def test_a_folder_is_read_in_the_order_of_names_whatever_the_depth(tmp_path: Path) -> None:
    for name in ("b.png", "a/2.png", "a/1.png", "a.png", "c/d/e.png", "B.PNG"):
        photo(tmp_path / name)
    (tmp_path / "notes.txt").write_text("no image")
    (tmp_path / "empty").mkdir()
    expected = sorted(path for path in tmp_path.rglob("*") if path.suffix.lower() == ".png")
    assert names(tmp_path) == [str(path) for path in expected]
    assert len(expected) == 6


def test_folders_may_be_nested_more_deeply_than_functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    limit = sys.getrecursionlimit()
    deep = Path(*["d"] * 300)
    photo(deep / "a.png")
    monkeypatch.setattr(following, "SCAN_INTERVAL", 0.01)
    try:
        # Not deeper folders: those who take temporary folders away are made of functions too.
        sys.setrecursionlimit(250)
        (item,) = open_source(".")
        (followed,) = islice(open_source(".", follow=True), 1)
    finally:
        sys.setrecursionlimit(limit)
    assert item.path == followed.path == deep / "a.png"


def test_nobody_is_asked_what_to_skip_before_the_first_item_is_wanted(tmp_path: Path) -> None:
    """A journal may be opened after the source was found to be there."""
    from helpers.videos import video

    sources = [
        photo(tmp_path / "in" / "a.png"),
        tmp_path / "in",
        archive(tmp_path / "a.tar", {"1.png": png()}),
        video(tmp_path / "a.avi", "mjpeg", frames=2),
    ]
    asked: list[str] = []
    for source in sources:
        found = open_source(source, skip=lambda key: asked.append(key) is not None)
        assert asked == []
        assert len(list(found)) == len(asked) or source.suffix == ".avi"
        asked.clear()


def test_items_of_files_say_what_they_are(tmp_path: Path) -> None:
    path = photo(tmp_path / "a.png")
    os.utime(path, ns=(5, 1_600_000_000_123_456_789))
    (item,) = open_source(path)
    assert item == Item(
        b"", str(path), f"{path}|{path.stat().st_size}|1600000000123456789", path.stat().st_mtime, None, path
    )
    assert item.image == path


def test_the_key_of_a_file_changes_with_its_content_and_not_with_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = photo(tmp_path / "a.png")
    (before,) = open_source(path)
    monkeypatch.chdir(tmp_path)
    (here,) = open_source("a.png")
    assert (here.name, here.key) == ("a.png", before.key)
    os.utime(path, ns=(0, 7))
    (after,) = open_source(path)
    assert after.key != before.key


@pytest.mark.skipif(sys.platform != "linux", reason="names are bytes on Linux only")
def test_the_key_of_a_name_that_is_no_unicode_can_be_stored(tmp_path: Path) -> None:
    path = photo(Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.png")))
    (item,) = open_source(tmp_path)
    assert item.path == path
    assert item.key.encode()


def test_globs_and_several_sources(tmp_path: Path) -> None:
    for name in ("a1.png", "a2.png", "b.png", "deep/a3.png"):
        photo(tmp_path / name)
    (tmp_path / "a.txt").write_text("b.png\n")
    assert names(str(tmp_path / "a*")) == [str(tmp_path / name) for name in ("a1.png", "a2.png")]
    assert names(str(tmp_path / "**" / "a?.png")) == [
        str(tmp_path / name) for name in ("a1.png", "a2.png", "deep/a3.png")
    ]
    assert names(tmp_path / "b.png", tmp_path / "deep", str(tmp_path / "*1.png")) == [
        str(tmp_path / name) for name in ("b.png", "deep/a3.png", "a1.png")
    ]
    # A file with such a name is that file.
    odd = photo(tmp_path / "[x].png")
    assert names(odd) == [str(odd)]


def test_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = tmp_path / "list.txt"
    listed.write_bytes(b"a.png\r\n\n  b.png \nc\xff.png")
    assert names(listed) == ["a.png", "b.png", "c\udcff.png"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(listed.read_bytes())))
    assert names("-") == ["a.png", "b.png", "c\udcff.png"]
    monkeypatch.setattr(sys, "stdin", None)
    with raises("source-unreadable"):
        open_source("-")


def test_an_endless_line_of_a_list_takes_no_memory_and_the_next_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"x" * 200_000 + b"\na.png\n")))
    long, item = open_source("-")
    assert "more than 65536 bytes" in long.problem
    assert item.name == "a.png"


def test_what_was_judged_is_left_out(tmp_path: Path) -> None:
    for number in range(4):
        photo(tmp_path / f"{number}.png")
    (tmp_path / "list").write_text(f"{tmp_path}/3.png\n{tmp_path}/0.png\n{tmp_path}/none.png\n")
    seen = {item.key for item in islice(open_source(tmp_path), 2)}
    left = [str(tmp_path / name) for name in ("2.png", "3.png")]
    assert names(tmp_path, skip=seen.__contains__) == left
    assert names(str(tmp_path / "*.png"), skip=seen.__contains__) == left
    # What is not there has no key: it may come.
    assert names(tmp_path / "list", skip=seen.__contains__) == [str(tmp_path / name) for name in ("3.png", "none.png")]


def test_folders_that_vanish_and_files_that_vanish_are_items_that_say_so(tmp_path: Path) -> None:
    for name in ("a.png", "b/1.png", "c.png", "d.png"):
        photo(tmp_path / name)
    one = adapter("zero_shot")
    found = []
    for prediction in one.stream(open_source(tmp_path), ahead=1):
        found.append(prediction)
        if len(found) == 1:
            (tmp_path / "b" / "1.png").unlink()
            (tmp_path / "b").rmdir()
            (tmp_path / "c.png").unlink()
    assert [prediction.verdict is not None for prediction in found] == [True, False, False, True]
    assert found[1].reason == f"The folder '{tmp_path / 'b'}' cannot be read: No such file or directory."
    assert found[2].reason == f"There is no image file '{tmp_path / 'c.png'}'."
    assert one.steps == 2


# --- what is an image, and what is not --------------------------------------------------------------------------------
def as_format(path: Path, form: str) -> Path:
    images(1)[0].save(path, form)
    return path


def other_files(folder: Path) -> None:
    """Files that are not images.

    Two texts, one that begins as a BMP does, a pipe, a link to a folder, and a hidden file.
    """
    (folder / "notes.txt").write_text("no image")
    (folder / "cars").write_text("BMW.jpg, Ford.jpg")
    (folder / ".DS_Store").write_bytes(b"\0\0\0\1Bud1")
    os.mkfifo(folder / "pipe")
    (folder / "link").symlink_to(folder)


FORMATS = {
    "a.jfif": "JPEG",
    "b.avif": "AVIF",
    "c": "JPEG",
    "d.photo": "PNG",
    "e.bin": "BMP",
    "f.jpe": "JPEG",
    "g": "WEBP",
}


def test_images_are_recognised_by_suffix_or_content(tmp_path: Path) -> None:
    paths = [as_format(tmp_path / name, form) for name, form in FORMATS.items()]
    other_files(tmp_path)
    source = open_source(tmp_path)
    assert [item.path for item in source] == paths
    (event,) = source.events
    assert (event.kind, event.evidence) == ("skipped", {"files": 3})
    assert event.sentence == "3 files skipped, not an image by name or content: 'cars', 'notes.txt', 'pipe'."
    # Named one by one, together and by a glob.
    for path in paths:
        assert [item.path for item in open_source(path)] == [path]
    assert names(*paths) == [str(path) for path in paths]
    found = open_source(str(tmp_path / "[a-z]*"))
    assert [event.evidence["files"] for event in found.events] == [3]
    assert [item.name for item in found if item.path and item.path.parent == tmp_path][:7] == [
        str(path) for path in paths
    ]
    one = adapter("zero_shot")
    assert all(prediction.verdict for prediction in one.stream(open_source(*paths)))


def test_the_command_says_which_files_were_skipped(tmp_path: Path) -> None:
    as_format(tmp_path / "a", "JPEG")
    (tmp_path / "notes.txt").write_text("no image")
    done = run_stream(tmp_path, "--classes", "cat,dog")
    assert (done.code, len(done.lines)) == (0, 1)
    assert "1 file skipped, not an image by name or content: 'notes.txt'." in done.told.splitlines()


def test_many_skipped_files_are_counted_and_some_are_named(tmp_path: Path) -> None:
    photo(tmp_path / "a.png")
    for number in range(15):
        (tmp_path / f"{number:02}.doc").write_text("text")
    source = open_source(tmp_path)
    list(source)
    assert source.events[0].sentence.startswith("15 files skipped")
    assert source.events[0].sentence.endswith("'09.doc', 5 more.")


def test_an_archive_is_looked_into(tmp_path: Path) -> None:
    found = archive(tmp_path / "a.tar", {"1": png(), "2.txt": b"text", ".hidden": b"text", "3.jfif": png()})
    source = open_source(found)
    assert [item.name.rpartition("#")[2] for item in source] == ["1", "3.jfif"]
    assert [event.sentence for event in source.events] == ["1 file skipped, not an image by name or content: '2.txt'."]


def test_a_followed_folder_is_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "SCAN_INTERVAL", 0.01)
    as_format(tmp_path / "a", "JPEG")
    # May be renamed when it is complete.
    as_format(tmp_path / "b.jpg.part", "JPEG")
    other_files(tmp_path)
    photo(tmp_path / "z.png")
    for number, path in enumerate(sorted(tmp_path.glob("[!lp]*"))):
        os.utime(path, (number + 1, number + 1))
    source = open_source(tmp_path, follow=True)
    items = iter(source)
    assert [Path(next(items).name).name for _ in range(2)] == ["a", "z.png"]
    source.close()
    assert list(items) == []
    (event,) = source.events
    assert event.evidence == {"files": 3}


def test_a_heic_photo_without_its_reader_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    monkeypatch.delitem(Image.OPEN, "HEIF", raising=False)
    for name in ("a.heic", "b"):
        (tmp_path / name).write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(100))
    found = [
        (Path(prediction.name).name, prediction.reason)
        for prediction in adapter("zero_shot").stream(open_source(tmp_path))
    ]
    assert [name for name, _ in found] == ["a.heic", "b"]
    assert all(reason and 'pip install "ostta[heic]"' in reason for _, reason in found)


def test_a_heic_photo_is_read(tmp_path: Path) -> None:
    heif = pytest.importorskip("pillow_heif")
    path = tmp_path / "photo"
    heif.from_pillow(Image.new("RGB", (64, 48), (200, 10, 10))).save(path)
    (item,) = open_source(path)
    picture = read_image(item.require_image())
    assert picture.size == (64, 48)
    assert np.abs(np.asarray(picture).mean((0, 1)) - (200, 10, 10)).max() < 10
    content = path.read_bytes()
    with raises("image-unreadable", match=r"^The given bytes cannot be [^\n]*\.$"):
        read_image(content[: len(content) // 2])


@pytest.mark.parametrize("content", [b"<svg xmlns='x'>\n</svg>\n", b"%PDF-1.7\n", b"\x01\x02\n", b"a\x7fb\n"])
def test_what_is_not_a_list_is_not_read_as_one(content: bytes, tmp_path: Path) -> None:
    path, image = tmp_path / "file", photo(tmp_path / "a.png")
    path.write_bytes(content)
    for sources in ([path], [image, path]):
        with raises("source-unreadable"):
            open_source(*sources)


def test_several_sources_are_checked_as_one_is(tmp_path: Path) -> None:
    image, empty = photo(tmp_path / "a.png"), tmp_path / "empty"
    empty.mkdir()
    with raises("source-unreadable"):
        open_source(empty, image)
    (empty / "notes.txt").write_text("text")
    with raises("source-unreadable", match=r"1 file skipped, .*: 'notes.txt'\."):
        open_source(image, empty)


# --- what cannot be opened --------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("code", "sources", "options", "value"),
    [
        ("source-unknown", [], {}, None),
        ("file-not-found", ["none.png"], {}, "none.png"),
        ("source-unreadable", ["*.png"], {}, r"\*.png"),
        ("source-unreadable", ["empty"], {}, "empty"),
        ("file-not-regular", ["pipe"], {}, "'pipe' is a named pipe"),
        ("file-not-regular", ["pipe.mp4"], {}, "'pipe.mp4' is a named pipe"),
        ("file-not-regular", ["/dev/null"], {}, "'/dev/null' is a device"),
        ("source-unreadable", ["binary"], {}, "binary"),
        ("source-unknown", ["ftp://host/a.png"], {}, "rtsp, rtsps, http, https"),
        ("source-unknown", ["file:///etc/passwd"], {}, "rtsp, rtsps, http, https"),
        ("source-unknown", ["rtsp://"], {}, "'rtsp://' "),
        ("source-unknown", ["http://host:port/"], {}, "http://host:port/"),
        ("source-unknown", ["rtsp://me:secret@/"], {}, r"'rtsp://me:\*\*\*@/'"),
        ("source-unknown", [9_999], {}, "camera 9999"),
        ("source-unknown", ["9999"], {}, "camera 9999"),
        ("source-unknown", ["/dev/video9999"], {}, "camera 9999"),
        ("source-unknown", [-1], {}, "not -1"),
        ("source-unknown", [True], {}, "not True"),
        ("source-unknown", [None], {}, "not None"),
        ("option-invalid", ["."], {"every": 0}, "`every` .* 1, not 0"),
        ("option-invalid", ["."], {"every": 1.5}, "`every` .* 1.5"),
        ("option-invalid", ["."], {"retries": -1}, "`retries` .* 0, not -1"),
        ("source-unknown", ["binary"], {"follow": True}, "binary"),
        ("source-unknown", ["rtsp://a/b", "empty"], {}, "rtsp://a/b is live"),
        ("source-unknown", [0, 1], {}, "0 is live"),
        ("source-unreadable", ["bad.tar"], {}, "'bad.tar'"),
        ("source-unreadable", ["none.tar"], {}, "none.tar"),
    ],
)
def test_a_source_that_cannot_be_opened(
    code: str,
    sources: list[object],
    options: dict[str, object],
    value: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    os.mkfifo("pipe")
    os.mkfifo("pipe.mp4")
    Path("binary").write_bytes(b"a\0b\n")
    Path("bad.tar").write_bytes(b"no archive" * 100)
    tarfile.open("none.tar", "w").close()
    with raises(code, match=value) as caught:
        open_source(*sources, **options)
    assert len(str(caught.value).splitlines()) == 1


def test_passwords_are_not_shown() -> None:
    assert without_password("rtsp://me:a:b@c@host:554/x@y") == "rtsp://me:***@host:554/x@y"
    assert without_password("http://host/a:b@c") == "http://host/a:b@c"


def test_a_source_that_is_named_as_a_number_may_be_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("7").write_text("a.png\n")
    assert names("7") == ["a.png"]


# --- archives ---------------------------------------------------------------------------------------------------------
def archive(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(content), 12
            tar.addfile(info, io.BytesIO(content))
    return path


def png(number: int = 0) -> bytes:
    return encoded(images(number + 1)[number])


def test_a_tar_of_images(tmp_path: Path) -> None:
    path = archive(tmp_path / "photos.tar", {"a/1.png": png(), "read.me": b"no", "2.png": png(1), "3.png": b"broken"})
    found = list(open_source(path))
    assert [item.name for item in found] == [f"{path}#{name}" for name in ("a/1.png", "2.png", "3.png")]
    assert (found[0].time, found[0].path) == (12.0, None)
    judged = [prediction.verdict is not None for prediction in adapter("zero_shot").stream(found)]
    assert judged == [True, True, False]
    keys = [item.key for item in found]
    assert [item.key for item in open_source(path, skip=set(keys[:1]).__contains__)] == keys[1:]


def test_a_tar_that_means_harm_is_not_believed(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.tar", {"../out.png": png(), "/root.png": png(), "in.png": png()})
    out, root, fine = open_source(path)
    assert "leads out of the archive" in out.problem
    assert "leads out of the archive" in root.problem
    assert fine.problem is None
    assert sorted(tmp_path.iterdir()) == [path]
    # A header that promises a terabyte.
    info = tarfile.TarInfo("big.png")
    info.size = 1 << 40
    (tmp_path / "b.tar").write_bytes(info.tobuf() + b"\0" * 1024)
    (large,) = islice(open_source(tmp_path / "b.tar"), 1)
    assert "at most" in large.problem
    # Links are not followed.
    with tarfile.open(tmp_path / "c.tar", "w") as tar:
        link = tarfile.TarInfo("link.png")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    with raises("source-unreadable"):
        open_source(tmp_path / "c.tar")


def test_a_tar_that_is_cut_short_gives_what_it_has(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.tar", {"1.png": png(), "2.png": png(1)})
    path.write_bytes(path.read_bytes()[: len(png()) + 1600])
    photo(tmp_path / "z.png")
    found = list(open_source(path, tmp_path / "z.png"))
    assert [item.problem is None for item in found] == [True, False, False, True]


# --- growing folders --------------------------------------------------------------------------------------------------
@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "SCAN_INTERVAL", 0.01)


@pytest.mark.usefixtures("quick")
def test_a_folder_is_followed_in_the_order_of_arrival(tmp_path: Path) -> None:
    for number, name in enumerate(["z.png", "a.png"]):
        os.utime(photo(tmp_path / name), ns=(0, number + 1))
    with open_source(tmp_path, follow=True) as source:
        waiting = iter(source)
        assert [next(waiting).name for _ in range(2)] == [str(tmp_path / name) for name in ("z.png", "a.png")]
        later = photo(tmp_path / "deep" / "b.png")
        item = next(waiting)
        assert (item.path, item.key) == (later, next(iter(open_source(later))).key)
        # A file that is written anew is a new image.
        os.utime(photo(later, 1), ns=(0, 5))
        again = next(waiting)
        assert (again.path, again.key) != (later, item.key)
        assert again.path == later
        source.close()
        assert next(waiting, None) is None


@pytest.mark.usefixtures("quick")
def test_the_output_of_a_stream_is_not_followed(tmp_path: Path) -> None:
    first = photo(tmp_path / "a.png")
    with open_source(tmp_path, follow=True) as source:
        waiting = iter(source)
        assert next(waiting).path == first
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "pictures.jsonl").touch()
        photo(tmp_path / "out" / "sorted" / "cat" / "000001-a.png")
        second = photo(tmp_path / "b.png")
        assert next(waiting).path == second
        source.close()
        assert next(waiting, None) is None
    assert [event.kind for event in source.events] == ["skipped"]


@pytest.mark.usefixtures("quick")
def test_a_file_that_is_being_written_is_left_until_it_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "MOST_SCANS", 1 << 30)
    content = png()
    half, whole = tmp_path / "a.png", tmp_path / "b.png"
    half.write_bytes(content[: len(content) // 2])
    os.utime(half, ns=(0, 1))
    with open_source(tmp_path, follow=True) as source:
        waiting = iter(source)
        photo(whole)
        assert next(waiting).path == whole
        half.write_bytes(content)
        item = next(waiting)
        assert item.path == half
        np.testing.assert_array_equal(np.asarray(item.image), np.asarray(Image.open(half).convert("RGB")))
    # What stays half an image is given in the end, so that somebody says why.
    monkeypatch.setattr(following, "MOST_SCANS", 3)
    whole.unlink()
    half.write_bytes(content[: len(content) // 2])
    with open_source(tmp_path, follow=True) as source:
        (prediction,) = adapter("zero_shot").stream(islice(source, 1))
    assert prediction.name == str(half)
    assert "may be damaged or truncated" in prediction.reason


@pytest.mark.usefixtures("quick")
def test_a_followed_folder_that_vanishes_is_looked_for(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    photo(folder / "a.png")
    with open_source(folder, follow=True) as source:
        waiting = iter(source)
        assert next(waiting).path == folder / "a.png"
        folder.rename(tmp_path / "away")

        def come_back() -> None:
            while not source.events:
                threading.Event().wait(0.01)
            photo(tmp_path / "away" / "b.png")
            (tmp_path / "away").rename(folder)

        helper = threading.Thread(target=come_back)
        helper.start()
        # And not once more the image that was there before.
        assert next(waiting).path == folder / "b.png"
        helper.join()
    assert [event.kind for event in source.new_events()] == ["lost", "reconnected"]
    assert source.new_events() == []


@pytest.mark.usefixtures("quick")
def test_following_does_not_read_what_was_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = photo(tmp_path / "a.png"), photo(tmp_path / "b.png")
    seen = {next(iter(open_source(old))).key}
    read = []
    real = following.read_image
    monkeypatch.setattr(following, "read_image", lambda path: (read.append(path), real(path))[1])
    with open_source(tmp_path, follow=True, skip=seen.__contains__) as source:
        assert next(iter(source)).path == new
    assert read == [str(new)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.usefixtures("quick")
def test_signals_end_the_waiting_for_new_images(number: signal.Signals, tmp_path: Path) -> None:
    photo(tmp_path / "a.png")
    found = []
    with open_source(tmp_path, follow=True) as source, Stoppable(source) as waiting:
        for item in waiting:
            found.append(item.name)
            threading.Timer(0.1, signal.raise_signal, [number]).start()
    assert found == [str(tmp_path / "a.png")]


# --- live sources -----------------------------------------------------------------------------------------------------
def shot(number: int) -> Callable[[], np.ndarray]:
    return lambda: np.full((8, 8, 3), number, np.uint8)


def test_a_live_source_that_is_faster_than_the_reader_drops_the_oldest_and_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live, "FIRST_DROPS", 0.0)
    monkeypatch.setattr(live, "BETWEEN_DROPS", 1e9)
    go_on, done, rest = threading.Event(), threading.Event(), threading.Event()

    def connect() -> Iterator[Callable[[], np.ndarray]]:
        yield shot(0)
        go_on.wait()
        yield from map(shot, range(1, 11))
        done.set()
        rest.wait()

    source = Live("camera 0", connect, every=1, retries=0)
    waiting = iter(source)
    first = next(waiting)
    assert (first.name, first.key, first.frame, first.path) == ("camera 0#0", "", 0, None)
    go_on.set()
    done.wait()
    assert [next(waiting).frame for _ in range(2)] == [9, 10]
    assert source.dropped == 8
    assert [(event.kind, dict(event.evidence)) for event in source.new_events()] == [("dropped", {"frames": 1})]
    rest.set()
    source.close()
    assert next(waiting, None) is None


def test_one_frame_in_so_many() -> None:
    done = threading.Event()

    def connect() -> Iterator[Callable[[], np.ndarray]]:
        yield from map(shot, range(5))
        done.wait()

    with Live("camera 0", connect, every=3, retries=0) as source:
        waiting = iter(source)
        assert [next(waiting).frame for _ in range(2)] == [0, 3]
        done.set()
        with raises("source-lost", match=r"^The connection to camera 0 was lost: the stream ended\.$"):
            next(waiting)
    assert source.dropped == 0


def test_a_live_source_that_is_lost_is_looked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "RETRY_DELAYS", (0.0,))
    taken, calls = threading.Event(), []

    def connect() -> Iterator[Callable[[], np.ndarray]]:
        calls.append(None)
        if len(calls) not in (1, 4):
            raise Error("Nobody is there.")
        yield shot(len(calls))
        taken.wait()
        taken.clear()

    with Live("camera 0", connect, every=1, retries=3) as source:
        waiting = iter(source)
        assert next(waiting).image[0, 0, 0] == 1
        taken.set()
        second = next(waiting)
        assert (second.image[0, 0, 0], second.frame) == (4, 1)
        lost, found = source.new_events()
        assert (lost.kind, found.kind) == ("lost", "reconnected")
        assert lost.sentence == "The connection to camera 0 was lost: the stream ended. It is tried again."
        assert found.evidence["tries"] == 3
        taken.set()
        with raises("source-lost", match=r"not restored in 3 attempts: Nobody is there\.$"):
            next(waiting)
    assert len(calls) == 7


def connect_never() -> Iterator[Callable[[], np.ndarray]]:
    raise Error("Gone for good.", code="source-unreadable")
    yield


def test_the_first_connection_must_succeed() -> None:
    with raises("source-unreadable", match="Gone for good"):
        Live("camera 0", connect_never, every=1, retries=None).check()
    with raises("source-unreadable", match=r"camera 0 sends no frames\."):
        next(iter(Live("camera 0", lambda: iter([]), every=1, retries=None)))


def test_closing_ends_an_iteration_that_waits() -> None:
    never = threading.Event()

    def connect() -> Iterator[Callable[[], np.ndarray]]:
        yield shot(0)
        never.wait()

    source = Live("camera 0", connect, every=1, retries=None)
    waiting = iter(source)
    next(waiting)
    threading.Timer(0.1, lambda: (never.set(), source.close())).start()
    assert next(waiting, None) is None


def test_silence_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "SILENCE_SECONDS", 0.05)
    more = threading.Event()

    def connect() -> Iterator[Callable[[], np.ndarray]]:
        yield shot(0)
        more.wait(0.5)
        yield shot(1)
        more.wait()

    with Live("camera 0", connect, every=1, retries=0) as source:
        waiting = iter(source)
        assert [next(waiting).frame for _ in range(2)] == [0, 1]
        more.set()
    assert [event.kind for event in source.new_events()] == ["lost", "reconnected"]


def test_old_events_are_forgotten() -> None:
    source = Live("camera 0", lambda: iter([]), every=1, retries=0)
    for number in range(250):
        source.add_event("lost", f"{number}")
    assert len(source.events) == 100
    assert [event.sentence for event in source.new_events()][::99] == ["150", "249"]


# --- through the adapter ----------------------------------------------------------------------------------------------
def test_predictions_carry_name_time_and_frame(tmp_path: Path) -> None:
    path = photo(tmp_path / "a.png")
    plain, named, framed, missing = adapter("zero_shot").stream(
        [images(1)[0], *open_source(path), Item(images(1)[0], "clip.mp4#3", "k#3", 0.5, 3), "none.png"]
    )
    assert (plain.name, plain.time, plain.frame) == (None, None, None)
    assert "name" not in plain.to_dict()
    assert (named.name, named.time, named.frame) == (str(path), path.stat().st_mtime, None)
    assert list(framed.to_dict())[:4] == ["name", "time", "frame", "label"]
    assert (framed.name, framed.time, framed.frame) == ("clip.mp4#3", 0.5, 3)
    assert framed.score == plain.score
    assert (missing.name, missing.reason) == (None, "There is no image file 'none.png'.")


# --- on the command line ----------------------------------------------------------------------------------------------
def stream(*arguments: str | Path) -> list[dict]:
    done = CliRunner().invoke(app, ["stream", *map(str, arguments), "--classes", "cat,dog", "--method", "zero_shot"])
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_command_takes_several_sources_and_one_frame_in_so_many(tmp_path: Path) -> None:
    from helpers.videos import video

    clip = video(tmp_path / "clip.avi", "mjpeg", frames=9)
    found = stream(photo(tmp_path / "z.png"), clip, tmp_path / "*.png", "--every", "4")
    assert [line["image"] for line in found] == [
        str(tmp_path / "z.png"), f"{clip}#0", f"{clip}#4", f"{clip}#8", str(tmp_path / "z.png"),
    ]  # fmt: skip
    assert [line.get("frame") for line in found] == [None, 0, 4, 8, None]


def test_the_command_follows_a_folder_until_it_is_asked_to_end(tmp_path: Path) -> None:
    photo(tmp_path / "a.png")
    child = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from ostta.cli import main; main()",
            "stream",
            str(tmp_path),
            "--follow",
            "--classes",
            "cat,dog",
        ],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"},
    )
    assert child.stdout is not None
    assert json.loads(child.stdout.readline())["image"] == str(tmp_path / "a.png")
    photo(tmp_path / "b.png")
    assert json.loads(child.stdout.readline())["image"] == str(tmp_path / "b.png")
    child.send_signal(signal.SIGTERM)
    assert child.wait(timeout=60) == 0
