"""Files that are written whole or not at all, whatever interrupts; and what a killed process left behind."""

from __future__ import annotations

import builtins
import os
import time
from pathlib import Path
from typing import Any

import pytest

from helpers.errors import raises
from ostta import io as files
from ostta.io import STALE, folder_in_one_step, read_regular, readable, write_atomically


@pytest.mark.parametrize(
    ("where", "name", "before", "after"),
    [
        (files, "open", builtins.open, b"old"),
        (os, "fsync", os.fsync, b"old"),
        (os, "replace", os.replace, b"new"),
    ],
)
@pytest.mark.parametrize("problem", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_leaves_nothing_behind(
    where: Any, name: str, before: Any, after: bytes, problem: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.ostta"
    path.write_bytes(b"old")

    def then_stop(*arguments: Any, **options: Any) -> Any:
        before(*arguments, **options)
        raise problem

    monkeypatch.setattr(where, name, then_stop, raising=False)
    with pytest.raises(problem):
        write_atomically(path, b"new")
    assert [each.name for each in tmp_path.iterdir()] == ["a.ostta"]
    assert path.read_bytes() == after


def test_what_a_killed_process_left_goes_with_a_later_write(tmp_path: Path) -> None:
    path = tmp_path / "a[1].ostta"
    left = {
        ".a[1].ostta.0123.partial": (STALE + 60, False),
        ".a[1].ostta.4567.partial": (1.0, True),  # another process may be at it
        ".b.ostta.0123.partial": (STALE + 60, True),  # of another file
        ".a[1].ostta.0123": (STALE + 60, True),
        "a[1].ostta.0123.partial": (STALE + 60, True),
    }
    for name, (age, _) in left.items():
        (tmp_path / name).write_bytes(b"half")
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    write_atomically(path, b"new")
    stayed = {each.name for each in tmp_path.iterdir()}
    assert stayed == {path.name, *(name for name, (_, stays) in left.items() if stays)}


def test_a_written_file_has_the_usual_rights(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_atomically(tmp_path / "a", b"new")
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("name", ["a\0b", "x" * 300, "."])
def test_a_name_that_cannot_be_is_one_sentence(name: str, tmp_path: Path) -> None:
    with raises("file-not-written"):
        write_atomically(tmp_path / name, b"new")
    assert not list(tmp_path.iterdir())


def test_only_ordinary_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path):
        with raises("file-not-regular"):
            read_regular(path, "state file")
    with raises("file-not-found"):
        read_regular(tmp_path / "absent", "state file")
    with raises("file-unreadable"):
        read_regular(tmp_path / ("x" * 300), "state file")


def test_a_folder_takes_the_place_of_another_or_leaves_it_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "model"
    with folder_in_one_step(path) as partial:
        (partial / "a").write_bytes(b"old")
    with pytest.raises(TypeError), folder_in_one_step(path) as partial:
        (partial / "b").write_bytes("text")
    with raises("file-not-written"), folder_in_one_step(path) as partial:
        (partial / "none" / "b").write_bytes(b"new")
    assert [each.relative_to(tmp_path).as_posix() for each in tmp_path.rglob("*")] == ["model", "model/a"]
    with folder_in_one_step(path) as partial:
        (partial / "b").write_bytes(b"new")
    assert [each.relative_to(tmp_path).as_posix() for each in tmp_path.rglob("*")] == ["model", "model/b"]


def test_names_as_text_that_can_be_written() -> None:
    assert readable(os.fsdecode(b"caf\xe9 \xff.png")) == "caf\ufffd \ufffd.png"
    assert readable("café 😀") == "café 😀"
