"""Scores, threshold and accepted share over a stream, as charts of its page."""

from __future__ import annotations

from collections.abc import Sequence

from ...pages import Axis, Chart
from ..digest import Digest, Part

# Images that a share is of, at least, and how many shares there are at most.
ENOUGH, BARS = 25, 60


def scores(digest: Digest, about: str) -> str:
    """A dot for an image, at most some hundreds of them, and the threshold as a line."""
    thresholds = [part.threshold for part in digest.parts]
    low, high = limits([dot.score for dot in digest.dots], [value for value in thresholds if value is not None])
    chart = Chart(_images(digest), Axis(low, high), height=240)
    for happened in digest.events:
        chart.upright(happened.place, "event")
    for known, style in ((None, "undecided"), (True, "known"), (False, "unknown")):
        chart.dots([(dot.place, dot.score) for dot in digest.dots if dot.known is known], style)
    line, place = [], 0
    for part, value in zip(digest.parts, thresholds, strict=True):
        # There is a gap in the line where there was no threshold.
        height = float("nan") if value is None else value
        line += [(place, height), (place + part.images, height)]
        place += part.images
    chart.line(line, "threshold")
    return chart.svg(about)


def accepted(digest: Digest, about: str) -> str:
    """The share of decided images that were accepted, part by part; a gap where no image was decided."""
    chart = Chart(_images(digest), Axis(0, 1, marks=[(0, "0%"), (0.5, "50%"), (1, "100%")]), height=110)
    edges, shares = [0], list[float]()
    for part in _coarser(digest.parts):
        if part.decided:
            shares.append(part.accepted / part.decided)
            edges.append(edges[-1] + part.images)
        elif shares:
            chart.bars(edges, shares, "known")
            edges, shares = [edges[-1] + part.images], []
        else:
            edges = [edges[-1] + part.images]
    if shares:
        chart.bars(edges, shares, "known")
    return chart.svg(about)


def _images(digest: Digest) -> Axis:
    marks = [(number, f"{number:,}") for number in sorted({0, digest.seen // 2, digest.seen})]
    return Axis(0, max(1, digest.seen), "images seen", marks)


def _coarser(parts: Sequence[Part]) -> list[Part]:
    """Fewer parts of more images: the share in a handful of images is mostly chance."""
    found: list[Part] = []
    least = max(ENOUGH, sum(part.images for part in parts) // BARS)
    for part in parts:
        if found and found[-1].images < least:
            found[-1] = found[-1].joined(part)
        else:
            found.append(part)
    if len(found) > 1 and found[-1].images < least:
        last = found.pop()
        found[-1] = found[-1].joined(last)
    return found


def limits(values: Sequence[float], lines: Sequence[float]) -> tuple[float, float]:
    """An axis that a few strange values do not stretch.

    >>> limits([0.2, 0.4], [0.3])
    (0.19, 0.41)
    """
    ordered = sorted(values) or [0.0]
    cut = len(ordered) // 100
    low, high = min([ordered[cut], *lines]), max([ordered[-1 - cut], *lines])
    room = 0.05 * (high - low) or 0.5
    return round(low - room, 6), round(high + room, 6)


def histogram(recent: Sequence[tuple[float, bool | None]], bins: int) -> tuple[list[int], float, float]:
    """How many of the last scores fall into each of so many equal parts, and where the first begins and the last ends.

    >>> histogram([(0.1, False), (0.2, False), (0.9, True)], 4)
    ([2, 0, 0, 1], 0.06, 0.94)
    """
    values = [score for score, _ in recent]
    low, high = limits(values, [])
    counts = [0] * bins
    for value in values:
        share = (min(max(value, low), high) - low) / (high - low)
        counts[min(bins - 1, int(share * bins))] += 1
    return counts, low, high
