"""How a stream is put together."""

from __future__ import annotations

from .changing import Continual, Frequent
from .drawn import Drawn, draw
from .hostile import Covered, Fooling, OneClassFirst, SortedClasses, UnknownFirst, fooling_identity
from .ordered import Ordered
from .prefetch import prefetched
from .shuffled import Shuffled
from .single import SingleDomain
from .smooth import Smooth
from .stream import Domain, Sample, Source, Stream

__all__ = [
    "Continual",
    "Covered",
    "Domain",
    "Drawn",
    "Fooling",
    "Frequent",
    "OneClassFirst",
    "Ordered",
    "Sample",
    "Shuffled",
    "SingleDomain",
    "Smooth",
    "SortedClasses",
    "Source",
    "Stream",
    "UnknownFirst",
    "draw",
    "fooling_identity",
    "prefetched",
]
