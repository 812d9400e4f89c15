"""The page of a suite or of a folder of results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from ..bench.against_frozen import ToFrozen, means_to_frozen, to_frozen
from ..bench.collected import is_folder
from ..bench.figures import SuiteFigures
from ..bench.footnotes import why_no_interval
from ..bench.metric_values import lower_is_better, metric_name, number
from ..bench.spec import image_seed
from ..bench.suite import Suite
from ..bench.tables import Block, Sheet, TableCell, heading, measure_blocks, sheet
from ..core.types import Error
from ..data.catalogue import CATALOGUE
from ..data.class_names import class_list
from ..data.names import parse_name
from ..data.overlap import overlap, overlap_sentence
from . import Bullets, Cell, Folded, Page, Part, Row, Section, Table, Text, html_page
from .overview import choices, overview, rank_panels, runs_again
from .runs import OpenImages, RunsDrawn, image_sections, row_name
from .suite_charts import domain_charts, option_charts


def lead(figures: SuiteFigures) -> str:
    """The row that is furthest above the frozen one, over all streams where rows have several; and how many differences are marked."""
    single = to_frozen(figures)
    if not single:
        return _without_frozen(figures)
    best = _best(figures, means_to_frozen(figures) or single)
    name, metric = metric_name(best.metric), best.metric
    where = f"Over {best.streams} streams" if best.streams > 1 else f"On {' / '.join(best.column) or 'this stream'}"
    values = [number(value, metric) for value in (best.value, best.frozen)]
    gain = number(best.difference, metric, signed=True)
    row, ahead = (
        row_name(figures, best.row),
        best.difference != 0 and (best.difference < 0) == lower_is_better(metric),
    )
    who = (
        f"{row} is furthest ahead of the frozen row"
        if ahead
        else f"no row is ahead of the frozen one, and {row} is nearest"
    )
    return (
        f"{where}, {who}: {name} {values[0]} against {values[1]}, {gain} ({_sureness(figures, best)}). N = {best.shown:,} images, {_seeds(best.seeds)}. "
        f"{_marks(figures, single)}"
    ).strip()


def _sureness(figures: SuiteFigures, one: ToFrozen) -> str:
    if one.low is None or one.high is None:
        return f"no interval, as {why_no_interval(figures)}"
    bounds = " to ".join(number(bound, one.metric, signed=True) for bound in (one.low, one.high))
    # Where the interval alone excludes zero, the number of comparisons may still not allow a mark.
    told = "told apart from zero" if one.marked else "not told apart from zero"
    return f"95 % interval {bounds} over {one.over}; {told}"


def _marks(figures: SuiteFigures, single: Sequence[ToFrozen]) -> str:
    """How many differences there are, and which way those go that are marked."""
    known = [one for one in single if one.low is not None]
    if not known:
        return ""
    lower = lower_is_better(figures.headline)
    better = sum(one.marked and (one.difference < 0) == lower for one in known)
    worse = sum(one.marked for one in known) - better
    streams = len({one.column for one in known})
    return (
        f"Of {len(known)} differences to the frozen row, on {streams} stream{'s' * (streams > 1)}, {better} {'is' if better == 1 else 'are'} "
        f"marked as better and {worse} as worse."
    )


def _without_frozen(figures: SuiteFigures) -> str:
    """The best figure of all."""
    name, lower = metric_name(figures.headline), lower_is_better(figures.headline)
    found = [
        (figure.mean, row, column)
        for row in figures.rows
        for column in figures.columns
        if (figure := figures.figure(row, column, figures.headline)) is not None and figure.mean is not None
    ]
    if not found:
        return f"No run has a {name}."
    value, row, column = min(found, key=lambda each: each[0] if lower else -each[0])
    results = figures.results(row, column)
    counts = next(iter(results.values())).counts
    on = f" on {' / '.join(column)}" if any(column) else ""
    return (
        f"The {'lowest' if lower else 'highest'} {name} is {number(value, figures.headline)}, with {row_name(figures, row)}{on}. N = "
        f"{counts['desired'] + counts['undesired']:,} images, {_seeds(tuple(results))}. There is no frozen row to compare with, and so no interval."
    )


def _best(figures: SuiteFigures, found: Sequence[ToFrozen]) -> ToFrozen:
    sign = -1 if lower_is_better(figures.headline) else 1
    return max(found, key=lambda one: sign * one.difference)


def _seeds(seeds: tuple[int, ...]) -> str:
    return f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, sorted(seeds)))}"


def stream_tables(figures: SuiteFigures, made: Sheet) -> Iterator[Section]:
    """A section a stream, with what the runs cost in the same table. Streams without any result are left out."""
    own = [block for block in made.blocks if block.kind == "own"]
    costs: list[Block | None] = [block for block in made.blocks if block.kind == "cost"]
    first = _headline(figures)
    for block, cost in zip(own, costs or [None] * len(own), strict=True):
        whole = _ordered(block if cost is None else _beside(block, cost), first)
        if _has_figures(whole):
            name = " / ".join(filter(None, (block.title, block.groups[0][0])))
            yield Section(name or "This stream", [table(whole)])


def tables(figures: SuiteFigures, blocks: Sequence[Block]) -> list[Part]:
    """Each block that has a figure, as a table under its own title."""
    first = _headline(figures)
    return [table(_ordered(block, first), block.groups[0][0]) for block in blocks if _has_figures(block)]


def table(block: Block, title: str = "") -> Table:
    """A block with one group of columns."""
    rows, before = list[Row](), tuple[str, ...]()
    several = len({names[:-1] for names, _ in block.rows}) > 1
    for names, texts in block.rows:
        above = " / ".join(names[:-1]) if several and names[:-1] != before else ""
        before = names[:-1]
        rows.append(Row(names[-1], [cell(text) for text in texts], method=names[-1], above=above))
    headings = [heading for _, group in block.groups for heading in group]
    return Table([block.stub[-1], *headings], rows, title)


def cell(figure: TableCell) -> Cell:
    """Return the figure, with its details in smaller letters below. A gap that does not exist is left out."""
    details = "" if figure.of_paper and figure.gap is None else figure.details
    return Cell(figure.figure + "*" * figure.star, details, figure.bold, figure.mark)


def _has_figures(block: Block) -> bool:
    return any(cell for _, cells in block.rows for cell in cells)


def _headline(figures: SuiteFigures) -> list[str]:
    """The headings that come first: the headline, and the differences of it."""
    names = [each.name for each in figures.shown_differences if each.metric == figures.headline]
    return [heading(figures, name) for name in (figures.headline, *names)]


def _ordered(block: Block, first: Sequence[str]) -> Block:
    ((name, headings),) = block.groups
    order = sorted(
        range(len(headings)), key=lambda at: first.index(headings[at]) if headings[at] in first else len(first)
    )
    return replace(
        block,
        groups=((name, tuple(headings[at] for at in order)),),
        rows=tuple((names, tuple(cells[at] for at in order)) for names, cells in block.rows),
    )


def _beside(block: Block, other: Block) -> Block:
    """The columns of both."""
    more = dict(other.rows)
    return replace(
        block,
        groups=((block.groups[0][0], (*block.groups[0][1], *other.groups[0][1])),),
        rows=tuple((names, (*cells, *more[names])) for names, cells in block.rows),
    )


HM = (
    "HM is the harmonic mean of Acc_D, desired images that were accepted and named rightly, and Acc_U, undesired images that were "
    "rejected; both in percent."
)


def page_name(suite: str) -> str:
    """The file name of a suite's page, from the suite's name or TOML file; of a folder's page too.

    >>> page_name("embedded/k"), page_name("mine/own.toml"), page_name(".")
    ('embedded-k.html', 'own.html', 'report.html')
    """
    if is_folder(suite):
        return "report.html"
    name = Path(suite).stem if suite.endswith(".toml") else suite.replace("/", "-")
    return f"{name}.html"


def suite_report(figures: SuiteFigures, images: OpenImages | None = None) -> str:
    """The page of a suite. `images` reads the images of a result's stream again; without it none are shown."""
    collected, suite = figures.collected, figures.suite
    if not collected.found:
        return html_page(Page(suite.title, _kind(suite), [collected.missing]))
    made = sheet(figures, 1)
    drawn, chosen = RunsDrawn(figures), list(choices(figures))
    failed = [f"{failure.run}: {failure.reason}" for failure in collected.failures]
    conventions = dict.fromkeys(f"{result.metrics.convention}." for _, _, result in figures.distinct)
    there = f"{collected.found} of {len(collected.cells)} cells have results."
    return html_page(
        Page(
            suite.title,
            _kind(suite),
            [lead(figures), collected.missing or there],
            (
                Section("Overview", [*overview(figures), *chosen]),
                Section("Stream by stream", (), list(stream_tables(figures, made))),
                Section("Means over streams", [*rank_panels(figures), *tables(figures, _of(made, "means"))]),
                *image_sections(drawn, images),
                Section("Along the stream", _titled(figures, _of(made, "windows"))),
                Section("Against an option", list(option_charts(figures))),
                Section("Domain by domain", [*domain_charts(figures), *_in_figures(figures, _of(made, "parts"))]),
                drawn.section(),
                Section("Further measures", _folded_measures(figures)),
                Section("The paper's figures", list(_paper(figures, made))),
                Section("How to read this", _bullets([HM] * ("hm" in suite.metrics) + _notes(figures, made, chosen))),
                Section("Failed runs", _bullets(failed)),
                Section("Remarks", _bullets([*_remarks(figures), *_overlaps(figures), *conventions])),
                Section("Run it again", list(runs_again(figures))),
            ),
            list(dict.fromkeys(row[-1] for row in figures.rows)),
        )
    )


