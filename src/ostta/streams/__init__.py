"""Streams: the order of known and unknown images in each scenario."""

from __future__ import annotations

from .arranged import Arranged
from .changing import Continual, Frequent
from .hostile import Covered, Fooling, OneClassFirst, SortedClasses, UnknownFirst, fooling_identity
from .mixing import Drawn, Ordered, Shuffled, SingleDomain, draw
from .smooth import Smooth
from .stream import Domain, Sample, Source, Stream, prefetched

__all__ = [
    "Arranged",
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
