"""Only regular files are opened.

A pipe, a socket, a device or a folder is one sentence at once, and a stream goes on.
"""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from typer.testing import CliRunner

from helpers.errors import raises
from ostta import io
from ostta.cli.app import app
from ostta.data.by_name import open_dataset
from ostta.data.class_names import parse_classes
from ostta.data.images import read_image
from ostta.data.readers.arrays import read_idx, read_mat
from ostta.data.readers.folders import read_annotations, read_list
from ostta.data.readers.parquet import read_parquet
from ostta.data.readers.shards import read_shards

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")


@pytest.fixture(autouse=True)
def no_waiting() -> Iterator[None]:
    """Opening a pipe that nobody writes to waits for ever: two minutes of that are a failure."""

    def late(number: int, frame: Any) -> None:
        raise AssertionError("still waiting")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(120)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def picture(path: Path) -> Path:
    Image.new("RGB", (32, 32), (200, 30, 60)).save(path)
    return path


def pipe(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)
    return path


def test_what_is_no_regular_file_is_no_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with raises("image-unreadable", match=r"b\.jpg' is a named pipe: an image file must be a regular file"):
        read_image(pipe(tmp_path / "b.jpg"))
    (tmp_path / "device.jpg").symlink_to("/dev/zero")
    with raises("image-unreadable", match=r"device\.jpg' is a device"):
        read_image(tmp_path / "device.jpg")
    (tmp_path / "folder.jpg").mkdir()
    with raises("image-unreadable", match=r"folder\.jpg' is a folder: give the path of one image file"):
        read_image(tmp_path / "folder.jpg")
    monkeypatch.chdir(tmp_path)  # the name of a socket may not be long
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("s.jpg")
        with raises("image-unreadable", match=r"s\.jpg' is a socket"):
            read_image("s.jpg")
    (tmp_path / "nowhere.jpg").symlink_to(tmp_path / "absent.jpg")
    with raises("image-unreadable", match=r"There is no image file '.*nowhere\.jpg'"):
        read_image(tmp_path / "nowhere.jpg")


def test_a_link_to_a_regular_file_is_an_image(tmp_path: Path) -> None:
    (tmp_path / "link.png").symlink_to(picture(tmp_path / "a.png"))
    assert read_image(tmp_path / "link.png").size == (32, 32)


def test_a_pipe_that_takes_the_place_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # As if the file had been there a moment ago.
    monkeypatch.setattr(io, "check_regular", lambda path, what: None)
    before = len(os.listdir("/dev/fd"))
    with raises("image-unreadable", match="is a named pipe"):
        read_image(pipe(tmp_path / "b.jpg"))
    assert len(os.listdir("/dev/fd")) == before


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("list.txt", lambda path: read_list(path, ["a"])),
        ("val_annotations.txt", lambda path: read_annotations(path, ["a"])),
        ("images-idx3-ubyte", read_idx),
        ("test_32x32.mat", read_mat),
        ("test.parquet", read_parquet),
        ("serial_00000.tar", lambda path: read_shards(path.parent, None)),
        ("names.txt", parse_classes),
    ],
)
def test_readers_do_not_wait_for_a_pipe(name: str, read: Callable[[Path], object], tmp_path: Path) -> None:
    (tmp_path / "labels-idx1-ubyte").write_bytes(b"")
    # The name of a pipe is not the name of a file of class names.
    with raises("file-not-found" if read is parse_classes else "file-not-regular"):
        read(pipe(tmp_path / name))


def test_a_folder_of_images_with_a_pipe_in_it(tmp_path: Path) -> None:
    for name in ("a.png", "c.png"):
        (tmp_path / "cat").mkdir(exist_ok=True)
        picture(tmp_path / "cat" / name)
    pipe(tmp_path / "cat" / "b.png")
    assert len(open_dataset(f"folder:{tmp_path}")) == 2


def test_a_stream_goes_on_after_a_pipe(tmp_path: Path) -> None:
    picture(tmp_path / "a.png")
    pipe(tmp_path / "b.jpg")
    picture(tmp_path / "c.png")
    done = CliRunner().invoke(app, ["stream", str(tmp_path), "--classes", "cat,dog", "--method", "zero_shot"])
    assert done.exit_code == 0
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line.get("step") for line in lines] == [1, None, 2]
    assert "is a named pipe" in lines[1]["error"]
