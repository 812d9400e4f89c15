"""MaPLe checkpoints of torch (both formats), safetensors and TorchScript: damaged, and with planted code."""

from __future__ import annotations

import io
import os
import pickle
import random
import zipfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as save_tensors

from helpers import cases
from ostta.backbones.maple import OWN_PROMPTS, Maple, MaplePrompts, load_maple

from .engine import Kind
from .mutate import damaged

TRACE = "it-ran"


class Planted:
    """An object that writes a file into the current folder when it is unpickled."""

    def __init__(self, how: int) -> None:
        self.how = how

    def __reduce__(self) -> Any:
        return ((os.mkdir, (TRACE,)), (exec, (f"open({TRACE!r}, 'w')",)), (os.system, (f"touch {TRACE}",)))[self.how]


class Checkpoints(Kind):
    """Reading a checkpoint gives prompts or an Error, and executes no code."""

    def __init__(self) -> None:
        self.clip: Any = cases.backbone("embedded")
        maple: Any = cases.backbone("embedded+maple")
        prompts = maple.tower.prompts.state_dict() if isinstance(maple, Maple) else MaplePrompts(32, 48).state_dict()
        self.state = {name: tensor.detach().clone() for name, tensor in prompts.items()}
        public = {"state_dict": {f"prompt_learner.{name}": tensor for name, tensor in self.state.items()}, "epoch": 2}
        layers = len(self.clip.vision.vision_model.encoder.layers)
        self.seeds = {
            "zip": _saved(public),
            "zip of halves": _saved({name: tensor.half() for name, tensor in self.state.items()}),
            "old": _saved(public, _use_new_zipfile_serialization=False),
            "script": _script(),
            "own": save_tensors(self.state),
            "statistics": _saved(torch.rand(layers, 17, 48)),
        }

    def mutation(self, rng: random.Random) -> bytes:
        name = rng.choice(list(self.seeds))
        content = self.seeds[name]
        match rng.randrange(6):
            case 0:
                return _saved(self._odd(rng), **rng.choice(({}, {"_use_new_zipfile_serialization": False})))
            case 1 | 2 if name in ("zip", "zip of halves", "script", "statistics"):
                return _members_damaged(content, rng)
            case 3:
                return _planted(content, rng)
            case _:
                return damaged(content, rng, list(self.seeds.values()))

    def _odd(self, rng: random.Random) -> Any:
        """Return an unusual checkpoint that torch can write."""
        state: dict[Any, Any] = dict(self.state)
        name = rng.choice(list(state))
        odd = (
            None, 5, "x", [], {}, torch.zeros(()), torch.zeros(0), torch.zeros(3), torch.zeros(2, 3, 4),
            torch.full((4, 64), float("nan")),
            torch.zeros(4, 64, dtype=torch.complex64), torch.zeros(4, 64, dtype=torch.int64),
            torch.zeros(4, 64).to_sparse(),
            torch.zeros(4, 64, device="meta"), torch.quantize_per_tensor(torch.zeros(4, 64), 0.1, 0, torch.qint8),
            torch.zeros(1).expand(3, 3), torch.zeros(10**6).as_strided((10**6, 1), (0, 1)), Planted(0),
        )  # fmt: skip
        match rng.randrange(4):
            case 0:
                state[name] = rng.choice(odd)
            case 1:
                del state[name]
            case 2:
                state[rng.choice((name + "x", 5, None, "compound_prompts_text.9", ("ctx",)))] = rng.choice(odd)
            case _:
                return rng.choice((*odd, {"state_dict": rng.choice(odd)}))
        return rng.choice((state, {"state_dict": state}, [state]))

    def place(self, content: bytes, folder: Path) -> None:
        """Write the input as a public checkpoint, as one of ostta, and as statistics beside a valid checkpoint."""
        for name in ("public", "own", "beside"):
            (folder / name).mkdir()
        (folder / "public" / "model.pth.tar-2").write_bytes(content)
        (folder / "own" / OWN_PROMPTS).write_bytes(content)
        (folder / "beside" / OWN_PROMPTS).write_bytes(self.seeds["own"])
        for name in ("means", "vars"):
            (folder / "beside" / f"x_vis_{name}.pt").write_bytes(content)

    def target(self, folder: Path) -> None:
        from ostta import Error

        last: Error | None = None
        for name in ("public", "own", "beside"):
            try:
                load_maple(self.clip, folder / name, "fuzz")
            except Error as problem:
                last = problem
        if last is not None:
            raise last


def _saved(content: Any, **options: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer, **options)
    return buffer.getvalue()


class Scripted(torch.nn.Module):
    """A module that writes a file when torch loads it as TorchScript."""

    @torch.jit.export
    def __getstate__(self) -> bool:
        return self.training

    @torch.jit.export
    def __setstate__(self, training: bool) -> None:
        torch.save(torch.zeros(1), "it-ran")
        self.training = training


def _script() -> bytes:
    """Return an archive that torch would execute."""
    buffer = io.BytesIO()
    torch.jit.save(torch.jit.script(Scripted()), buffer)
    return buffer.getvalue()


def _members(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def _zipped(members: dict[str, bytes], method: int = 0) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as made:
        for name, piece in members.items():
            made.writestr(name, piece)
    return buffer.getvalue()


def _members_damaged(content: bytes, rng: random.Random) -> bytes:
    """Return a valid zip file with a damaged member, so that the damage reaches the reader of members."""
    members = _members(content)
    name = rng.choice([*members, *(each for each in members if each.endswith(".pkl"))])
    match rng.randrange(6):
        case 0:
            del members[name]
        case 1:
            members[rng.choice((name + "x", "../x", "archive/data.pkl", "constants.pkl", "x/constants.pkl"))] = (
                members.pop(name)
            )
        case 2:
            members[
                rng.choice(("archive/constants.pkl", "archive/code/x.py", "archive/version", "archive/byteorder"))
            ] = b"3\n"
        case _:
            members[name] = damaged(members[name], rng)
    return _zipped(members, rng.choice((0, 0, 0, 8)))


def _planted(content: bytes, rng: random.Random) -> bytes:
    """Return a checkpoint with an object that executes code in an ordinary unpickler."""
    payload = pickle.dumps({"state_dict": Planted(rng.randrange(3))}, protocol=2)
    if not content.startswith(b"PK"):
        return payload
    members = _members(content)
    pickles = [name for name in members if name.endswith(".pkl")]
    members[rng.choice(pickles)] = payload
    return _zipped(members)
