"""A comparison as text and as a page with the images whose answers changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from ..bench.compare import Compared, ComparedPair, Comparison, Setting, run_name
from ..bench.metric_values import METRICS, number
from ..bench.result import Result
from ..core.types import Error
from ..core.words import counted
from . import Bullets, Cell, Page, Part, Row, Section, Strip, Table, Text, html_page
from .runs import Images, Judged, changes, drawn_records, shot, truth_of

# Lines of settings and of runs without a partner that are printed; the rest is counted.
MOST = 12


def text(comparison: Comparison) -> str:
    """A short table: what differs, figures of B minus those of A, and how many images changed sides."""
    sides, alone = comparison.sides, len(comparison.pairs) == 1
    lines = [f"A  {sides.first}", f"B  {sides.second}"]
    shared = comparison.common
    lines += _setting_lines("What differs" if alone else "What differs in all pairs", shared)
    for each in comparison.pairs:
        seeds = ", ".join(map(str, each.pair.seeds))
        lines += ["", f"{each.pair.name}: {each.pair.stream}, seed{'s' * (len(each.pair.seeds) > 1)} {seeds}"]
        own = [one for one in each.settings if one not in shared]
        lines += _setting_lines("What differs here too", own) if own else []
        lines += [f"  {line}" for line in _figure_lines(each.figures)]
        lines += [f"  {line}" for line in changed_words(each)]
    for name, left in (("A", sides.only_first), ("B", sides.only_second)):
        if left:
            names = ", ".join(filed.path.name for filed in left[:3]) + (", ..." if len(left) > 3 else "")
            lines += ["", f"{counted(len(left), 'run')} only in {name}: {names}"]
    lines += ["", *notes(comparison)]
    return "\n".join(lines) + "\n"


def notes(comparison: Comparison) -> list[str]:
    """What the brackets and the star mean; nothing where there are none."""
    if not comparison.intervals:
        return []
    return [
        "In brackets: the paired 95 % interval of B minus A over images, from 1,000 resamples of the images that both saw. "
        f"* it excludes zero, also by Holm's correction for the {comparison.intervals} differences of this comparison."
    ]


def difference(figure: Compared) -> str:
    """B minus A with its interval, as tables print it."""
    written = number(figure.difference, figure.metric, signed=True)
    if figure.low is None or figure.high is None:
        return written
    low, high = (number(bound, figure.metric, signed=True) for bound in (figure.low, figure.high))
    return f"{written} [{low}, {high}]{'*' if figure.marked else ''}"


def changed_words(each: ComparedPair) -> list[str]:
    """How many images changed sides, in sentences; or why that is not known."""
    found = each.changes
    if found is None:
        return [each.why_not]
    return [
        f"images: {found.shown:,} shown, {each.images:,} different ones; {found.wrong_to_right:,} wrong in A and right in B, "
        f"{found.right_to_wrong:,} right in A and wrong in B",
        f"        {found.rejected_to_accepted:,} rejected in A and accepted in B, {found.accepted_to_rejected:,} accepted in A and "
        f"rejected in B, {found.other_class:,} accepted in both with another class",
    ]


def _setting_lines(title: str, found: Sequence[Setting]) -> Iterator[str]:
    yield f"{title}:" if found else f"{title}: nothing but the figures"
    width = max((len(each.field) for each in found), default=0)
    for each in found[:MOST]:
        yield f"  {each.field:<{width}}  {each.first} | {each.second}"
    if len(found) > MOST:
        yield f"  and {len(found) - MOST} more, in `--format json`"


def _figure_lines(figures: Sequence[Compared]) -> Iterator[str]:
    yield f"{'':<10} {'A':>7} {'B':>7}  B minus A"
    for figure in figures:
        if figure.first is not None or figure.second is not None:
            one, other = (number(value, figure.metric) for value in (figure.first, figure.second))
            yield f"{METRICS[figure.metric]:<10} {one:>7} {other:>7}  {difference(figure)}"


OpenImages = Callable[[Result], Images]


# Pairs whose images are shown, and images in a strip.
MOST_PAIRS, MOST_IMAGES = 6, 7


READING = "Below each image: what it shows, then the answers of A and of B with score and threshold. A green edge: right in B; a red one: wrong."


def compare_page(comparison: Comparison, images: OpenImages) -> str:
    """`images` reads the images of a result's stream again; where it cannot, the page says so and has the numbers alone."""
    sides = comparison.sides
    left = [
        f"{counted(len(filed), 'run')} only in {name}: {', '.join(each.path.name for each in filed)}."
        for name, filed in (("A", sides.only_first), ("B", sides.only_second))
        if filed
    ]
    shared = comparison.common
    title = "What differs" if len(comparison.pairs) == 1 else "What differs in all pairs"
    return html_page(
        Page(
            _title(comparison),
            "Comparison of two results" if len(comparison.pairs) == 1 else "Comparison of two folders",
            [_lead(comparison), f"A: `{sides.first}`", f"B: `{sides.second}`"],
            (
                Section(title, _settings(shared) or [Text("Nothing but the figures.")]),
                Section("Figures", [*_figures(comparison), *(Text(note, "note") for note in notes(comparison))]),
                _images(comparison, images),
                Section("Without a partner", [Bullets(left)] if left else []),
            ),
        )
    )


