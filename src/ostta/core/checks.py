"""Checks of what comes from outside: the tensors of a state file, and numbers. Bounds of options: `options.py`."""

from __future__ import annotations

import math
import operator
from collections.abc import Collection, Mapping, Sequence

import torch

from .types import Error

Tensors = Mapping[str, torch.Tensor]

# A count above this is damage: it is also what every reader of JSON has exactly.
MOST_STEPS = 2**53
LARGEST_SEED = 2**63 - 1
# One bank or cache of a stream may take this much.
MOST_BYTES = 4 * 2**30
# How far from one the length of a unit feature may be; it may have been rounded to half precision.
UNIT_TOLERANCE = 0.01


def shown(value: object, most: int = 80) -> str:
    """A value from a file for a sentence: on one line, and not longer than a line."""
    text = repr(value[: most + 1]) if isinstance(value, str | list) else repr(value)
    return text if len(text) <= most else f"{text[: most - 3]}..."


def one_line(text: object) -> str:
    """Somebody else's words inside a sentence: names in a file may hold line breaks."""
    return " ".join(str(text).split())


# --- numbers ----------------------------------------------------------------------------------------------------------
def checked_seed(seed: object) -> int:
    """The seed as a plain number."""
    try:
        number = operator.index(seed)  # type: ignore[arg-type]
    except TypeError:
        number = -1
    if not 0 <= number <= LARGEST_SEED:
        raise Error(f"The seed is a whole number from 0 to {LARGEST_SEED}, not {shown(seed)}.", code="seed-invalid")
    return number


def require_room(what: str, shape: Sequence[int]) -> None:
    """Refuse storage of a size that cannot be meant, before it is asked for."""
    size = 4 * math.prod(shape)
    if size > MOST_BYTES:
        raise Error(
            f"{what} of {' x '.join(f'{length:,}' for length in shape)} numbers would take {size / 2**30:,.1f} GiB, "
            f"and at most {MOST_BYTES // 2**30} GiB are given: choose smaller options.",
            code="memory-limit",
        )


# --- stored tensors ---------------------------------------------------------------------------------------------------
def split(tensors: Tensors, *groups: str) -> list[dict[str, torch.Tensor]]:
    """The tensors of each group by their names without it; the opposite of `named`. One of no group is refused."""
    found: dict[str, dict[str, torch.Tensor]] = {group: {} for group in groups}
    for name, tensor in tensors.items():
        group, _, rest = name.partition("/")
        if group not in found or not rest:
            raise Error(f"The stored tensor {shown(name)} is not part of this state.", code="state-mismatch")
        found[group][rest] = tensor
    return list(found.values())


def require_names(tensors: Tensors, names: Collection[str]) -> None:
    """Refuse tensors that are not exactly those called `names`."""
    for name in names:
        if name not in tensors:
            raise Error(f"The state is incomplete: the tensor {shown(name)} is not in it.", code="state-mismatch")
    for name in tensors:
        if name not in names:
            raise Error(f"The stored tensor {shown(name)} is not part of this state.", code="state-mismatch")


def require_kind(tensors: Tensors, name: str, dtype: torch.dtype, shape: Sequence[int]) -> torch.Tensor:
    """The tensor called `name`, which must be there and have that type and shape."""
    if name not in tensors:
        raise Error(f"The state is incomplete: the tensor {shown(name)} is not in it.", code="state-mismatch")
    tensor = tensors[name]
    if tensor.dtype != dtype or tensor.shape != torch.Size(shape):
        raise Error(
            f"The stored tensor {shown(name)} is {_kind(tensor.dtype, tensor.shape)}; "
            f"this state needs {_kind(dtype, shape)}.",
            code="state-mismatch",
        )
    return tensor


def stored(
    tensors: Tensors,
    name: str,
    dtype: torch.dtype,
    shape: Sequence[int],
    low: float = -math.inf,
    high: float = math.inf,
) -> torch.Tensor:
    """`require_kind`, with finite values from `low` to `high`."""
    tensor = require_kind(tensors, name, dtype, shape)
    if not bool((torch.isfinite(tensor) & (tensor >= low) & (tensor <= high)).all()):
        limits = f" and from {low} to {high}" if high < math.inf else f" and at least {low}" if low > -math.inf else ""
        raise Error(
            f"The stored tensor {shown(name)} is damaged: its values must be finite{limits}.", code="state-damaged"
        )
    return tensor


def stored_count(tensors: Tensors, name: str, most: int = MOST_STEPS) -> int:
    """The whole number from 0 to `most` that is stored as `name`."""
    return int(stored(tensors, name, torch.int64, (), 0, most))


def require_unit(features: torch.Tensor, filled: torch.Tensor, what: str) -> None:
    """Refuse features that are not of length one where `filled`, or not zero elsewhere."""
    lengths = torch.linalg.vector_norm(features, dim=-1)
    good = torch.where(filled, (lengths - 1).abs() <= UNIT_TOLERANCE, lengths == 0)
    if not bool(good.all()):
        raise Error(
            f"The stored {what} is damaged: its features must have length one, and its empty places must hold zeros.",
            code="state-damaged",
        )


def _kind(dtype: torch.dtype, shape: Sequence[int]) -> str:
    return f"{str(dtype).removeprefix('torch.')} of shape {list(shape)}"
