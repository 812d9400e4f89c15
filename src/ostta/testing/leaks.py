"""Exact measurement of memory leaks: references, bytes of arrays and tensors, and nodes of gradient graphs.

The memory of the process is too coarse, because allocators keep or return pages in steps of megabytes. These counts are
constant if nothing is kept, and grow by at least one per step otherwise.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Set
from functools import partial
from itertools import compress, pairwise
from operator import not_
from types import BuiltinFunctionType, CellType, FunctionType
from typing import Any, NamedTuple

import numpy as np
import torch

# Types of objects that never grow. Most objects of a process have these types, and inspecting them is slow.
FIXED = frozenset({tuple, frozenset, FunctionType, BuiltinFunctionType, CellType, property})
UNTRACKED = frozenset({dict, np.ndarray})
# Measurements that must all show growth before it is called a leak.
ROUNDS = 5


class Held(NamedTuple):
    """Amount of live data, or its growth.

    `references` counts the references from all containers and objects: a list of numbers adds one per number.
    """

    references: int
    data_bytes: int
    graph_nodes: int

    @classmethod
    def now(cls) -> Held:
        gc.collect()
        objects = gc.get_objects()
        # A process has more than a million references, so they are filtered by C functions instead of a Python loop.
        holders = list(compress(objects, map(not_, map(FIXED.__contains__, map(type, objects)))))
        held = gc.get_referents(*holders)
        # The collector does not track arrays or dictionaries of plain values, so they are counted where referenced.
        untracked = _of(UNTRACKED, held)
        inner = {id(each): len(each) for each in untracked if type(each) is dict and not gc.is_tracked(each)}
        data = {id(each): each.nbytes for each in untracked if type(each) is np.ndarray}
        tensors = _of({kind for kind in set(map(type, holders)) if issubclass(kind, torch.Tensor)}, holders)
        # Views share a storage, which is counted once.
        data |= {each.untyped_storage()._cdata: each.untyped_storage().nbytes() for each in tensors}
        return cls(len(held) + sum(inner.values()), sum(data.values()), _graph_nodes(tensors))

    def since(self, before: Held) -> Held:
        return Held(*(new - old for new, old in zip(self, before, strict=True)))

    def leaks(self, steps: int) -> bool:
        """Return whether the growth means that at least every other step kept something; requires 24 steps or more.

        The measurement itself adds up to ten references, depending on chance.
        """
        return max(self) > steps // 2


def leak(step: Callable[[], object], *, warm: int, steps: int) -> Held | None:
    """Return the growth over `steps` steps if at least every other step kept something; otherwise None.

    The counts cover the whole process. Buffers that fill up between two updates cause growth too, but not every time,
    so only growth in all of `ROUNDS` measurements is a leak. The growth caused by other threads is measured while this
    thread sleeps for as long as the steps took, and is subtracted.
    """
    for _ in range(warm):
        step()
    for _ in range(ROUNDS):
        started = time.monotonic()
        grown = growth(step, warm=0, steps=steps)
        if grown.leaks(steps):
            wait = partial(time.sleep, time.monotonic() - started)
            grown = grown.since(growth(wait, warm=0, steps=1))
        if not grown.leaks(steps):
            return None
    return grown


def growth(step: Callable[[], object], *, warm: int, steps: int) -> Held:
    """Return the growth over `steps` steps, after `warm` steps that fill caches and banks."""
    for _ in range(warm):
        step()
    # The measurement itself keeps some objects, more at the first call and sometimes more by chance. The median of
    # three measurements is subtracted.
    Held.now()
    counts = [Held.now() for _ in range(4)]
    idle = Held(*(sorted(three)[1] for three in zip(*(b.since(a) for a, b in pairwise(counts)), strict=True)))
    for _ in range(steps):
        step()
    return Held.now().since(counts[-1]).since(idle)


def _of(kinds: Set[type], objects: list[Any]) -> list[Any]:
    return list(compress(objects, map(kinds.__contains__, map(type, objects))))


def _graph_nodes(tensors: list[torch.Tensor]) -> int:
    """Return the number of graph nodes of all tensors, which Python's collector does not track."""
    seen = set()
    waiting: list[Any] = [each.grad_fn for each in tensors if each.grad_fn is not None]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            waiting.extend(following for following, _ in node.next_functions)
    return len(seen)
