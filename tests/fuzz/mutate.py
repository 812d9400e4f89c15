"""Damage to bytes, and to trees of values such as those of JSON and TOML."""

from __future__ import annotations

import copy
import json
import math
import random
from collections.abc import Sequence
from typing import Any

EDGES = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
# Stand for text that cannot be written from a value: nested deeper than Python recurses, longer than Python reads as a
# number.
DEEP, LONG = "(deep)", "(long)"
RAW = {DEEP: "[" * 5000 + "]" * 5000, LONG: "9" * 5000}
ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 7, 2**31, 2**53 + 1, 2**63, 10**9, 10**30, 0.5, -0.0, 1e-308, 1e308, math.nan,
    math.inf,
    "", " ", "x", "0", "None", "nan", "\0", "a\nb", "\u2028", "\ud800", "é", "e\u0301", "../../x", "/", "%s{0}", "<b>&",
    "=1+1",
    "x" * 3000, [], {}, [[]], [None], ["x", "x"], {"": None}, {"x": {"x": 1}}, DEEP, LONG,
)  # fmt: skip


def damaged(content: bytes, rng: random.Random, others: Sequence[bytes] = ()) -> bytes:
    """Return `content` with one to four changes, which may insert parts of `others`."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        _damage(data, rng, others)
    return bytes(data)


def _damage(data: bytearray, rng: random.Random, others: Sequence[bytes]) -> None:
    place = _place(data, rng)
    width = rng.choice((1, 2, 4, 8))
    match rng.randrange(8):
        case 0 if data:
            data[min(place, len(data) - 1)] ^= 1 << rng.randrange(8)
        case 1:
            edge = rng.choice(EDGES) % (1 << 8 * width)
            data[place : place + width] = edge.to_bytes(width, rng.choice(("little", "big")))
        case 2:
            data[place : place + width] = rng.randbytes(width)
        case 3:
            del data[place:]
        case 4:
            del data[place : place + rng.choice((1, 4, 64))]
        case 5:
            data[place:place] = rng.randbytes(rng.choice((1, 4, 64)))
        case 6:
            piece = data[place : place + rng.choice((4, 64, 512))]
            data[_place(data, rng) : 0] = piece
        case _ if others:
            other = rng.choice(others)
            start = rng.randrange(len(other) + 1)
            data[place : place + 64] = other[start : start + rng.choice((16, 64, len(other)))]


def _place(data: bytearray, rng: random.Random) -> int:
    """Return a position, often near the start, where formats store their headers."""
    return rng.randrange(min(len(data), rng.choice((32, 256, len(data) + 1))) + 1)


def damaged_tree(tree: Any, rng: random.Random) -> Any:
    """Return a copy of `tree` with one to three values changed, renamed, removed, duplicated or exchanged."""
    made = [copy.deepcopy(tree)]
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        holder, key = _spot(made, rng)
        match rng.randrange(8):
            case 0 if len(made) != len(holder) or holder is not made:
                del holder[key]
            case 1 if isinstance(holder, dict):
                holder[rng.choice((str(key) + "x", "", "\u2028", "name", "options"))] = holder.pop(key)
            case 2 if isinstance(holder, list):
                holder.insert(key, copy.deepcopy(holder[key]))
            case 3:
                other, place = _spot(made, rng)
                holder[key] = copy.deepcopy(other[place])
            case 4:
                holder[key] = rng.choice(([holder[key]], {"x": holder[key]}, str(holder[key])))
            case 5 if type(holder[key]) in (int, float):
                holder[key] = holder[key] * rng.choice((-1, 2, 1e3, 1e9)) + rng.choice((0, 1, -1))
            case _:
                holder[key] = copy.deepcopy(rng.choice(ODD))
    return made[0] if made else None


def _spot(made: list[Any], rng: random.Random) -> tuple[Any, Any]:
    """Return a random container at any depth, and one of its keys."""
    spots: list[tuple[Any, Any]] = []
    waiting: list[Any] = [made]
    while waiting:
        holder = waiting.pop()
        for key in list(holder) if isinstance(holder, dict) else range(len(holder)):
            spots.append((holder, key))
            if isinstance(holder[key], (dict, list)):
                waiting.append(holder[key])
    return rng.choice(spots)


def json_text(tree: Any) -> str:
    return raw(json.dumps(tree))


def raw(text: str) -> str:
    """Replace the placeholders in `text` by their values."""
    for name, content in RAW.items():
        text = text.replace(f'"{name}"', content)
    return text
