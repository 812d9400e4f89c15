"""Files of `torch.save` are read as torch reads them, run nothing, and are one sentence where they are damaged or
strange.
"""

from __future__ import annotations

import contextlib
import io
import pickle
import resource
import struct
import tarfile
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from helpers.errors import raises
from ostta import Error
from ostta.backbones.checkpoints import read_checkpoint
from ostta.backbones.maple import MaplePrompts, read_prompts, read_statistics


def saved(content: Any, file: Path, *, zipped: bool = True) -> Path:
    torch.save(content, file, _use_new_zipfile_serialization=zipped)
    return file


def prompts(**others: Any) -> dict[str, Any]:
    torch.manual_seed(0)
    own = {name: torch.randn(tensor.shape) for name, tensor in MaplePrompts(8, 12, depth=2).state_dict().items()}
    return {f"prompt_learner.{name}": tensor for name, tensor in (own | others).items()}


def repacked(file: Path, change: Callable[[zipfile.ZipInfo, bytes], tuple[str, bytes]], **options: Any) -> Path:
    """The archive `file` with each entry changed."""
    with zipfile.ZipFile(file) as archive:
        entries = [change(entry, archive.read(entry)) for entry in archive.infolist()]
    with zipfile.ZipFile(file, "w", **options) as archive:
        for name, content in entries:
            archive.writestr(name, content)
    return file


# --- what is read -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("zipped", [True, False])
def test_the_tensors_are_those_that_torch_reads(zipped: bool, tmp_path: Path) -> None:
    base = torch.randn(6, 4)
    state = OrderedDict(
        single=base,
        half=torch.randn(3).half(),
        brain=torch.randn(3).bfloat16(),
        double=torch.randn(2, 2).double(),
        whole=torch.arange(5),
        turned=base.t(),
        part=base[2:4, 1:],
        empty=torch.zeros(0, 3),
        number=torch.tensor(7.0),
        parameter=torch.nn.Parameter(torch.randn(2)),
    )
    file = saved({"state_dict": state, "epoch": 3}, tmp_path / "model.pth", zipped=zipped)
    found = read_checkpoint(file)
    assert isinstance(found, dict)
    assert list(found) == list(state)
    for name, tensor in torch.load(file, weights_only=True)["state_dict"].items():
        assert found[name].dtype == tensor.dtype
        assert found[name].equal(tensor)
    alone = read_checkpoint(saved(base, tmp_path / "alone.pt", zipped=zipped))
    assert isinstance(alone, torch.Tensor)
    assert alone.equal(base)


class Schedule:
    def __init__(self) -> None:
        self.rates = [1.0]


class Bomb:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> Any:
        return (Path.touch, (self.target,))


@pytest.mark.parametrize("zipped", [True, False])
def test_live_objects_are_inert(zipped: bool, tmp_path: Path) -> None:
    target = tmp_path / "touched"
    content = {"state_dict": prompts(), "schedule": Schedule(), "bomb": Bomb(target)}
    assert read_prompts(saved(content, tmp_path / "model.pth", zipped=zipped)).ctx.shape == (2, 8)
    assert not target.exists()


# --- what must not run ------------------------------------------------------------------------------------------------
class Writer(torch.nn.Module):
    """A TorchScript module that writes a file when it is loaded."""

    def __init__(self, target: str) -> None:
        super().__init__()
        self.target = target

    @torch.jit.export
    def __getstate__(self) -> tuple[str, bool]:
        return self.target, self.training

    @torch.jit.export
    def __setstate__(self, state: tuple[str, bool]) -> None:
        self.target = state[0]
        self.training = state[1]
        torch.save([torch.zeros(1)], state[0])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_torchscript_archive_is_refused_before_anything_of_it_runs(tmp_path: Path) -> None:
    target = tmp_path / "written"
    file = tmp_path / "model.pth"
    torch.jit.save(torch.jit.script(Writer(str(target))), file)
    assert not target.exists()
    with raises("checkpoint-unreadable"):
        read_prompts(file)
    file.rename(tmp_path / "x_vis_means.pt")
    saved(torch.zeros(1), tmp_path / "x_vis_vars.pt")
    with raises("checkpoint-unreadable"):
        read_statistics(tmp_path)
    assert not target.exists()


@pytest.mark.parametrize("name", ["model/constants.pkl", "model/code/__torch__.py", "constants.pkl"])
def test_a_checkpoint_with_parts_of_a_program_is_refused(name: str, tmp_path: Path) -> None:
    file = saved(prompts(), tmp_path / "model.pth")
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr(name, b"")
    with raises("checkpoint-unreadable"):
        read_prompts(file)