def _title(comparison: Comparison) -> str:
    """The two methods, where there is one pair of different ones; else the names of files or folders."""
    first, second = comparison.sides.first.name, comparison.sides.second.name
    if len(comparison.pairs) == 1:
        pair = comparison.pairs[0].pair
        names = run_name(pair.first[0].result.spec), run_name(pair.second[0].result.spec)
        first, second = names if names[0] != names[1] else (first, second)
    return f"{first} and {second}"


def _lead(comparison: Comparison) -> str:
    headline = [figure for each in comparison.pairs for figure in each.figures if figure.metric == "hm"]
    if len(headline) == 1:
        figure, images = headline[0], comparison.pairs[0].images
        one, other = (number(value, "hm") for value in (figure.first, figure.second))
        if figure.low is None:
            return f"HM {one} in A and {other} in B: {difference(figure)} points, without an interval."
        sure = "" if figure.marked else ", which is not told apart from none"
        return f"HM {one} in A and {other} in B: {difference(figure)} points over {images:,} images{sure}."
    marked = [figure.difference for figure in headline if figure.marked and figure.difference is not None]
    better = sum(value > 0 for value in marked)
    return (
        f"{counted(len(headline), 'pair')} of runs: B has the higher HM in {better} and the lower in {len(marked) - better}; in the other "
        f"{len(headline) - len(marked)} the two are not told apart."
    )


def _settings(found: tuple[Setting, ...] | list[Setting]) -> list[Part]:
    rows = [Row(each.field, [Cell(each.first), Cell(each.second)]) for each in found]
    return [Table(["field", "A", "B"], rows)] if rows else []


def _figures(comparison: Comparison) -> Iterator[Part]:
    for each in comparison.pairs:
        rows = [
            Row(
                METRICS[figure.metric],
                [
                    Cell(number(figure.first, figure.metric)),
                    Cell(number(figure.second, figure.metric)),
                    Cell(difference(figure), strong=figure.marked),
                ],
            )
            for figure in each.figures
            if figure.first is not None or figure.second is not None
        ]
        yield Table(["", "A", "B", "B minus A"], rows, f"{each.pair.name}: {each.pair.stream}")
        own = [one for one in each.settings if one not in comparison.common]
        if own:
            yield Table(
                ["what differs here too", "A", "B"],
                [Row(one.field, [Cell(one.first), Cell(one.second)]) for one in own],
            )


def _images(comparison: Comparison, images: OpenImages) -> Section:
    sections = []
    for number_, each in enumerate(comparison.pairs):
        parts: list[Part] = [Bullets([line.strip() for line in changed_words(each)])]
        if each.changes is not None and number_ < MOST_PAIRS:
            try:
                parts += _strips(each, images)
            except Error as problem:
                parts.append(Text(f"The images themselves are not shown. {problem}", "note"))
        sections.append(Section(f"{each.pair.name}: {each.pair.stream}", parts))
    more = len(comparison.pairs) - MOST_PAIRS
    notes_ = [Text(READING, "note")]
    if more > 0:
        notes_.append(
            Text(f"Images of the first {MOST_PAIRS} pairs; of {counted(more, 'more pair')} the numbers.", "note")
        )
    return Section("Image by image", notes_, sections)


def _strips(each: ComparedPair, images: OpenImages) -> Iterator[Part]:
    """Of the first seed: right and wrong exchanged, then what was accepted by one alone although both were wrong."""
    one, other = each.pair.first[0], each.pair.second[0]
    assert one.records is not None
    assert other.records is not None
    before, after = Judged("A", drawn_records(one.records)), Judged("B", drawn_records(other.records))
    seen = images(one.result)
    if len(each.pair.seeds) > 1:
        yield Text(f"Images of seed {each.pair.seeds[0]}.", "note")
    yield from changes(before, after, seen, kinds=2)
    same = before.run.right == after.run.right
    for title, steps in (
        ("Rejected in A, accepted in B; wrong with both", same & ~before.run.known & after.run.known),
        ("Accepted in A, rejected in B; wrong with both", same & before.run.known & ~after.run.known),
    ):
        places = np.flatnonzero(steps)
        if len(places):
            chosen = places[np.unique(np.linspace(0, len(places) - 1, min(MOST_IMAGES, len(places))).astype(int))]
            shots = []
            for step in map(int, chosen):
                truth = truth_of(step, before.run, seen.classes)
                answers = [judged.words(step, seen.classes) for judged in (before, after)]
                alt = f"Image {step + 1} of the stream, {truth}; {'; '.join(answers)}"
                shots.append(shot(seen.image(step), alt, [truth, *answers], right=False))
            yield Strip(f"{title}: {counted(len(places), 'image')} of {len(before.run):,}", shots)
