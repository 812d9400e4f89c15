"""How to make the figures of a suite again: the commands, and under each run what it was."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence

from ...pages import Command, Folded, Part, Text
from ..command import needs_data, run_command
from ..result import Result
from ..tables.opening import is_folder
from ..tables.suite_figures import SuiteFigures


def runs_again(figures: SuiteFigures) -> Iterator[Part]:
    """The command of the whole suite, then each run, folded."""
    collected = figures.collected
    data = " --data DATA" * any(needs_data(result.spec) for _, _, result in figures.distinct)
    if is_folder(figures.suite.name):
        page = f"ostta bench report {shlex.quote(figures.suite.name)}"
    else:
        page = collected.command.replace("ostta bench run", "ostta bench report", 1)
        about = "All runs; what is there already is not run again."
        yield Command(f"{collected.command}{data}", f"{about} DATA is the folder of the data sets." if data else about)
    yield Command(f"{page}{data}", "This page.")
    yield Text("Each run, with its options and where each value came from:")
    places: dict[str, list[Result]] = {}
    for row, column, result in figures.distinct:
        places.setdefault(", ".join([*column, *row]), []).append(result)
    for name, results in places.items():
        seeds = ", ".join(str(result.spec.seed) for result in results)
        files = [collected.file_of(result) for result in results]
        yield Folded(f"{name}, seed{'s' * (len(results) > 1)} {seeds}", list(run_parts(results, files)))


def run_parts(results: Sequence[Result], files: Sequence[str] = ()) -> Iterator[Part]:
    """The commands of runs that differ in the seed only, their options and what they ran on."""
    commands = [command for result in results if (command := run_command(result.spec)) is not None]
    if commands:
        data = " --data DATA" * needs_data(results[0].spec)
        yield Command("\n".join(f"{command}{data}" for command in commands))
    else:
        yield Text("Only the suite can ask for this run.", "note")
    first = results[0]
    options = [
        f"{name} {_value(value)} ({first.option_sources.get(owner, {}).get(name, 'unknown')})"
        for owner, values in first.options.items()
        for name, value in values.items()
    ]
    yield Text(f"Options: {', '.join(options)}." if options else "No options.", "note")
    for result, file in zip(results, files or [""] * len(results), strict=True):
        yield Text(_trace(result, file), "note")


def _trace(result: Result, file: str) -> str:
    """Where a result came from, in one sentence."""
    counts = ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in result.counts.items() if count)
    versions = ", ".join(f"{name} {version}" for name, version in result.versions.items())
    memory = "" if result.peak_memory_mb is None else f", {result.peak_memory_mb:,.0f} MB at most"
    unfamiliar = f" Unfamiliar classes: {', '.join(result.unfamiliar_classes)}." if result.unfamiliar_classes else ""
    return (
        f"Seed {result.spec.seed}{f', file {file}' if file else ''}: {counts}; {result.updates:,} updates; {result.seconds:,.1f} s{memory}; stream "
        f"{result.stream.hash[:12]}, weights {result.weight_hash[:12]}, class names {result.class_names_hash[:12]}; {versions}; "
        f"{result.hardware}.{unfamiliar}"
    )


def _value(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
