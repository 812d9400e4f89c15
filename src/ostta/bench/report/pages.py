"""Self-contained HTML pages: about one or two runs on one stream, and about everything that a folder has of a suite."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from pathlib import Path

from ...core.types import Error
from ...data.catalogue import CATALOGUE
from ...data.class_lists import class_list
from ...data.names import parse_name
from ...data.overlap import overlap, overlap_sentence
from ...evaluate import Records
from ..result import Result
from ..spec import is_frozen, name_of
from ..tables.layout import HEADINGS, rows, sheet
from ..tables.suite_figures import Names, SuiteFigures
from . import elements, run_pictures
from .run_columns import RunColumns, score_limits
from .run_pictures import Picture
from .suite_pictures import domain_pictures, strips

# A page stays below some six megabytes: pictures take a third more in text, and the rest is small.
MOST_BYTES = 4_000_000
MOST_PICTURED = 12
MEANING = (
    "Scores say how well each image fits its best class: the further the two hills stand apart, the easier it is to say “I don't know”. "
    "Dashed: the threshold at the end of the stream. Over time, each dot is one image when it arrived, and the accuracies are over all "
    "images seen so far; dotted: the frozen classifier."
)


def report(runs: list[tuple[Result, Records]], title: str) -> str:
    """The page of a few runs. The frozen run comes first; the pictures over time show the last run."""
    ordered = sorted(runs, key=lambda run: not is_frozen(run[0].spec))
    results = [result for result, _ in ordered]
    shown = {name_of(result.spec): RunColumns.of(records) for result, records in ordered}
    limits = _limits(results, shown)
    pictures = [
        Picture(
            f"Scores, {method}",
            "How well each image fits its best class. The further the two hills stand apart, the easier it is to say "
            "“I don't know”: what lies left of the dashed line at the end of the stream is rejected.",
            run_pictures.histogram(run, limits[method]),
        )
        for method, run in shown.items()
    ]
    last = name_of(results[-1].spec)
    pictures.append(
        Picture(
            f"Scores and threshold over time, {last}",
            "Each dot is one image when it arrived. Where adaptation works, the two clouds drift apart and the threshold, found "
            "from the last 512 scores alone, settles between them.",
            run_pictures.scores_over_time(shown[last], limits[last]),
        )
    )
    pictures.append(
        Picture(
            "Accuracies over time",
            "Acc_D: desired images accepted and named rightly. Acc_U: undesired images rejected. HM: their harmonic mean. Over all "
            "images seen so far; dotted: the frozen classifier.",
            run_pictures.accuracies_over_time(shown),
        )
    )
    stream, spec = results[0].stream, results[0].spec
    sides = [f"{stream.desired.images} desired images ({stream.desired.name}, {stream.desired.origin})"]
    if stream.undesired is not None:
        sides.append(f"{stream.undesired.images} undesired ones ({stream.undesired.name})")
    whole = [json.dumps(result.model_dump(mode="json"), indent=2, ensure_ascii=False) for result in results]
    return elements.document(
        title,
        f"""<p class="lead">{html.escape(" and ".join(sides))}, one at a time in one random order (seed {spec.seed}), backbone
