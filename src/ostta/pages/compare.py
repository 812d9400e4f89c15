"""A comparison as text, and as a page with the images whose answers changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ..bench.compare import Compared, ComparedPair, Comparison, Setting, run_name
from ..bench.naming import seeds_text
from ..bench.result import METRICS, number
from ..bench.tables import TableCell
from ..core.text import counted
from ..core.types import Error
from .images import NamedRun, OpenImages, changes, drawn_records, evenly_spaced, pair_strip
from .parts import Bullets, Page, Part, Row, Section, Strip, Table, Text, html_page

# Most settings that are printed.
MOST = 12


def text(comparison: Comparison) -> str:
    """Return the differing settings, the figures of both sides, and the numbers of changed answers as text."""
    sides, alone = comparison.sides, len(comparison.pairs) == 1
    lines = [f"A  {sides.first}", f"B  {sides.second}"]
    shared = comparison.common
    lines += _setting_lines("Differences in settings" if alone else "Differences in settings of all pairs", shared)
    for each in comparison.pairs:
        lines += ["", f"{each.pair.name}: {each.pair.stream}, {seeds_text(each.pair.seeds)}"]
        own = [one for one in each.settings if one not in shared]
        lines += _setting_lines("Further differences in settings", own) if own else []
        lines += [f"  {line}" for line in _figure_lines(each.figures)]
        lines += [f"  {line}" for line in changed_words(each)]
    for name, left in (("A", sides.only_first), ("B", sides.only_second)):
        if left:
            names = ", ".join(stored.path.name for stored in left[:3]) + (", ..." if len(left) > 3 else "")
            lines += ["", f"{counted(len(left), 'run')} only in {name}: {names}"]
    lines += ["", *notes(comparison)]
    return "\n".join(lines) + "\n"


def notes(comparison: Comparison) -> list[str]:
    """Return the explanation of brackets and stars; empty if there are no intervals."""
    if not comparison.intervals:
        return []
    return [
        "In brackets: the paired 95 % interval of B minus A over images, from 1,000 resamples of the images of both "
        f"runs. * The interval excludes zero, also after Holm's correction for {comparison.intervals} differences."
    ]


def difference(figure: Compared) -> str:
    """Format B minus A with its interval."""
    return TableCell(figure.difference, figure.metric, True, figure.low, figure.high, star=figure.marked).text


def changed_words(each: ComparedPair) -> list[str]:
    """Return sentences about the changed answers, or why they are not known."""
    found = each.changes
    if found is None:
        return [each.why_not]
    return [
        f"images: {found.shown:,} shown, {each.images:,} different; {found.wrong_to_right:,} wrong in A and right in "
        f"B, {found.right_to_wrong:,} right in A and wrong in B",
        f"        {found.rejected_to_accepted:,} rejected in A and accepted in B, "
        f"{found.accepted_to_rejected:,} accepted in A and rejected in B, "
        f"{found.other_class:,} accepted in both with another class",
    ]


def _setting_lines(title: str, found: Sequence[Setting]) -> Iterator[str]:
    yield f"{title}:" if found else f"{title}: none"
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


# Pairs whose images are shown, and images in a strip.
MOST_PAIRS, MOST_IMAGES = 6, 7


READING = (
    "Below each image: its class, then the answers of A and B with score and threshold. A green border: right in B; a "
    "red border: wrong in B."
)


def compare_page(comparison: Comparison, images: OpenImages) -> str:
    """Return the page of a comparison. If `images` raises an Error, the page says why it shows no images."""
    sides = comparison.sides
    left = [
        f"{counted(len(stored), 'run')} only in {name}: {', '.join(each.path.name for each in stored)}."
        for name, stored in (("A", sides.only_first), ("B", sides.only_second))
        if stored
    ]
    shared = comparison.common
    title = "Settings" if len(comparison.pairs) == 1 else "Settings that differ in all pairs"
    return html_page(
        Page(
            _title(comparison),
            "Comparison of two results" if len(comparison.pairs) == 1 else "Comparison of two folders",
            [_lead(comparison), f"A: `{sides.first}`", f"B: `{sides.second}`"],
            (
                Section(title, _settings(shared) or [Text("All settings are equal.")]),
                Section("Figures", [*_figures(comparison), *(Text(note, "note") for note in notes(comparison))]),
                _images(comparison, images),
                Section("Without a partner", [Bullets(left)] if left else []),
            ),
        )
    )


def _title(comparison: Comparison) -> str:
    """Return the names of the two methods if there is one pair, else the names of files or folders."""
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
        sure = "" if figure.marked else "; the difference is not significant"
        return f"HM {one} in A and {other} in B: {difference(figure)} points over {images:,} images{sure}."
    marked = [figure.difference for figure in headline if figure.marked and figure.difference is not None]
    better = sum(value > 0 for value in marked)
    return (
        f"{counted(len(headline), 'pair')} of runs: the HM of B is significantly higher in {better} and lower in "
        f"{len(marked) - better}; in the other {len(headline) - len(marked)} the difference is not significant."
    )


def _settings(found: Sequence[Setting], heading: str = "field") -> list[Part]:
    rows = [Row(each.field, [TableCell(words=each.first), TableCell(words=each.second)]) for each in found]
    return [Table([heading, "A", "B"], rows)] if rows else []


def _figures(comparison: Comparison) -> Iterator[Part]:
    for each in comparison.pairs:
        rows = [
            Row(
                METRICS[figure.metric],
                [
                    TableCell(figure.first, figure.metric),
                    TableCell(figure.second, figure.metric),
                    TableCell(words=difference(figure), bold=figure.marked),
                ],
            )
            for figure in each.figures
            if figure.first is not None or figure.second is not None
        ]
        yield Table(["", "A", "B", "B minus A"], rows, f"{each.pair.name}: {each.pair.stream}")
        yield from _settings([one for one in each.settings if one not in comparison.common], "further differences")


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
    has_images = any(isinstance(part, Strip) for section in sections for part in section.parts)
    notes_ = [Text(READING, "note")] if has_images else []
    if more > 0:
        notes_.append(
            Text(f"Only the first {MOST_PAIRS} pairs have images; {counted(more, 'more pair')} without.", "note")
        )
    return Section("Image by image", notes_, sections)


def _strips(each: ComparedPair, images: OpenImages) -> Iterator[Part]:
    """Yield images of the first seed: answers that became right or wrong, then images that only one side accepted."""
    one, other = each.pair.first[0], each.pair.second[0]
    assert one.records is not None
    assert other.records is not None
    before, after = NamedRun("A", drawn_records(one.records)), NamedRun("B", drawn_records(other.records))
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
            yield pair_strip(title, places, evenly_spaced(places, MOST_IMAGES), before, after, seen)
