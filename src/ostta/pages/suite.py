"""The page of a suite or of a folder of results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ..bench.against_frozen import ToFrozen, means_to_frozen, to_frozen
from ..bench.collected import is_folder
from ..bench.figures import SuiteFigures
from ..bench.footnotes import why_no_interval
from ..bench.naming import seeds_text
from ..bench.result import lower_is_better, metric_name, number
from ..bench.spec import image_seed
from ..bench.suite import Suite
from ..bench.tables import Block, Sheet, measure_blocks, sheet
from ..core.text import counted
from ..core.types import Error
from ..data.catalogue import CATALOGUE
from ..data.class_names import class_list
from ..data.names import parse_name
from ..data.overlap import overlap, overlap_sentence
from .charts import domain_charts, option_charts
from .images import OpenImages
from .parts import Bullets, Folded, Page, Part, Row, Section, Table, Text, html_page
from .sections import RunCharts, choices, command_parts, image_sections, overview, rank_panels, row_name


def lead(figures: SuiteFigures) -> str:
    """Return a summary: the row that is furthest above the frozen row, and the number of significant differences."""
    single = to_frozen(figures)
    if not single:
        return _without_frozen(figures)
    sign = -1 if lower_is_better(figures.headline) else 1
    best = max(means_to_frozen(figures) or single, key=lambda one: sign * one.difference)
    name, metric = metric_name(best.metric), best.metric
    where = f"Over {best.streams} streams" if best.streams > 1 else f"On {' / '.join(best.column) or 'this stream'}"
    values = [number(value, metric) for value in (best.value, best.frozen)]
    gain = number(best.difference, metric, signed=True)
    who = f"no row is better than the frozen row, and {row_name(figures, best.row)} is the closest"
    if sign * best.difference > 0:
        who = f"{row_name(figures, best.row)} has the largest gain over the frozen row"
    return (
        f"{where}, {who}: {name} {values[0]} against {values[1]}, {gain} ({_significance(figures, best)}). "
        f"N = {best.shown:,} images, {seeds_text(best.seeds)}. {_marks(figures, single)}"
    ).strip()


def _significance(figures: SuiteFigures, one: ToFrozen) -> str:
    if one.low is None or one.high is None:
        return f"no interval, because {why_no_interval(figures)}"
    bounds = " to ".join(number(bound, one.metric, signed=True) for bound in (one.low, one.high))
    # With many comparisons, an interval that excludes zero need not be significant.
    significant = "significant" if one.marked else "not significant"
    return f"95 % interval {bounds} over {one.over}; {significant}"


def _marks(figures: SuiteFigures, single: Sequence[ToFrozen]) -> str:
    """Return the number of differences, and of significant ones in each direction."""
    known = [one for one in single if one.low is not None]
    if not known:
        return ""
    lower = lower_is_better(figures.headline)
    better = sum(one.marked and (one.difference < 0) == lower for one in known)
    worse = sum(one.marked for one in known) - better
    streams = len({one.column for one in known})
    return (
        f"Of {len(known)} differences to the frozen row on {counted(streams, 'stream')}, {better} "
        f"{'is' if better == 1 else 'are'} significantly better and {worse} significantly worse."
    )


def _without_frozen(figures: SuiteFigures) -> str:
    """Return the best figure of all rows."""
    name, lower = metric_name(figures.headline), lower_is_better(figures.headline)
    found = [
        (value, row, column)
        for row in figures.rows
        for column in figures.columns
        if (value := figures.mean(row, column)) is not None
    ]
    if not found:
        return f"No run has a {name}."
    value, row, column = min(found, key=lambda each: each[0] if lower else -each[0])
    results = figures.results(row, column)
    shown = next(iter(results.values())).shown
    on = f" on {' / '.join(column)}" if any(column) else ""
    return (
        f"The {'lowest' if lower else 'highest'} {name} is {number(value, figures.headline)}, with "
        f"{row_name(figures, row)}{on}. N = {shown:,} images, {seeds_text(sorted(results))}. "
        "There is no interval, because there is no frozen row to compare with."
    )


def stream_tables(all_tables: Sheet) -> Iterator[Section]:
    """Yield a section for each stream with results."""
    for block in filter(_has_figures, _of(all_tables, "own")):
        name = " / ".join(filter(None, (block.title, block.groups[0][0])))
        yield Section(name or "This stream", [table(block)])


def tables(blocks: Sequence[Block]) -> list[Part]:
    """Return each block with a figure as a table under its title."""
    return [table(block, block.groups[0][0]) for block in filter(_has_figures, blocks)]


def table(block: Block, title: str = "") -> Table:
    """Return a block with one group of columns as a table."""
    rows, before = list[Row](), tuple[str, ...]()
    several = len({names[:-1] for names, _ in block.rows}) > 1
    for names, cells in block.rows:
        above = " / ".join(names[:-1]) if several and names[:-1] != before else ""
        before = names[:-1]
        rows.append(Row(names[-1], cells, method=names[-1], above=above))
    headings = [heading for _, group in block.groups for heading in group]
    return Table([block.stub[-1], *headings], rows, title)


def _has_figures(block: Block) -> bool:
    return any(cell for _, cells in block.rows for cell in cells)


HM = (
    "HM is the harmonic mean of Acc_D, the share of known images that are accepted with the right class, and Acc_U, "
    "the share of unknown images that are rejected; both in percent."
)


def page_name(suite: str) -> str:
    """Return the file name of the page of a suite or a folder.

    >>> page_name("embedded/k"), page_name("mine/own.toml"), page_name(".")
    ('embedded-k.html', 'own.html', 'report.html')
    """
    if is_folder(suite):
        return "report.html"
    name = Path(suite).stem if suite.endswith(".toml") else suite.replace("/", "-")
    return f"{name}.html"


def best_row(figures: SuiteFigures) -> str:
    """Return a sentence about the row with the best mean, apart from the frozen one; empty if no row has a mean."""
    (column,) = figures.columns
    adapted = [row for row in figures.rows if not figures.is_frozen(row)]
    means = {row: value for row in adapted if (value := figures.mean(row, column)) is not None}
    if not means:
        return ""
    best = (min if lower_is_better(figures.headline) else max)(means.values())
    names = [" / ".join(row) for row, value in means.items() if value == best]
    metric = metric_name(figures.headline)
    if len(names) > 1:
        return f"The best {metric} is the same for {', '.join(names)}, so no row can be chosen by it."
    return f"The best {metric} is that of {names[0]}."


def suite_report(figures: SuiteFigures, images: OpenImages | None = None) -> str:
    """Return the page of a suite. `images` opens the images of a result's stream; without it, none are shown."""
    collected, suite = figures.collected, figures.suite
    if not collected.found:
        return html_page(Page(suite.title, _kind(suite), [collected.missing]))
    all_tables = sheet(figures, page=True)
    drawn, chosen = RunCharts(figures), list(choices(figures))
    failed = [f"{failure.run}: {failure.reason}" for failure in collected.failures]
    conventions = dict.fromkeys(f"{result.metrics.convention}." for _, _, result in figures.distinct)
    return html_page(
        Page(
            suite.title,
            _kind(suite),
            [lead(figures), collected.missing or f"{collected.found} of {len(collected.cells)} cells have results."],
            (
                Section("Overview", [*overview(figures), *chosen]),
                Section("Stream by stream", (), list(stream_tables(all_tables))),
                Section("Means over streams", [*rank_panels(figures), *tables(_of(all_tables, "means"))]),
                *image_sections(drawn, images),
                Section("Along the stream", _titled(_of(all_tables, "windows"))),
                Section("Against an option", list(option_charts(figures))),
                Section("Domain by domain", [*domain_charts(figures), *_in_figures(_of(all_tables, "parts"))]),
                drawn.section(),
                Section("Further measures", _folded_measures(figures)),
                Section("The paper's figures", list(_paper(all_tables))),
                Section(
                    "How to read this", _bullets([HM] * ("hm" in suite.metrics) + _notes(figures, all_tables, chosen))
                ),
                Section("Failed runs", _bullets(failed)),
                Section("Remarks", _bullets([*_remarks(figures), *_overlaps(figures), *conventions])),
                Section("Commands", list(command_parts(figures))),
            ),
            list(dict.fromkeys(row[-1] for row in figures.rows)),
        )
    )


