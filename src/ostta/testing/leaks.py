"""What a stream leaves behind, counted exactly: references, bytes of arrays and tensors, nodes of gradient graphs.

The memory of the whole process is no such measure: an allocator keeps or returns pages as it likes, by megabytes. These counts stand
still where nothing is kept, and grow by at least one a step where something is.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Set
from itertools import compress, pairwise
from operator import not_
from types import BuiltinFunctionType, CellType, FunctionType
from typing import Any, NamedTuple

import numpy as np
import torch

# Objects that never hold more than at first; most objects of a process are such, and looking into them takes long.
FIXED = frozenset({tuple, frozenset, FunctionType, BuiltinFunctionType, CellType, property})
UNTRACKED = frozenset({dict, np.ndarray})


class Held(NamedTuple):
    """How much is alive, or by how much that grew.

    `references` are those from every container and object to whatever it holds: a list of numbers grows by one a number.
    """

    references: int
    data_bytes: int
    graph_nodes: int

    @classmethod
    def now(cls) -> Held:
        gc.collect()
        objects = gc.get_objects()
        # A process has a million references and more: what looks at all of them runs inside the interpreter, without a loop here.
        holders = list(compress(objects, map(not_, map(FIXED.__contains__, map(type, objects)))))
        held = gc.get_referents(*holders)
        # The collector does not track arrays, nor a dictionary of plain values: they are found where they are held.
        found = _of(UNTRACKED, held)
        inner = {id(each): len(each) for each in found if type(each) is dict and not gc.is_tracked(each)}
        data = {id(each): each.nbytes for each in found if type(each) is np.ndarray}
        tensors = _of({kind for kind in set(map(type, holders)) if issubclass(kind, torch.Tensor)}, holders)
        # Views share a storage, which counts once.
        data |= {each.untyped_storage()._cdata: each.untyped_storage().nbytes() for each in tensors}
        return cls(len(held) + sum(inner.values()), sum(data.values()), _graph_nodes(tensors))

    def since(self, before: Held) -> Held:
        return Held(*(new - old for new, old in zip(self, before, strict=True)))

    def leaks(self, steps: int) -> bool:
        """Whether so much growth means that every step, or every other one, kept something; give 24 steps or more.

        Counting itself leaves up to ten references behind, more or fewer by chance.
        """
        return max(self) > steps // 2


def leak(step: Callable[[], object], *, warm: int, steps: int) -> Held | None:
    """The growth by `steps` steps if every step or every other one kept something; None where nothing was kept.

    What is now there and now not, such as the values from before a step, can grow once by chance, but not twice in turn.
    """
    found = growth(step, warm=warm, steps=steps)
    if found.leaks(steps):
        found = growth(step, warm=0, steps=steps)
    return found if found.leaks(steps) else None


def growth(step: Callable[[], object], *, warm: int, steps: int) -> Held:
    """By how much `steps` steps grow what is held, after `warm` steps that fill caches and banks."""

    for _ in range(warm):
        step()
    # Counting keeps a few things too, the first time more than later, and now and then more by chance: the middle of three.
    Held.now()
    counts = [Held.now() for _ in range(4)]
    idle = Held(*(sorted(three)[1] for three in zip(*(b.since(a) for a, b in pairwise(counts)), strict=True)))
    for _ in range(steps):
        step()
    return Held.now().since(counts[-1]).since(idle)


def _of(kinds: Set[type], objects: list[Any]) -> list[Any]:
    return list(compress(objects, map(kinds.__contains__, map(type, objects))))


def _graph_nodes(tensors: list[torch.Tensor]) -> int:
    """The nodes behind all tensors that carry a graph: autograd keeps them, and what they saved, out of Python's sight."""
    seen = set()
    waiting: list[Any] = [each.grad_fn for each in tensors if each.grad_fn is not None]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            waiting.extend(following for following, _ in node.next_functions)
    return len(seen)
