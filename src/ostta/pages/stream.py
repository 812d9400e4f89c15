"""The page of a stream, `report.html`. Its size does not grow with the stream."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..core.text import counted, first_few
from ..live.digest import Digest
from ..live.digest import Part as DigestPart
from ..live.journal import Example
from ..live.memory import Memory
from ..live.outputs.pictures import REJECTED, UNDECIDED_EXAMPLES, ExamplePictures
from ..live.summary import warning
from .parts import (
    Axis,
    Bars,
    Chart,
    Command,
    Events,
    Figures,
    Folded,
    Legend,
    Page,
    Part,
    Picture,
    Section,
    Strip,
    Text,
    Thumbnail,
    html_page,
    image_axis,
)

# Fewest images of a share, and most shares.
ENOUGH, BARS = 25, 60


def scores(digest: Digest, about: str) -> str:
    """Draw some hundreds of images as dots, and the threshold as a line."""
    thresholds = [part.threshold for part in digest.parts]
    if digest.has_probabilities:
        vertical = Axis(0, 1, marks=[(0, "0"), (0.5, "0.5"), (1, "1")])
    else:
        lines = [value for value in thresholds if value is not None]
        vertical = Axis(*limits([dot.value for dot in digest.dots], lines))
    chart = Chart(image_axis(digest.seen), vertical, height=240)
    for happened in digest.events:
        chart.upright(happened.place, "event")
    for known, style in ((None, "undecided"), (True, "known"), (False, "unknown")):
        chart.dots([(dot.place, dot.value) for dot in digest.dots if dot.known is known], style)
    line, place = [], 0
    for part, value in zip(digest.parts, thresholds, strict=True):
        # NaN is a gap in the line.
        height = float("nan") if value is None else value
        line += [(place, height), (place + part.images, height)]
        place += part.images
    chart.line(line, "threshold")
    return chart.svg(about)


def accepted(digest: Digest, about: str) -> str:
    """Draw the share of accepted images among the decided ones, with a gap if no image was decided."""
    chart = Chart(image_axis(digest.seen), Axis(0, 1, marks=[(0, "0%"), (0.5, "50%"), (1, "100%")]), height=110)
    start = 0
    for decided, group in itertools.groupby(_coarser(digest.parts), key=lambda part: part.decided > 0):
        parts = list(group)
        edges = list(itertools.accumulate((part.images for part in parts), initial=start))
        if decided:
            chart.bars(edges, [part.accepted / part.decided for part in parts], "known")
        start = edges[-1]
    return chart.svg(about)


def _coarser(parts: Sequence[DigestPart]) -> list[DigestPart]:
    """Join parts of the stream, because the share in a few images is mostly chance."""
    found: list[DigestPart] = []
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
    """Return the ends of an axis that a few outliers do not stretch.

    >>> limits([0.2, 0.4], [0.3])
    (0.19, 0.41)
    """
    ordered = sorted(values) or [0.0]
    cut = len(ordered) // 100
    low, high = min([ordered[cut], *lines]), max([ordered[-1 - cut], *lines])
    room = 0.05 * (high - low) or 0.5
    return round(low - room, 6), round(high + room, 6)


def histogram(
    recent: Sequence[tuple[float, bool | None]], bins: int, ends: tuple[float, float] | None = None
) -> tuple[list[int], float, float]:
    """Return the counts of recent values in equal bins, and the two ends of the axis.

    >>> histogram([(0.1, False), (0.2, False), (0.9, True)], 4)
    ([2, 0, 0, 1], 0.06, 0.94)
    """
    values = [score for score, _ in recent]
    low, high = limits(values, []) if ends is None else ends
    counts = [0] * bins
    for value in values:
        share = (min(max(value, low), high) - low) / (high - low)
        counts[min(bins - 1, int(share * bins))] += 1
    return counts, low, high


# Most classes in the table and with pictures.
MOST_ROWS, MOST_STRIPS = 40, 24


# Most classes in a sentence.
MOST_NAMED = 12


def stream_page(digest: Digest, examples: ExamplePictures, about: Mapping[str, Any], memory: Memory) -> str:
    """Return the page of a stream. `about`: its settings. `memory`: what the adapter remembers."""
    settings = Command(json.dumps(dict(about), indent=2, ensure_ascii=False))
    return html_page(
        Page(
            str(about.get("title", "Stream")),
            "ostta: a stream of images",
            [_lead(digest), *_model(about)],
            (
                Section("In figures", [_figures(digest, memory)]),
                Section(
                    "Probabilities over time" if digest.has_probabilities else "Scores over time",
                    list(_score_parts(digest)),
                ),
                Section("Accepted over time", list(_accepted_parts(digest))),
                Section("Events", list(_events(digest))),
                Section("Answers", list(_answers(digest))),
                Section("Examples", list(_pictures(digest, examples))),
                Section("Settings", [Folded("All settings", [settings])]),
            ),
            warnings=list(_warnings(digest, about)),
        )
    )


def _lead(digest: Digest) -> str:
    if not digest.seen:
        return "No image has been seen yet."
    named = digest.classes.most_common(1)
    often = f" The most frequent answer is “{named[0][0]}” ({counted(named[0][1], 'image')})." if named else ""
    undecided = (
        f" {digest.undecided:,} {_verb(digest.undecided)} undecided, because too few images had been seen before."
        if digest.undecided
        else ""
    )
    return (
        f"{digest.accepted:,} of {digest.seen:,} {'image' if digest.seen == 1 else 'images'} {_verb(digest.accepted)} "
        f"classified as one of the classes, and {digest.rejected:,} {_verb(digest.rejected)} classified as unknown."
        f"{undecided}{often}"
    )


def _verb(count: int) -> str:
    return "was" if count == 1 else "were"


def _model(about: Mapping[str, Any]) -> Iterator[str]:
    """Yield the model, its classes, and how it decides and adapts."""
    if "backbone" in about:
        yield (
            f"Model: {about['backbone']['id']}, with {first_few(about['classes'], 'class', 'classes', MOST_NAMED)}. "
            f"Method {about['method']}, score {about['score']}, identifier {about['identifier']} "
            f"(profile {about['profile']})."
        )


def _warnings(digest: Digest, about: Mapping[str, Any]) -> Iterator[str]:
    if about.get("unfamiliar"):
        yield (
            f"The {about['backbone']['id']} model was not trained on "
            f"{first_few(about['unfamiliar'], 'of the classes', 'of the classes', MOST_NAMED)}. "
            "Its answers for these classes are unreliable."
        )
    if (unsure := warning(digest)) is not None:
        yield unsure


def _figures(digest: Digest, memory: Memory) -> Figures:
    share = digest.accepted_share
    figures = [
        ("images", f"{digest.images:,}"),
        ("accepted", "–" if share is None else f"{share:.1%}"),
        ("unknown", f"{digest.rejected:,}"),
        ("undecided", f"{digest.undecided:,}"),
        ("images remembered", f"{memory.images:,}"),
        ("scores remembered", f"{memory.scores:,}"),
        ("updates", f"{digest.adapted:,}"),
        ("unreadable", f"{digest.unreadable:,}"),
        ("events", f"{sum(digest.kinds.values()):,}"),
    ]
    if digest.doubt is not None:
        figures.insert(4, ("expected errors", f"{digest.doubt:.1%}"))
    if digest.unseen:
        figures.append(("nothing seen", f"{digest.unseen:,}"))
    return Figures(figures)


def _score_parts(digest: Digest) -> Iterator[Part]:
    if not digest.seen:
        return
    line = "threshold, where there is one"
    if digest.has_probabilities:
        line = "smallest probability that is accepted" if digest.accept is not None else ""
    words = [("known", "a class"), ("unknown", "unknown"), *([("rule dashed", line)] if line else [])]
    if digest.undecided:
        words.insert(2, ("undecided", "undecided (warming up)"))
    yield Legend([*words, ("rule bad", "events")] if digest.events else words)
    every = "" if digest.dot_every == 1 else f"One image in {digest.dot_every:,} is shown."
    if digest.has_probabilities:
        lowest = "depends on the class" if digest.accept is None else f"is {digest.accept}"
        about = (
            f"Probability that an image is known, for {counted(digest.seen, 'image')} in the order of the stream; the "
            f"smallest probability that is accepted {lowest}."
        )
        title = "Probability that each image is known"
    else:
        about = (
            f"Scores of {counted(digest.seen, 'image')} in the order of the stream, with the threshold; the last "
            f"threshold is {digest.threshold}."
        )
        title = "Score of each image"
    yield Picture(scores(digest, about), title, every, wide=True)


def _accepted_parts(digest: Digest) -> Iterator[Part]:
    if not digest.decided:
        return
    share = f"{digest.accepted_share or 0.0:.0%}"
    about = f"Share of accepted images among the decided images over the stream; {share} in total."
    meaning = "A sudden change means that the images changed or that adaptation went wrong."
    yield Picture(accepted(digest, about), "Share of accepted images among decided images", meaning, wide=True)


def _answers(digest: Digest) -> Iterator[Part]:
    if not digest.seen:
        return
    counts = digest.classes.most_common(MOST_ROWS)
    left = len(digest.classes) - len(counts)
    if left > 0:
        counts.append(
            (counted(left, "more class", "more classes"), digest.accepted - sum(count for _, count in counts))
        )
    rows = [(name, count, 100 * count / digest.decided, False) for name, count in counts]
    if digest.decided:
        rows.append(("unknown", digest.rejected, 100 * digest.rejected / digest.decided, True))
        yield Bars("Number of images by answer", rows)
    if digest.undecided:
        column = "undecided" if digest.has_probabilities else "warming_up"
        yield Text(
            "Undecided images are not counted here. `predictions.csv` has their provisional answers in the rows in "
            f"which `{column}` is true.",
            "note",
        )


def _pictures(digest: Digest, examples: ExamplePictures) -> Iterator[Part]:
    named = [name for name, _ in digest.classes.most_common() if examples.of(name)]
    shown: list[tuple[str, list[Example]]] = [(name, examples.of(name)) for name in named[:MOST_STRIPS]]
    rest = [("Unknown", examples.of(REJECTED)), ("Undecided (warming up)", examples.of(UNDECIDED_EXAMPLES))]
    for answer, found in [*shown, *rest]:
        if found:
            yield Strip(answer, [Thumbnail(example.picture, example.title) for example in found])
    if len(named) > MOST_STRIPS:
        yield Text(f"Classes that are not shown: {len(named) - MOST_STRIPS:,}.", "note")


def _events(digest: Digest) -> Iterator[Part]:
    if not digest.events:
        return
    lines = []
    for number, _, event in reversed(digest.events):
        evidence = event.get("evidence") or {}
        numbers = ", ".join(f"{name} {_number(value)}" for name, value in evidence.items())
        kind = str(event.get("kind")).replace("_", " ")
        lines.append((f"{kind}, row {number:,}", str(event.get("sentence", "")), numbers))
    yield Events(lines)
    hidden = sum(digest.kinds.values()) - len(lines)
    if hidden > 0:
        yield Text(f"Earlier events that are not shown: {hidden:,}.", "note")


def _number(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, int | float) else str(value)
