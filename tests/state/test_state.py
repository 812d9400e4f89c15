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
from helpers.cases import adapter, backbone, images
from helpers.errors import raises
from helpers.paths import ROOT, TESTS
from helpers.steady import CLASSES, steady_backbone
from helpers.tiny_models import tiny_clip
from ostta import Error
from ostta.io import write_atomically
from ostta.live.state_keeper import AdapterSettings, open_adapter
from ostta.state import StateCopy, read_state, write_state


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
    with raises("state-unreadable"):
        ostta.Adapter.restore(path, backbone("wrapped"))


def test_other_safetensors_other_version_and_absence(tmp_path: Path) -> None:
    save_file({"a": torch.zeros(1)}, tmp_path / "plain.ostta")
    with raises("state-unreadable"):
        read_state(tmp_path / "plain.ostta")
    save_file({"a": torch.zeros(1)}, tmp_path / "old.ostta", metadata={"ostta": json.dumps({"format": 99})})
    with raises("state-format-unknown"):
        read_state(tmp_path / "old.ostta")
    with raises("file-not-found"):
        read_state(tmp_path / "absent.ostta")


# --- which backbone ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "name", ["openai/clip-vit-base-patch16", "/etc", "~/model", "embedded+maple:/etc/passwd", "a\nb"]
)
def test_a_state_file_makes_nothing_be_downloaded_or_read(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, path = adapter("rosita"), tmp_path / "a.ostta"
    told = one.describe()
    told["backbone"] |= {"id": name, "restorable": True}
    write_state(path, StateCopy(one.pipeline.tensors(), told))

    def refuse(*_: object) -> None:
        raise AssertionError("opened")

    monkeypatch.setattr("ostta.backbones.load", refuse)
    with raises("backbone-missing") as caught:
        ostta.Adapter.restore(path)
    said = f"{path} was saved on the backbone {name!r}, which does not ship with ostta: "
    assert str(caught.value) == f"{said}pass it as `backbone=`, or its name or folder."


def test_a_backbone_that_ships_is_found_and_any_other_is_named(tmp_path: Path) -> None:
    folder, path = tiny_clip(tmp_path / "clip"), tmp_path / "a.ostta"
    one = ostta.load(folder, ["cat", "dog"], method="zero_shot")
    one.save(path)
    with raises("backbone-missing", match="pass it as `backbone=`, or its name or folder"):
        ostta.Adapter.restore(path)
    for given in (folder, str(folder), one.backbone):
        assert ostta.Adapter.restore(path, given).classes == ("cat", "dog")
    adapter("zero_shot", kind="embedded").save(path)
    assert ostta.Adapter.restore(path).backbone.id == "embedded"
    with raises("state-mismatch", match="other weights"):
        ostta.Adapter.restore(path, folder)


def test_what_could_not_be_read_again_is_not_written(tmp_path: Path) -> None:
    one, path = adapter("rosita"), tmp_path / "a.ostta"
    for change in ({"seed": -1}, {"step": 2**60}, {"classes": ["\ud800"]}, {"profile": "mine"}, {"more": 1}):
        with pytest.raises(Error):
            write_state(path, StateCopy(one.pipeline.tensors(), one.describe() | change))
    assert not list(tmp_path.iterdir())


def test_incomplete_state_is_refused(tmp_path: Path) -> None:
    one = adapter("rosita")
    tensors = {name: t for name, t in one.pipeline.tensors().items() if "scores" not in name}
    write_state(tmp_path / "part.ostta", StateCopy(tensors, one.describe()))
    with raises("state-mismatch", match="incomplete"):
        ostta.Adapter.restore(tmp_path / "part.ostta", one.backbone)


def test_full_disk_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.ostta"
    path.write_bytes(b"old")

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with raises("file-not-written"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.ostta"]


def test_folder_that_does_not_exist(tmp_path: Path) -> None:
    with raises("file-not-written"):
        write_atomically(tmp_path / "no" / "a.ostta", b"new")


SAVER = """
import sys
sys.path[:0] = {paths!r}
from helpers.cases import adapter, images
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
    code = SAVER.format(paths=[str(TESTS), str(ROOT / "src")], target=str(target))
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


def test_a_stream_goes_on_with_the_components_of_its_state(tmp_path: Path) -> None:
    path = tmp_path / "one.ostta"
    ostta.load(steady_backbone(), CLASSES, "tda", identifier="daf").save(path)
    one = open_adapter(AdapterSettings(classes=None, backbone=steady_backbone()), path)
    assert (one.method_name, one.score_name, one.identifier_name, one.profile) == ("tda", "max", "daf", "reference")
    assert one.guard is None
    assert one.resolved.adapter.answer == "own"
