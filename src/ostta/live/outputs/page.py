"""`report.html`: one page about a stream, with all it shows inside it. Bounded, however long the stream was."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from ...core.words import counted, first_few
from ...pages import (
    Bars,
    Command,
    Events,
    Figures,
    Folded,
    Key,
    Page,
    Part,
    Picture,
    Section,
    Shot,
    Strip,
    Text,
    html_page,
)
from ..digest import Digest
from ..journal import Example
from ..memory import Memory
from ..summary import ARBITRARY_SPLIT, is_split_arbitrary
from . import timeline
from .pictures import REJECTED, WARMING_UP, ExamplePictures

# Classes in the table and with pictures; the rest is summed up.
MOST_ROWS, MOST_STRIPS = 40, 24
# Classes that are named in a sentence.
MOST_NAMED = 12


def page(digest: Digest, examples: ExamplePictures, about: Mapping[str, Any], memory: Memory) -> str:
    """The page of a stream; `about` is what was run, `memory` what the adapter remembers."""
    settings = Command(json.dumps(dict(about), indent=2, ensure_ascii=False))
    return html_page(
        Page(
            str(about.get("title", "Stream")),
            "ostta: a stream of images",
            [_lead(digest), *_model(about)],
            (
                Section("In figures", [_figures(digest, memory)]),
                Section("Scores over time", list(_scores(digest))),
                Section("Accepted over time", list(_accepted(digest))),
                Section("Events", list(_events(digest))),
                Section("Answers", list(_answers(digest))),
                Section("Examples", list(_pictures(digest, examples))),
                Section("What was run", [Folded("Settings", [settings])]),
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
        f" {digest.warming_up:,} {'is' if digest.warming_up == 1 else 'are'} undecided: the threshold was still warming up."
        if digest.warming_up
        else ""
    )
    return (
        f"{digest.accepted:,} of {digest.seen:,} {'image' if digest.seen == 1 else 'images'} "
        f"{'was' if digest.accepted == 1 else 'were'} classified as one of the classes, and {digest.rejected:,} {'was' if digest.rejected == 1 else 'were'} rejected: “I don't know”.{undecided}{often}"
    )


def _model(about: Mapping[str, Any]) -> Iterator[str]:
    """The model, its classes, and how it decides and adapts."""
    if "backbone" in about:
        yield (
            f"Model: {about['backbone']['id']}, with {first_few(about['classes'], 'class', 'classes', MOST_NAMED)}. "
            f"Method {about['method']}, score {about['score']}, identifier {about['identifier']} (profile {about['profile']})."
        )


def _warnings(digest: Digest, about: Mapping[str, Any]) -> Iterator[str]:
    if about.get("unfamiliar"):
        yield (
            f"The {about['backbone']['id']} model was not trained on "
            f"{first_few(about['unfamiliar'], 'of the classes', 'of the classes', MOST_NAMED)}. Its answers for these classes are unreliable."
        )
    if is_split_arbitrary(digest):
        yield ARBITRARY_SPLIT


def _figures(digest: Digest, memory: Memory) -> Figures:
    share = digest.accepted_share
    figures = [
        ("images", f"{digest.images:,}"),
        ("accepted", "–" if share is None else f"{share:.1%}"),
        ("I don't know", f"{digest.rejected:,}"),
        ("undecided", f"{digest.warming_up:,}"),
        ("images remembered", f"{memory.images:,}"),
        ("scores remembered", f"{memory.scores:,}"),
        ("updates", f"{digest.adapted:,}"),
        ("not readable", f"{digest.unreadable:,}"),
        ("events", f"{sum(digest.kinds.values()):,}"),
    ]
    if digest.unseen:
        figures.append(("nothing seen", f"{digest.unseen:,}"))
    return Figures(figures)


def _scores(digest: Digest) -> Iterator[Part]:
    if not digest.seen:
        return
    words = [("known", "a class"), ("unknown", "I don't know"), ("rule dashed", "threshold, where there is one")]
    if digest.warming_up:
        words.insert(2, ("undecided", "undecided (warming up)"))
    yield Key([*words, ("rule bad", "events")] if digest.events else words)
    about = f"Scores of {counted(digest.seen, 'image')} in the order they came, with the threshold; the last threshold is {digest.threshold}."
    every = "" if digest.dot_every == 1 else f"One image in {digest.dot_every:,} is shown."
    yield Picture(timeline.scores(digest, about), "Score of each image", every, wide=True)


def _accepted(digest: Digest) -> Iterator[Part]:
    if not digest.decided:
        return
    about = f"Share of accepted images among the decided ones over the stream; {digest.accepted_share or 0.0:.0%} over all of it."
    meaning = "A sudden change means that the camera sees something else, or that something is wrong."
    yield Picture(timeline.accepted(digest, about), "The share of decided images that got a class", meaning, wide=True)


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
        rows.append(("I don't know", digest.rejected, 100 * digest.rejected / digest.decided, True))
        yield Bars("How often each answer came", rows)
    if digest.warming_up:
        yield Text(
            "Undecided images are not counted here. `predictions.csv` has their provisional answers, in the rows where `warming_up` is true.",
            "note",
        )


def _pictures(digest: Digest, examples: ExamplePictures) -> Iterator[Part]:
    named = [name for name, _ in digest.classes.most_common() if examples.of(name)]
    shown: list[tuple[str, list[Example]]] = [(name, examples.of(name)) for name in named[:MOST_STRIPS]]
    rest = [("I don't know", examples.of(REJECTED)), ("Undecided (warming up)", examples.of(WARMING_UP))]
    for answer, found in [*shown, *rest]:
        if found:
            yield Strip(answer, [Shot(example.picture, example.title) for example in found])
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