def test_an_old_file_cannot_write_a_patch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old form may hold the source of a class.

    Torch writes a patch file where it differs, if the class asks for it.
    """
    monkeypatch.chdir(tmp_path)
    asks = b"ctorch._utils\n_rebuild_tensor_v2\n(S'dump_patches'\nI01\ndb"
    module = b"\x80\x02(S'module'\n" + asks + b"S'a file'\nS'another source\\n'\ntQ."
    start = b"".join(pickle.dumps(item, 2) for item in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}))
    (tmp_path / "model.pth").write_bytes(start + module + pickle.dumps([], 2))
    with raises("checkpoint-unreadable"):
        read_prompts(tmp_path / "model.pth")
    assert [path.name for path in tmp_path.iterdir()] == ["model.pth"]
    assert not hasattr(torch._utils._rebuild_tensor_v2, "dump_patches")


# --- what is damaged or strange ---------------------------------------------------------------------------------------
def strange() -> dict[str, Any]:
    wide = torch.zeros(1).expand(10**6, 10**6)
    return {
        "meta": torch.zeros(2, 8, device="meta"),
        "sparse": torch.eye(8)[:2].to_sparse(),
        "rows": torch.eye(8)[:2].to_sparse_csr(),
        "quantized": torch.quantize_per_tensor(torch.zeros(2, 8), 0.1, 0, torch.quint8),
        "complex": torch.zeros(2, 8, dtype=torch.complex64),
        "whole": torch.zeros(2, 8, dtype=torch.int64),
        "eight bits": torch.zeros(2, 8).to(torch.float8_e4m3fn),
        "spread": wide,
        "empty": torch.zeros(0, 10**12),
        "no tensor": "text",
        "not finite": torch.full((2, 8), torch.nan),
        "flat": torch.zeros(16),
    }


STRANGE = (
    "meta",
    "sparse",
    "rows",
    "quantized",
    "complex",
    "whole",
    "eight bits",
    "spread",
    "empty",
    "no tensor",
    "not finite",
    "flat",
)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", STRANGE)
@pytest.mark.parametrize("zipped", [True, False])
def test_strange_tensors_are_one_sentence(kind: str, zipped: bool, tmp_path: Path) -> None:
    tensor = strange()[kind]
    (tmp_path / "prompts").mkdir()
    (tmp_path / "statistics").mkdir()
    file = tmp_path / "prompts" / "model.pth"
    with pytest.raises(Error, match=r"model\.pth"):
        read_prompts(saved(prompts(ctx=tensor), file, zipped=zipped))
    if kind not in ("empty", "flat"):  # whose shape is judged with the model
        saved(tensor, tmp_path / "statistics" / "x_vis_means.pt", zipped=zipped)
        saved(torch.zeros(1), tmp_path / "statistics" / "x_vis_vars.pt")
        with pytest.raises(Error, match=r"x_vis_means\.pt"):
            read_statistics(tmp_path / "statistics")


def described(offset: int, size: tuple[int, ...], stride: tuple[int, ...]) -> Any:
    class Claim:
        def __reduce__(self) -> Any:
            storage = torch.zeros(4)._typed_storage()
            return torch._utils._rebuild_tensor_v2, (storage, offset, size, stride, False, OrderedDict())

    return Claim()


@pytest.mark.parametrize(
    ("offset", "size", "stride"),
    [(0, (5,), (1,)), (3, (2,), (1,)), (-1, (2,), (1,)), (0, (2,), (10**15,)), (0, (2, 2**62), (0, 0)), (0, (2,), ())],
)
def test_a_tensor_that_leaves_its_storage(
    offset: int, size: tuple[int, ...], stride: tuple[int, ...], tmp_path: Path
) -> None:
    with raises("checkpoint-unreadable"):
        read_checkpoint(saved(described(offset, size, stride), tmp_path / "x.pt"))


def test_many_prompts_in_few_numbers(tmp_path: Path) -> None:
    shared = torch.randn(100 * 100).half()
    shapes = {name: tensor.shape for name, tensor in MaplePrompts(100, 100, depth=9).state_dict().items()}
    own = {f"prompt_learner.{name}": shared[: shape.numel()].view(shape) for name, shape in shapes.items()}
    file = saved(own, tmp_path / "model.pth")
    with raises("prompts-unreadable", match="larger than the file"):
        read_prompts(file)
    own |= {f"prompt_learner.compound_prompts_text.{number}": torch.zeros(1) for number in range(100)}
    with raises("prompts-unreadable", match="prompts for 101 layers"):
        read_prompts(saved(own, file))


def test_archives_that_torch_never_writes(tmp_path: Path) -> None:
    file = saved(prompts(), tmp_path / "model.pth")
    whole = file.read_bytes()
    repacked(file, lambda entry, content: (entry.filename, content), compression=zipfile.ZIP_DEFLATED)
    with raises("checkpoint-unreadable"):
        read_prompts(file)
    file.write_bytes(whole)
    repacked(file, lambda entry, content: (entry.filename.replace("data.pkl", "other.pkl"), content))
    with raises("checkpoint-unreadable", match=r"it has 0 files data\.pkl instead of one"):
        read_prompts(file)
    file.write_bytes(whole)
    repacked(file, lambda entry, content: (entry.filename, b"big" if "byteorder" in entry.filename else content))
    with raises("checkpoint-unreadable"):
        read_prompts(file)
    file.write_bytes(whole)
    repacked(file, lambda entry, content: (entry.filename, content[:4] if "/data/" in entry.filename else content))
    with raises("checkpoint-unreadable", match="has 4 bytes instead of"):
        read_prompts(file)


def test_a_large_number_in_a_memo_takes_no_memory(tmp_path: Path) -> None:
    start = b"".join(pickle.dumps(item, 2) for item in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True}))
    (tmp_path / "model.pth").write_bytes(start + b"\x80\x02}r" + struct.pack("<I", 2**27) + b"." + pickle.dumps([], 2))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with raises("prompts-unreadable", match="has no MaPLe prompts"):
        read_prompts(tmp_path / "model.pth")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**20  # kilobytes


def test_the_tar_form_of_2017(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "model.pth", "w") as archive:
        for name in ("storages", "tensors", "pickle"):
            entry = tarfile.TarInfo(name)
            entry.size = 4
            archive.addfile(entry, io.BytesIO(struct.pack("<i", 0)))
    with raises("checkpoint-unreadable", match="tar archive of PyTorch before 2017"):
        read_prompts(tmp_path / "model.pth")


def test_damaged_files_are_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "model.pth"
    generator = torch.Generator().manual_seed(0)
    for zipped in (True, False):
        whole = saved({"state_dict": prompts(), "schedule": Schedule()}, file, zipped=zipped).read_bytes()
        for _ in range(60):
            content = bytearray(whole)
            for place in torch.randint(len(content), (3,), generator=generator).tolist():
                content[place] = int(torch.randint(256, (1,), generator=generator))
            length = int(torch.randint(len(content), (1,), generator=generator))
            for damaged in (content, content[:length]):
                file.write_bytes(damaged)
                with contextlib.suppress(Error):
                    read_prompts(file)


def nested_tuple(depth: int) -> bytes:
    """Instructions for a tuple of two of the same tuple, and so on: a hash of it goes 2 to the `depth` ways."""
    return pickle.EMPTY_TUPLE + b"".join(pickle.DUP + pickle.TUPLE2 for _ in range(depth))


@pytest.mark.parametrize(
    ("instructions", "words"),
    [
        (pickle.EMPTY_DICT + nested_tuple(64) + pickle.NONE + pickle.SETITEM, "neither a text nor a number"),
        (
            pickle.EMPTY_DICT + pickle.MARK + nested_tuple(64) + pickle.NONE + pickle.SETITEMS,
            "neither a text nor a number",
        ),
        (pickle.MARK + nested_tuple(64) + pickle.NONE + pickle.DICT, "neither a text nor a number"),
        (pickle.MARK + nested_tuple(64) + pickle.FROZENSET, "sets or byte arrays"),
        (pickle.EMPTY_SET, "sets or byte arrays"),
        (pickle.BYTEARRAY8 + struct.pack("<Q", 2**40), "sets or byte arrays"),
    ],
)
def test_no_instruction_asks_for_endless_time_or_room(instructions: bytes, words: str, tmp_path: Path) -> None:
    file = saved({"x": torch.zeros(1)}, tmp_path / "a.pt")

    def change(entry: zipfile.ZipInfo, content: bytes) -> tuple[str, bytes]:
        planted = pickle.PROTO + b"\x04" + instructions + pickle.STOP
        return entry.filename, planted if entry.filename.endswith("data.pkl") else content

    with raises("checkpoint-unreadable", match=words):
        read_checkpoint(repacked(file, change))