def _kind(suite: Suite) -> str:
    """What kind of page this is; where in the paper, of suites that are of it."""
    if is_folder(suite.name):
        return "ostta bench report: a folder of results"
    return "; ".join(filter(None, (f"ostta bench report: suite {suite.name}", suite.place)))


def _of(made: Sheet, kind: str) -> list[Block]:
    return [block for block in made.blocks if block.kind == kind]


def _bullets(items: list[str]) -> list[Part]:
    return [Bullets(items)] if items else []


def _titled(figures: SuiteFigures, blocks: list[Block]) -> list[Part]:
    """Blocks that share one title."""
    return [Text(f"{blocks[0].title}.", "note"), *tables(figures, blocks)] if blocks else []


def _in_figures(figures: SuiteFigures, blocks: list[Block]) -> list[Part]:
    """What a chart shows already, folded away."""
    found = tables(figures, blocks)
    return [Folded("The same in figures", found)] if found else []


def _folded_measures(figures: SuiteFigures) -> list[Part]:
    """The measures of `ostta.evaluation.measures`, stream by stream."""
    found = tables(figures, measure_blocks(figures))
    about = "`ostta.evaluation.measures` defines them; the share of unknown images is the AUPR that a random score has for them."
    return (
        [Text(about, "note"), Folded("OpenAUC, AUPR, calibration, risk and coverage, regret", found)] if found else []
    )


