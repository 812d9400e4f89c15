"""Damaged state files: the parts of a valid file, and ways to damage them."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save

from ostta.state.file import FORMAT, _hash

# What a JSON value may be changed into: another type, out of any range, too long, too deep, or not even text.
WRONG: tuple[Any, ...] = (
    None, True, -1, 0, 10**9, 2**64, 10**30, 0.5, -1e300, "", "x", "x" * 20_000, "\ud800", "line\nline", [], [[]], {},
    {"a": {}},
    ["a", "a"], [1, None], [0.9, 0.1], [1e-320, 1.0],
)  # fmt: skip

# Lists that may be longer or shorter than they are, and how long at the most.
LISTS = {
    "scores": 512,
    "rejected": 512,
    "classes": 96,
    "trained_on": 96,
    "checks": 128,
    "updates": 16,
    "drift": 1,
    "failed": 64,
    "waiting": 32,
}


@dataclass(frozen=True)
class Parts:
    """The parts of a state file, which can be changed and put together again."""

    tensors: dict[str, torch.Tensor]
    content: dict[str, Any]
    text: str | None = None

    @classmethod
    def of(cls, path: Path) -> Parts:
        with safe_open(str(path), framework="pt") as file:
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 - not a dict
            return cls(tensors, json.loads(file.metadata()["ostta"]))

    def file(self) -> bytes:
        """Return the file. The hash is recomputed, as an attacker would do."""
        text = json.dumps(self.content) if self.text is None else self.text
        metadata = {"ostta": text, "sha256": _hash(self.tensors, text)}
        return save({name: tensor.contiguous().clone() for name, tensor in self.tensors.items()}, metadata)


Damage = tuple[str, Parts]


def damaged_content(good: Parts) -> Iterator[Damage]:
    """Yield the parts with each entry of the JSON removed, added or replaced by an invalid value."""
    places: list[tuple[str, ...]] = [(name,) for name in good.content]
    places += [(name, inner) for name in ("backbone", "options", "option_sources") for inner in good.content[name]]
    sources = good.content["option_sources"]
    places += [("option_sources", owner, name) for owner, named in sources.items() for name in named]
    yield from _damaged(good, places)
    for name in good.content:
        if isinstance(good.content[name], dict):
            yield f"{name} emptied", replace(good, content={**good.content, name: {}})


def damaged_options(good: Parts) -> Iterator[Damage]:
    """Yield the parts with each option removed, added or replaced by an invalid value."""
    yield from _damaged(
        good, [("options", owner, name) for owner, named in good.content["options"].items() for name in named]
    )


def _damaged(good: Parts, places: list[tuple[str, ...]]) -> Iterator[Damage]:
    for place in places:
        yield f"{place} removed", replace(good, content=_changed(good.content, place))
        # One wrong source is as wrong as the next.
        for value in WRONG[:8] if place[0] == "option_sources" and len(place) > 1 else WRONG:
            yield f"{place} = {str(value)[:40]!r}", replace(good, content=_changed(good.content, place, value))
        yield f"{place} added", replace(good, content=_changed(good.content, (*place[:-1], "extra\nline"), 1))


def _changed(content: dict[str, Any], place: tuple[str, ...], *value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(content)
    inside = changed
    for name in place[:-1]:
        inside = inside[name]
    if value:
        inside[place[-1]] = value[0]
    else:
        del inside[place[-1]]
    return changed


def misfitting_tensors(good: Parts) -> Iterator[Damage]:
    """Yield the parts with each tensor removed, renamed, or of another type or shape, and with an additional one.

    No such file may load.
    """
    for name, tensor in good.tensors.items():
        others = {other: each for other, each in good.tensors.items() if other != name}
        yield f"{name} removed", replace(good, tensors=others)
        for new in (f"{name}.x", name.partition("/")[2], name.rpartition("/")[0], f"{name}\nline", "x" * 10_000):
            yield f"{name} renamed {new[:60]!r}", replace(good, tensors={**others, new: tensor})
            yield f"{new[:60]!r} added", replace(good, tensors={**good.tensors, new: tensor})
        for dtype in (torch.float64, torch.float32, torch.float16, torch.int64, torch.int32, torch.uint8, torch.bool):
            if dtype != tensor.dtype:
                yield f"{name} as {dtype}", replace(good, tensors={**others, name: tensor.to(dtype)})
        shapes = [tensor[None], torch.cat([tensor.flatten()] * 600)]
        if tensor.ndim:
            shapes += [tensor.repeat(2, *[1] * (tensor.ndim - 1)), tensor[..., None], tensor.sum()]
        if tensor.ndim > 1:
            shapes += [tensor.flatten(), tensor[:-1], tensor[..., :-1]]
        for shaped in shapes:
            if not _may_be(name, tensor, shaped):
                yield (
                    f"{name} as {list(shaped.shape)}",
                    replace(good, tensors={**others, name: shaped.to(tensor.dtype)}),
                )


def _may_be(name: str, tensor: torch.Tensor, shaped: torch.Tensor) -> bool:
    most = LISTS.get(name.rpartition("/")[2], -1)
    return shaped.ndim == tensor.ndim and shaped.shape[1:] == tensor.shape[1:] and len(shaped) <= most


def impossible_values(good: Parts) -> Iterator[Damage]:
    """Yield the parts with impossible values in each tensor. No such file may load."""
    for name, tensor in good.tensors.items():
        if not tensor.numel() or tensor.dtype == torch.uint8:  # every level is possible
            continue
        values = [-(2**31), 2**31 - 1] if tensor.dtype == torch.int32 else [-(2**62), -2, 2**62, 2**63 - 1]
        if tensor.is_floating_point():
            values = [float("nan"), float("-inf")] + [float("inf")] * (not name.endswith("entropies"))
        for value in values:
            first, every = tensor.clone(), torch.full_like(tensor, value)
            first.reshape(-1)[0] = value
            for which, changed in (("first", first), ("every", every)):
                yield f"{which} {name} = {value}", replace(good, tensors={**good.tensors, name: changed})


def odd_values(good: Parts) -> Iterator[Damage]:
    """Yield the parts with unusual values that may be valid."""
    for name, tensor in good.tensors.items():
        for value in (
            (0, 1, -1, 3, 50) if not tensor.is_floating_point() else (0.0, -0.0, -1.0, 1.0, 1e-38, 3e38, -3e38)
        ):
            yield (
                f"every {name} = {value}",
                replace(good, tensors={**good.tensors, name: torch.full_like(tensor, value)}),
            )
        if tensor.ndim:
            yield f"{name} reversed", replace(good, tensors={**good.tensors, name: tensor.flip(0)})


def bad_texts(good: Parts) -> Iterator[Damage]:
    """Yield invalid JSON texts. No such file may load."""
    text = json.dumps(good.content)
    body, written = text[1:], f'"format": {FORMAT}'
    for name, changed in {
        "empty": "", "null": "null", "a list": "[]", "a number": "2", "cut": text[:-10],
        "twice": f'{{"format": {FORMAT}, ' + body,
        "nested": '{"format": ' + "[" * 100_000 + "]" * 100_000 + "}", "open": "[" * 100_000,
        "NaN": '{"a": NaN, ' + body, "infinite": '{"a": -Infinity, ' + body, "1e999": '{"a": 1e999, ' + body,
        "5000 digits": '{"a": ' + "9" * 5_000 + ", " + body, "10 MB": '{"a": "' + "x" * 10_000_000 + '", ' + body,
        "40 MB": '{"a": "' + "x" * 40_000_000 + '", ' + body,
        "next format": text.replace(written, f'"format": {FORMAT + 1}'),
        "format true": text.replace(written, '"format": true'), "format 0": text.replace(written, '"format": 0'),
        "no format": text.replace(f"{written}, ", ""),
    }.items():  # fmt: skip
        assert changed != text
        yield name, replace(good, text=changed)


def bad_headers(good: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield files that are not safetensors files."""
    length = int.from_bytes(good[:8], "little")
    header, data = good[8 : 8 + length], good[8 + length :]
    for size in (0, 1, 2**31, 2**63, 2**64 - 1, length - 1, length + 1):
        yield f"length {size}", size.to_bytes(8, "little") + good[8:]
    first = next(name for name in json.loads(header) if name != "__metadata__")
    content = json.loads(header)
    for name, changed in {
        "nested": b"[" * 100_000,
        "not UTF-8": header.replace(b"method", b"\xff\xfeethod"),
        "metadata not text": header.replace(b'"__metadata__":{', b'"__metadata__":{"x":{},'),
        "too far": json.dumps({**content, first: {**content[first], "data_offsets": [0, 2**62]}}).encode(),
        "backwards": json.dumps({**content, first: {**content[first], "data_offsets": [8, 0]}}).encode(),
        "large": json.dumps({**content, first: {**content[first], "shape": [2**62, 2**62]}}).encode(),
        "negative": json.dumps({**content, first: {**content[first], "shape": [-1]}}).encode(),
        "a type that is none": json.dumps({**content, first: {**content[first], "dtype": "X7"}}).encode(),
    }.items():
        yield name, len(changed).to_bytes(8, "little") + changed + data
    for end in range(0, len(good), max(1, len(good) // 40)):
        yield f"cut at {end}", good[:end]
    yield "longer", good + b"\0"
