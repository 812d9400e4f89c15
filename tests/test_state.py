"""State files survive crashes, full disks and foreign content."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import ostta
from cases import adapter, backbone, images
from ostta import Error
from ostta.files import write_atomically
from ostta.state import read_state, write_state


def test_round_trip_is_safetensors_with_json(tmp_path: Path) -> None:
    one = adapter("rosita")
    for image in images(30):
        one.step(image)
    one.save(tmp_path / "a.ostta")
    tensors, description = read_state(tmp_path / "a.ostta")
    assert description.step == 30
    assert description.backbone.weight_hash == one.backbone.weight_hash
    assert description.options == one.resolved
    assert "method/overlay/norm.weight" in tensors
    assert {"ostta", "torch"} & set(description.versions)
    assert [path.name for path in tmp_path.iterdir()] == ["a.ostta"]


@pytest.mark.parametrize("bad", [b"", b"junk", b"\x10\x00\x00\x00\x00\x00\x00\x00{broken"])
def test_foreign_content_is_a_sentence(bad: bytes, tmp_path: Path) -> None:
    path = tmp_path / "bad.ostta"
    path.write_bytes(bad)
    with pytest.raises(Error, match="not a readable state file"):
        ostta.Adapter.restore(path, backbone("wrapped"))


def test_other_safetensors_other_version_and_absence(tmp_path: Path) -> None:
    save_file({"a": torch.zeros(1)}, tmp_path / "plain.ostta")
    with pytest.raises(Error, match="not a state of ostta"):
        read_state(tmp_path / "plain.ostta")
    save_file({"a": torch.zeros(1)}, tmp_path / "old.ostta", metadata={"ostta": json.dumps({"format": 99})})
    with pytest.raises(Error, match="format 99"):
        read_state(tmp_path / "old.ostta")
    with pytest.raises(Error, match="no state file"):
        read_state(tmp_path / "absent.ostta")


def test_incomplete_state_is_refused(tmp_path: Path) -> None:
    one = adapter("rosita")
    tensors = {name: t for name, t in one._tensors().items() if "scores" not in name}
    write_state(tmp_path / "part.ostta", tensors, one.describe())
    with pytest.raises(Error, match="incomplete"):
        ostta.Adapter.restore(tmp_path / "part.ostta", one.backbone)


def test_full_disk_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.ostta"
    path.write_bytes(b"old")

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(Error, match="No space left on device"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.ostta"]


def test_folder_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(Error, match="could not be written"):
        write_atomically(tmp_path / "no" / "a.ostta", b"new")


SAVER = """
import sys
sys.path[:0] = {paths!r}
from cases import adapter, images
one, pictures = adapter("rosita"), images(8)
one.save({target!r})
print("ready", flush=True)
while True:
    for image in pictures:
        one.step(image)
        one.save({target!r})
"""


def test_killed_while_saving_never_leaves_a_broken_file(tmp_path: Path) -> None:
    target = tmp_path / "live.ostta"
    here = Path(__file__).resolve().parent
    code = SAVER.format(paths=[str(here), str(here.parent / "src")], target=str(target))
    steps = []
    for wait in (0.05, 0.11, 0.17, 0.23):
        child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        assert child.stdout.readline().strip() == "ready"
        time.sleep(wait)
        child.send_signal(signal.SIGKILL)
        child.wait()
        steps.append(ostta.Adapter.restore(target, backbone("wrapped")).steps)
    assert any(steps)