def _notes(figures: SuiteFigures, made: Sheet, chosen: list[Text]) -> list[str]:
    """Without what stands at the top of the page already: what is missing, and on which stream a choice was made."""
    above = {figures.collected.missing, *([figures.suite.remark] if chosen else [])}
    return [note for note in made.footnotes if note not in above]


def _paper(figures: SuiteFigures, made: Sheet) -> Iterator[Part]:
    """What can be compared, with the gap; the rest is folded away."""
    blocks = _of(made, "paper")
    together = [block for block in blocks if _has_gap(block)]
    apart = [block for block in blocks if not _has_gap(block)]
    if together:
        yield Text("In brackets: ours minus the paper's.", "note")
        yield from tables(figures, together)
    if apart:
        yield Folded("The paper's figures on streams where ours cannot be compared with them", tables(figures, apart))
    if made.doubts:
        yield Text("Doubts about the paper's figures:", "note")
        yield Bullets(made.doubts, numbered=True)


def _has_gap(block: Block) -> bool:
    return any(cell.gap is not None for _, cells in block.rows for cell in cells)


def _remarks(figures: SuiteFigures) -> list[str]:
    """Return the remarks of all runs. Remarks that differ in the seed only are joined."""
    seeds: dict[str, dict[int, None]] = {}
    for _, _, result in figures.distinct:
        seed = image_seed(result.spec)
        for remark in result.remarks:
            before, found, after = remark.partition(f"seed {seed}")
            seeds.setdefault(f"{before}SEEDS{after}" if found and not after[:1].isdigit() else remark, {})[seed] = None
    return [
        remark.replace("SEEDS", f"seed{'s' * (len(of) > 1)} {', '.join(map(str, of))}") for remark, of in seeds.items()
    ]


def _overlaps(figures: SuiteFigures) -> Iterator[str]:
    """Which unknown classes have names like known ones, by the class lists that ship."""
    pairs = dict.fromkeys((result.spec.desired, result.spec.undesired) for _, _, result in figures.distinct)
    for desired, undesired in pairs:
        said = overlap_sentence(overlap(_class_names(desired), _class_names(undesired)))
        if said:
            yield f"{desired} against {undesired}: {said}"


def _class_names(name: str | None) -> tuple[str, ...]:
    try:
        base = "" if name is None else parse_name(name).base
    except Error:
        return ()
    return class_list(CATALOGUE[base].classes).names if base in CATALOGUE else ()
