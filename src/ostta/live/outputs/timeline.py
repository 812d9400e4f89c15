"""Scores, threshold and accepted share over a stream, as SVG that follows the colours of its page."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..digest import Digest, Part

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 920, 78, 10, 14, 32
INNER = WIDTH - LEFT - RIGHT
# Images that a share is of, at least, and how many shares there are at most.
ENOUGH, BARS = 25, 60


def scores(digest: Digest, title: str) -> str:
    """A dot for an image, at most some hundreds of them, and the threshold as a line."""
    height = 260
    thresholds = [part.threshold for part in digest.parts]
    low, high = limits([dot.score for dot in digest.dots], [value for value in thresholds if value is not None])

    def y(value: float) -> float:
        share = (min(max(value, low), high) - low) / (high - low)
        return TOP + (1 - share) * (height - TOP - BOTTOM)

    dots = "".join(
        f'<circle class="{"known" if dot.known else "unknown"}" cx="{_x(dot.place, digest.seen):.1f}" cy="{y(dot.score):.1f}" r="2.4"/>'
        for dot in digest.dots
    )
    lines = "".join(
        f'<polyline class="threshold" points="{" ".join(f"{x:.1f},{y(value):.1f}" for x, value in run)}"/>'
        for run in _runs(digest, thresholds)
    )
    ticks = _ticks(low, high)
    digits = max(0, 1 - math.floor(math.log10(high - low)))
    axis = "".join(_grid(y(value), f"{value:.{digits}f}") for value in ticks)
    events = "".join(
        f'<line class="event" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{height - BOTTOM}"/>'
        for x in (_x(happened.place, digest.seen) for happened in digest.events)
    )
    return _svg(height, title, axis + events + dots + lines + _numbers(digest.seen, height))


def accepted(digest: Digest, title: str) -> str:
    """The share of images that got a class, part by part."""
    height = 150

    def y(share: float) -> float:
        return TOP + (1 - share) * (height - TOP - BOTTOM)

    points, place = [], 0
    for part in _coarser(digest.parts):
        share = y(part.accepted / part.images)
        points += [(_x(place, digest.seen), share), (_x(place + part.images, digest.seen), share)]
        place += part.images
    base = y(0)
    area = " ".join(
        f"{x:.1f},{value:.1f}" for x, value in [(LEFT, base), *points, (points[-1][0] if points else LEFT, base)]
    )
    axis = "".join(_grid(y(share), f"{share:.0%}") for share in (0, 0.5, 1))
    return _svg(height, title, f'{axis}<polygon class="share" points="{area}"/>{_numbers(digest.seen, height)}')


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


def _runs(digest: Digest, thresholds: Sequence[float | None]) -> list[list[tuple[float, float]]]:
    """Pieces of the threshold's line; it has gaps where there was none."""
    runs: list[list[tuple[float, float]]] = [[]]
    place = 0
    for part, value in zip(digest.parts, thresholds, strict=True):
        if value is None:
            runs.append([])
        else:
            runs[-1] += [(_x(place, digest.seen), value), (_x(place + part.images, digest.seen), value)]
        place += part.images
    return [run for run in runs if run]


def _x(place: float, total: int) -> float:
    return LEFT + INNER * place / max(1, total)


def _ticks(low: float, high: float) -> list[float]:
    step = 10 ** math.floor(math.log10(high - low))
    step = next(step * part for part in (0.2, 0.5, 1, 2, 5) if (high - low) / (step * part) <= 6)
    return [step * number for number in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _grid(y: float, text: str) -> str:
    return (
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text x="{LEFT - 6}" y="{y:.1f}" dy=".35em" text-anchor="end">{text}</text>'
    )


def _numbers(total: int, height: int) -> str:
    marks = sorted({0, total // 2, total})
    anchors = {0: "start", total: "end"}
    return "".join(
        f'<text x="{_x(mark, total):.1f}" y="{height - 7}" text-anchor="{anchors.get(mark, "middle")}">'
        f"{mark:,}{' images' if mark == total else ''}</text>"
        for mark in marks
    )


def _svg(height: int, title: str, content: str) -> str:
    return f'<svg role="img" aria-label="{title}" viewBox="0 0 {WIDTH} {height}">{content}</svg>'


def histogram(recent: Sequence[tuple[float, bool]], bins: int) -> tuple[list[int], float, float]:
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