def _kind(suite: Suite) -> str:
    """Return the kind of the page, and the place in the paper."""
    if is_folder(suite.name):
        return "ostta bench report: a folder of results"
    return "; ".join(filter(None, (f"ostta bench report: suite {suite.name}", suite.place)))


def _of(all_tables: Sheet, kind: str) -> list[Block]:
    return [block for block in all_tables.blocks if block.kind == kind]


def _bullets(items: list[str]) -> list[Part]:
    return [Bullets(items)] if items else []


def _titled(blocks: list[Block]) -> list[Part]:
    """Return blocks that share one title."""
    return [Text(f"{blocks[0].title}.", "note"), *tables(blocks)] if blocks else []


def _in_figures(blocks: list[Block]) -> list[Part]:
    """Return the tables of a chart, folded."""
    found = tables(blocks)
    return [Folded("The same in figures", found)] if found else []


def _folded_measures(figures: SuiteFigures) -> list[Part]:
    """Return the measures of `ostta.evaluation.measures`, stream by stream."""
    found = tables(measure_blocks(figures))
    if not found:
        return []
    about = "`ostta.evaluation.measures` defines them. The AUPR of a random score is the share of unknown images."
    return [Text(about, "note"), Folded("OpenAUC, AUPR, calibration, risk and coverage, regret", found)]


def _notes(figures: SuiteFigures, all_tables: Sheet, chosen: list[Text]) -> list[str]:
    """Return the footnotes that are not shown at the top of the page."""
    above = {figures.collected.missing, *([figures.suite.remark] if chosen else [])}
    return [note for note in all_tables.footnotes if note not in above]


def _paper(all_tables: Sheet) -> Iterator[Part]:
    """Yield the paper's figures with gaps, and those without gaps folded."""
    blocks = _of(all_tables, "paper")
    together = [block for block in blocks if _has_gap(block)]
    apart = [block for block in blocks if not _has_gap(block)]
    if together:
        yield Text("In brackets: our figure minus the paper's.", "note")
        yield from tables(together)
    if apart:
        yield Folded("The paper's figures on streams on which ours cannot be compared with them", tables(apart))
    if all_tables.doubts:
        yield Text("Doubts about the paper's figures:", "note")
        yield Bullets(all_tables.doubts, numbered=True)


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
    return [remark.replace("SEEDS", seeds_text(of)) for remark, of in seeds.items()]


def _overlaps(figures: SuiteFigures) -> Iterator[str]:
    """Yield the unknown classes with names like known classes, by the class lists of the package."""
    pairs = dict.fromkeys((result.spec.desired, result.spec.undesired) for _, _, result in figures.distinct)
    for desired, undesired in pairs:
        sentence = overlap_sentence(overlap(_class_names(desired), _class_names(undesired)))
        if sentence:
            yield f"{desired} against {undesired}: {sentence}"


def _class_names(name: str | None) -> tuple[str, ...]:
    try:
        base = "" if name is None else parse_name(name).base
    except Error:
        return ()
    return class_list(CATALOGUE[base].classes).names if base in CATALOGUE else ()
