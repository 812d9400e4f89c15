"""The single-domain scenario: desired and undesired images in one seeded permutation."""

from __future__ import annotations

import hashlib
import json

import numpy as np

from .mixing import check_desired, generator, wanted_and_there
from .stream import Source, Stream, Visit, update_with_drawn


class SingleDomain(Stream):
    """All of `desired` and `ratio` times as many of `undesired`, from its start, as far as they reach."""

    def __init__(self, desired: Source, undesired: Source | None, *, ratio: float = 1.0, seed: int = 0) -> None:
        check_desired(desired)
        wanted, there = wanted_and_there(len(desired), undesired, ratio)
        taken = min(wanted, there)
        self.ratio, self.seed = ratio, seed
        self._numbers = generator(seed).permutation(len(desired) + taken)
        order = np.where(self._numbers < len(desired), self._numbers, ~(self._numbers - len(desired)))
        visit = Visit(0, desired, undesired, order)
        super().__init__((desired.name,), (visit,), {}, short_of=wanted - taken)

    @property
    def hash(self) -> str:
        """SHA-256 over names, sizes and order; not over pixels. In a form of its own, that of recorded runs."""
        visit = self.visits[0]
        names = [visit.desired.name, visit.undesired.name if visit.undesired else None]
        parts = [names, self.desired_count, self.undesired_count, self.ratio, self.seed]
        digest = hashlib.sha256(json.dumps(parts).encode())
        digest.update(self._numbers.astype("<i8").tobytes())
        update_with_drawn(digest, visit)
        return digest.hexdigest()