<code>{html.escape(spec.backbone)}</code>. Each image is first judged known or unknown, then named; only the adapting method learns
from the stream, without labels.</p>
{elements.plain_table(HEADINGS, rows(results))}
<p class="note">{html.escape(results[0].metrics.convention)}.</p>
{"".join(f'<p class="note">{html.escape(remark)}</p>' for remark in results[0].remarks)}
<h2>Pictures</h2>{elements.pictures(pictures)}
<h2>What was run</h2>
{"".join(elements.details(name_of(result.spec), text) for result, text in zip(results, whole, strict=True))}""",
    )


def _limits(results: list[Result], shown: dict[str, RunColumns]) -> dict[str, tuple[float, float]]:
    """One axis for the runs with one score; scores of different kinds have no common axis."""
    kinds: dict[str | None, list[str]] = {}
    for result in results:
        kinds.setdefault(result.spec.score, []).append(name_of(result.spec))
    shared = {kind: score_limits([shown[name] for name in names]) for kind, names in kinds.items()}
    return {name: shared[kind] for kind, names in kinds.items() for name in names}


def page_name(suite: str) -> str:
    """The file name of a suite's page, from the suite's name or TOML file.

    >>> page_name("embedded/k"), page_name("mine/own.toml")
    ('embedded-k.html', 'own.html')
    """
    name = Path(suite).stem if suite.endswith(".toml") else suite.replace("/", "-")
    return f"{name}.html"


def suite_report(figures: SuiteFigures) -> str:
    """The page of a suite: tables, pictures, failed runs, and what each run was."""
    collected, suite = figures.collected, figures.suite
    named = "; ".join(filter(None, (f"Suite `{suite.name}`", suite.place)))
    lead = f"{named}. {collected.found} of {len(collected.cells)} cells have results."
    if not collected.found:
        return elements.document(suite.title, f'<p class="missing">{elements.sentence(collected.missing)}</p>')
    made = sheet(figures)
    tables = []
    before = ""
    for block in made.blocks:
        if block.title != before:
            tables.append(f"<h3>{html.escape(block.title)}</h3>")
            before = block.title
        tables.append(elements.sheet_table(block))
    conventions = list(dict.fromkeys(result.metrics.convention for _, _, result in figures.distinct))
    sections = (
        ("Doubts about the paper's figures", elements.items(made.doubts, numbered=True)),
        ("How to read the tables", elements.items(made.footnotes)),
        ("Against an option", elements.pictures(list(strips(figures)))),
        ("Domain by domain", elements.pictures(list(domain_pictures(figures)))),
        ("Scores, and accuracies over time", _run_pictures(figures)),
        ("Failed runs", elements.items([f"{failure.run}: {failure.reason}" for failure in collected.failures])),
        ("Remarks", elements.items([*_remarks(figures), *_overlaps(figures)])),
        ("Conventions in the result files", elements.items([f"{text}." for text in conventions])),
        ("What was run", "".join(_run_details(figures))),
    )
    return elements.document(
        suite.title,
        f'<p class="lead">{elements.sentence(lead)}</p>\n<h2>Tables</h2>{"".join(tables)}\n'
        + "\n".join(f"<h2>{html.escape(heading)}</h2>{content}" for heading, content in sections if content),
    )


def _run_pictures(figures: SuiteFigures) -> str:
    """Pictures of the runs that kept records, one seed a place, as many as the page has room for; and what was left out."""
    kept, problems = _columns_of_runs(figures)
    shown = dict(list(kept.items())[:MOST_PICTURED])
    left, size, found = len(kept) - len(shown), 0, []
    for number, ((row, column), run) in enumerate(shown.items()):
        if size > MOST_BYTES:
            left += len(shown) - number
            break
        pictures = list(_pictures_of(figures, row, column, run, shown))
        size += sum(len(one.png) for one in pictures)
        found += pictures
    if left > 0:
        problems.append(f"{left} more runs kept records and are not drawn here: `--only` chooses others.")
    meaning = f'<p class="note">{html.escape(MEANING)}</p>' if found else ""
    return meaning + elements.pictures(found, small=True) + elements.items(problems)


def _columns_of_runs(figures: SuiteFigures) -> tuple[dict[tuple[Names, Names], RunColumns], list[str]]:
    kept: dict[tuple[Names, Names], RunColumns] = {}
    problems: list[str] = []
    folder = figures.collected.folder
    for column in figures.columns:
        for row in figures.rows:
            result = next((result for result in figures.results(row, column).values() if result.records), None)
            if result is not None and result.records is not None:
                try:
                    kept[row, column] = RunColumns.read(folder / result.records)
                except Error as problem:
                    problems.append(str(problem))
    return kept, problems


def _pictures_of(
    figures: SuiteFigures, row: Names, column: Names, run: RunColumns, kept: dict[tuple[Names, Names], RunColumns]
) -> Iterator[Picture]:
    name = ", ".join([*column, *row])
    # Scores of one kind have one range in a column; caches score in hundreds what others score in cosines.
    alike = [other for (_, place), other in kept.items() if place == column and _scale(other) == _scale(run)]
    limits = score_limits(alike)
    yield Picture(f"Scores: {name}", "", run_pictures.histogram(run, limits, "score", run_pictures.SMALL))
    yield Picture(f"Scores over time: {name}", "", run_pictures.scores_over_time(run, limits, run_pictures.SMALL))
    frozen = figures.frozen_row(row, column)
    runs = {row[-1]: run}
    if frozen is not None and (frozen, column) in kept:
        runs = {frozen[-1]: kept[frozen, column], **runs}
    yield Picture(f"Accuracies over time: {name}", "", run_pictures.accuracies_over_time(runs, run_pictures.SMALL))


def _scale(run: RunColumns) -> bool:
    return bool(run.scores.max() > 2)


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
        known, unknown = _class_names(desired), _class_names(undesired)
        said = overlap_sentence(overlap(known, unknown))
        if said:
            yield f"{desired} against {undesired}: {said}"


def _class_names(name: str | None) -> tuple[str, ...]:
    base = "" if name is None else parse_name(name).base
    return class_list(CATALOGUE[base].classes).names if base in CATALOGUE else ()


def _run_details(figures: SuiteFigures) -> Iterator[str]:
    """Each run once: what was asked for, every option with where its value came from, and what it ran on."""
    for row, column, result in figures.distinct:
        content = {
            "file": figures.collected.file_of(result),
            "spec": result.spec.model_dump(mode="json"),
            "options": {
                name: f"{json.dumps(value, ensure_ascii=False)} ({result.option_sources.get(owner, {}).get(name, 'unknown')})"
                for owner, options in result.options.items()
                for name, value in options.items()
            },
            "stream": result.stream.model_dump(mode="json"),
            "counts": result.counts,
            "weight_hash": result.weight_hash,
            "class_names_hash": result.class_names_hash,
            "unfamiliar_classes": result.unfamiliar_classes,
            "seconds": result.seconds,
            "peak_memory_mb": result.peak_memory_mb,
            "versions": result.versions,
            "hardware": result.hardware,
        }
        summary = f"{', '.join([*column, *row])}, seed {result.spec.seed}"
        yield elements.details(summary, json.dumps(content, indent=2, ensure_ascii=False))
