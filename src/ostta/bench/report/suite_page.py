"""The page about everything that a folder has of a suite."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ...core.types import Error
from ...data.catalogue import CATALOGUE
from ...data.class_names import class_list
from ...data.names import parse_name
from ...data.overlap import overlap, overlap_sentence
from ...pages import Bullets, Folded, Page, Part, Section, Text, html_page
from ..suite import Suite
from ..tables.layout import Block, Sheet, measure_blocks, sheet
from ..tables.opening import is_folder
from ..tables.suite_figures import SuiteFigures
from .choices import choices
from .lead import lead
from .overview import overview
from .rank_panels import rank_panels
from .run_sections import OpenImages, RunsDrawn, image_sections
from .runs_again import runs_again
from .suite_charts import domain_charts, option_charts
from .tables import stream_tables, tables

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
    return any(re.search(r"\([+-]", cell.text) for _, cells in block.rows for cell in cells)


def _remarks(figures: SuiteFigures) -> list[str]:
    """Those of all runs; what differs in the seed only is said once."""
    seeds: dict[str, list[str]] = {}
    for _, _, result in figures.distinct:
        for remark in result.remarks:
            found = re.search(r"\bseed (\d+)", remark)
            same = seeds.setdefault(re.sub(r"\bseed \d+", "seed", remark, count=1), [])
            if found and found[1] not in same:
                same.append(found[1])
    return [
        re.sub(r"\bseed\b", f"seed{'s' * (len(numbers) > 1)} {', '.join(numbers)}", remark, count=1)
        if numbers
        else remark
        for remark, numbers in seeds.items()
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
