"""How a stream is put together."""

from __future__ import annotations

from .changing import Continual, Frequent
from .drawn import Drawn, draw
from .ordered import Ordered
from .prefetch import prefetched
from .single import SingleDomain
from .smooth import Smooth
from .stream import Domain, Sample, Source, Stream

__all__ = [
    "Continual",
    "Domain",
    "Drawn",
    "Frequent",
    "Ordered",
    "Sample",
    "SingleDomain",
    "Smooth",
    "Source",
    "Stream",
    "draw",
    "prefetched",
]
