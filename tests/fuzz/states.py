"""State files with damage, which the hash detects, and with deliberate changes, which only checks detect."""

from __future__ import annotations

import json
import random
import struct
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load as load_tensors

from helpers import cases
from ostta import Adapter, Error
from ostta.backbones.towers import weight_hash

from .engine import Kind, PromiseError
from .mutate import damaged, damaged_tree, json_text

METHODS = ("rosita", "tda", "prototypes", "dpe", "entropy", "cliptta", "zero_shot", "oga", "onzeta")
IDENTIFIERS = ("lda", "daf")
SEALED, CONTENT = "sha256", "ostta"
TYPES = ("F16", "BF16", "F32", "F64", "I8", "I32", "I64", "BOOL", "U8", "X9")


class States(Kind):
    """Base class of both kinds: some states, and the use of a file that was accepted."""

    def __init__(self) -> None:
        self.backbone = cases.backbone("wrapped")
        self.images = cases.images(30)
        self.seeds: list[bytes] = []
        with tempfile.TemporaryDirectory() as folder:
            for number, method in enumerate(METHODS):
                one = cases.adapter(method, IDENTIFIERS[number % len(IDENTIFIERS)])
                for image in self.images:
                    one.step(image)
                one.save(Path(folder) / "state")
                self.seeds.append((Path(folder) / "state").read_bytes())

    def target(self, folder: Path) -> None:
        one = Adapter.restore(folder / "input", self.backbone)
        self.restored(one, (folder / "input").read_bytes())
        try:
            for image in self.images[:2]:
                one.predict(image).to_json()
                one.step(image).to_json()
            one.save(folder / "out")
            Adapter.restore(folder / "out", self.backbone)
        except Error as problem:
            raise PromiseError(f"a state was restored that cannot be used: {problem}") from problem
        finally:
            (folder / "out").unlink(missing_ok=True)

    def restored(self, one: Adapter, content: bytes) -> None:
        """Check further promises of a restored adapter."""


class DamagedStates(States):
    """Changed bytes: the file is rejected, or it still holds exactly the state that was saved."""

    def mutation(self, rng: random.Random) -> bytes:
        return damaged(rng.choice(self.seeds), rng, self.seeds)

    def __init__(self) -> None:
        super().__init__()
        with tempfile.TemporaryDirectory() as folder:
            self.contents = [self._summary(seed, Path(folder) / "state") for seed in self.seeds]

    def _summary(self, seed: bytes, path: Path) -> tuple[Any, ...]:
        path.write_bytes(seed)
        return _summary(Adapter.restore(path, self.backbone))

    def restored(self, one: Adapter, content: bytes) -> None:
        if _summary(one) not in self.contents:
            raise PromiseError("a damaged file was restored as another state")


class ForgedStates(States):
    """Deliberately changed content with a recomputed hash."""

    def mutation(self, rng: random.Random) -> bytes:
        header, data = parsed(rng.choice(self.seeds))
        about = header["__metadata__"]
        description = json.loads(about[CONTENT])
        match rng.randrange(5):
            case 0:
                header = damaged_tree(header, rng)
                return packed(header, data, rng)
            case 1:
                data = _other_numbers(header, data, rng)
            case 2:
                data = _other_tensor(header, data, rng)
            case _:
                description = damaged_tree(description, rng)
        about[CONTENT] = json_text(description)
        return resealed(packed(header, data, rng), about)


def _summary(one: Adapter) -> tuple[Any, ...]:
    described = {name: value for name, value in one.describe().items() if name != "versions"}
    tensors = {name: (str(tensor.dtype), tensor.tolist()) for name, tensor in sorted(one.pipeline.tensors().items())}
    return json.dumps(described, sort_keys=True, default=str), repr(tensors)


def parsed(content: bytes) -> tuple[dict[str, Any], bytearray]:
    """Return the header and the data of a safetensors file."""
    (length,) = struct.unpack_from("<Q", content)
    return json.loads(content[8 : 8 + length]), bytearray(content[8 + length :])


def packed(header: Any, data: bytes, rng: random.Random) -> bytes:
    text = json_text(header).encode("utf-8", "surrogatepass")
    text += b" " * (-len(text) % 8 if rng.random() < 0.9 else 3)
    return struct.pack("<Q", len(text)) + text + bytes(data)


def resealed(content: bytes, about: dict[str, str]) -> bytes:
    """Recompute the hash of a file, if its format has one and its tensors can be read."""
    if SEALED not in about:
        return content
    try:
        import hashlib

        header, data = parsed(content)
        text = header["__metadata__"][CONTENT]
        whole = f"{weight_hash(load_tensors(content))}\n{text}".encode()
        header["__metadata__"][SEALED] = hashlib.sha256(whole).hexdigest()
        return packed(header, data, random.Random(0))
    except Exception:
        return content  # what no library can read is a case too


def _other_numbers(header: dict[str, Any], data: bytearray, rng: random.Random) -> bytearray:
    """Replace some values of a tensor by unusual ones."""
    entry = header[rng.choice([name for name in header if name != "__metadata__"])]
    start, stop = entry["data_offsets"]
    form, values = {
        "F32": ("<f", (float("nan"), float("inf"), -1e30, 1e30, 0.0, -1.0)),
        "F64": ("<d", (float("nan"), float("-inf"), 1e300, 0.0, -1.0)),
        "I64": ("<q", (-1, 2**63 - 1, -(2**63), 10**9, 0)),
        "I32": ("<i", (-1, 2**31 - 1, 10**9, 0)),
    }.get(entry["dtype"], ("<B", (0, 255)))
    size = struct.calcsize(form)
    whole = rng.random() < 0.2
    for place in range(start, stop - size + 1, size):
        if whole or rng.random() < 4 * size / max(size, stop - start):
            struct.pack_into(form, data, place, rng.choice(values))
    return data


def _other_tensor(header: dict[str, Any], data: bytearray, rng: random.Random) -> bytearray:
    """Remove or rename a tensor, or change its type or shape."""
    tensors = dict(load_tensors(packed(header, data, random.Random(0))))
    name = rng.choice(list(tensors))
    tensor = tensors[name]
    match rng.randrange(7):
        case 0:
            del tensors[name]
        case 1:
            tensors[rng.choice(("x", name + "x", "method/", "identifier/x", "method/overlay/x"))] = tensors.pop(name)
        case 2:
            kind = rng.choice((torch.float16, torch.float64, torch.float32, torch.int64, torch.bool, torch.uint8))
            tensors[name] = tensor.nan_to_num().to(kind)
        case 3:
            tensors[name] = tensor.reshape(-1)
        case 4:
            tensors[name] = tensor[None]
        case 5 if tensor.ndim:
            tensors[name] = torch.cat([tensor, tensor]) if rng.random() < 0.5 else tensor[: len(tensor) // 2].clone()
        case _:
            tensors[name] = torch.zeros(rng.choice(((), (0,), (1,), (3, 0), (600,), (2, 2, 2))))
    from safetensors.torch import save

    about = header["__metadata__"]
    made, changed = parsed(save({name: tensor.contiguous() for name, tensor in tensors.items()}, about))
    header.clear()
    header.update(made, __metadata__=about)
    return changed
