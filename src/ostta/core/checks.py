"""Checks of data from outside: numbers, and the tensors of a state file."""

from __future__ import annotations

import math
import operator
from collections.abc import Collection, Mapping, Sequence

import torch

from .types import Error

Tensors = Mapping[str, torch.Tensor]

# Largest step count. JSON readers represent all integers up to this number exactly.
MOST_STEPS = 2**53
# Largest count in a state file that is read. A count grows after that, and has to stay below `MOST_STEPS`.
LARGEST_COUNT = 2**52
LARGEST_SEED = 2**63 - 1
# Memory limit of one bank or cache of a stream.
MOST_BYTES = 4 * 2**30
# Largest deviation of the length of a unit feature from 1, which rounding to half precision may cause.
UNIT_TOLERANCE = 0.01


def shown(value: object, most: int = 80) -> str:
    """Return `value` for a message, on one line of at most `most` characters."""
    text = repr(value[: most + 1]) if isinstance(value, str | list) else repr(value)
    return text if len(text) <= most else f"{text[: most - 3]}..."


def one_line(text: object) -> str:
    """Return `text` with line breaks and repeated spaces replaced by single spaces."""
    return " ".join(str(text).split())


# --- numbers ----------------------------------------------------------------------------------------------------------
def checked_seed(seed: object) -> int:
    """Return the seed as an `int`; raise an Error if it is not a valid seed."""
    try:
        number = operator.index(seed)  # type: ignore[arg-type]
    except TypeError:
        number = -1
    if not 0 <= number <= LARGEST_SEED:
        raise Error(f"The seed is a whole number from 0 to {LARGEST_SEED}, not {shown(seed)}.", code="seed-invalid")
    return number


def require_room(what: str, shape: Sequence[int], bytes_each: int = 4) -> None:
    """Raise an Error if a tensor would exceed the memory limit. `bytes_each` is the size of one number in bytes."""
    size = bytes_each * math.prod(shape)
    if size > MOST_BYTES:
        raise Error(
            f"{what} of {' x '.join(f'{length:,}' for length in shape)} numbers would take {size / 2**30:,.1f} GiB, "
            f"and at most {MOST_BYTES // 2**30} GiB are given: choose smaller options.",
            code="memory-limit",
        )


# --- stored tensors ---------------------------------------------------------------------------------------------------
def split(tensors: Tensors, *groups: str) -> list[dict[str, torch.Tensor]]:
    """Return the tensors of each group, without the group in their names; the inverse of `banks.named`.

    Raise an Error if a tensor belongs to no group.
    """
    by_group: dict[str, dict[str, torch.Tensor]] = {group: {} for group in groups}
    for name, tensor in tensors.items():
        group, _, rest = name.partition("/")
        if group not in by_group or not rest:
            raise _unexpected(name)
        by_group[group][rest] = tensor
    return list(by_group.values())


def require_names(tensors: Tensors, names: Collection[str]) -> None:
    """Raise an Error unless the names of the tensors are exactly `names`."""
    for name in names:
        _require_stored(tensors, name)
    for name in tensors:
        if name not in names:
            raise _unexpected(name)


def require_kind(tensors: Tensors, name: str, dtype: torch.dtype, shape: Sequence[int]) -> torch.Tensor:
    """Return the tensor `name`; raise an Error unless it exists with this type and shape."""
    tensor = _require_stored(tensors, name)
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
    """Return the tensor of `require_kind`; raise an Error unless its values are finite and from `low` to `high`."""
    tensor = require_kind(tensors, name, dtype, shape)
    limits = f" and from {low} to {high}" if high < math.inf else f" and at least {low}" if low > -math.inf else ""
    in_range = torch.isfinite(tensor) & (tensor >= low) & (tensor <= high)
    require_intact(in_range.all(), f"tensor {shown(name)}", f"its values must be finite{limits}")
    return tensor


def stored_count(tensors: Tensors, name: str, most: int = MOST_STEPS) -> int:
    """Return the stored whole number `name`; raise an Error unless it is from 0 to `most`."""
    return int(stored(tensors, name, torch.int64, (), 0, most))


def stored_length(tensors: Tensors, name: str, most: int) -> int:
    """Return the number of rows of the tensor `name`, at most `most`: the length that `stored` then requires."""
    return min(len(tensors[name]), most) if name in tensors and tensors[name].ndim else 0


def require_unit(features: torch.Tensor, what: str, filled: torch.Tensor | None = None) -> None:
    """Raise an Error unless features have unit length where `filled`, by default everywhere, and are zero elsewhere."""
    lengths = torch.linalg.vector_norm(features, dim=-1)
    valid = (lengths - 1).abs() <= UNIT_TOLERANCE
    valid = valid if filled is None else torch.where(filled, valid, lengths == 0)
    reason = "its features must have length one, and its empty places must hold zeros"
    require_intact(valid.all(), what, reason)


def require_intact(intact: bool | torch.Tensor, what: str, reason: str) -> None:
    """Raise an Error about a damaged part of a state unless the condition `intact` holds."""
    if not intact:
        raise Error(f"The stored {what} is damaged: {reason}.", code="state-damaged")


def _require_stored(tensors: Tensors, name: str) -> torch.Tensor:
    if name not in tensors:
        raise Error(f"The state is incomplete: the tensor {shown(name)} is not in it.", code="state-mismatch")
    return tensors[name]


def _unexpected(name: str) -> Error:
    return Error(f"The stored tensor {shown(name)} is not part of this state.", code="state-mismatch")


def _kind(dtype: torch.dtype, shape: Sequence[int]) -> str:
    return f"{str(dtype).removeprefix('torch.')} of shape {list(shape)}"
