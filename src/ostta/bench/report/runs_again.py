"""How to make the figures of a suite again: the commands, and under each run what it was."""

from __future__ import annotations

import json
from collections.abc import Iterator

from ...pages import Command, Folded, Part, Text
from ..command import needs_data, run_command
from ..result import Result
from ..tables.suite_figures import SuiteFigures


def runs_again(figures: SuiteFigures) -> Iterator[Part]:
    """The command of the whole suite, then each run, folded."""
    collected = figures.collected
    data = " --data DATA" * any(needs_data(result.spec) for _, _, result in figures.distinct)
    yield Command(f"{collected.command}{data}", "All runs; what is there already is not run again. DATA is the folder of the data sets.")
    yield Command(collected.command.replace("ostta bench run", "ostta bench report", 1) + data, "This page.")
    yield Text("Each run, with its options and where each value came from:")
    for row, column, result in figures.distinct:
        name = ", ".join([*column, *row])
        yield Folded(f"{name}, seed {result.spec.seed}", list(run_parts(result, collected.file_of(result))))


def run_parts(result: Result, file: str = "") -> Iterator[Part]:
    """The command of one run, its options and what it ran on."""
    command = run_command(result.spec)
    if command is None:
        yield Text("Only the suite can ask for this run.", "note")
    else:
        yield Command(command + " --data DATA" * needs_data(result.spec))
    options = [
        f"{name} {_value(value)} ({result.option_sources.get(owner, {}).get(name, 'unknown')})"
        for owner, values in result.options.items()
        for name, value in values.items()
    ]
    yield Text(f"Options: {', '.join(options)}." if options else "No options.", "note")
    counts = ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in result.counts.items() if count)
    versions = ", ".join(f"{name} {version}" for name, version in result.versions.items())
    memory = "" if result.peak_memory_mb is None else f", {result.peak_memory_mb:,.0f} MB at most"
    named = f"File {file}; " if file else ""
    unfamiliar = f" Unfamiliar classes: {', '.join(result.unfamiliar_classes)}." if result.unfamiliar_classes else ""
    yield Text(
        f"{named}images: {counts}; {result.updates:,} updates; {result.seconds:,.1f} s{memory}; stream {result.stream.hash[:12]}, "
        f"weights {result.weight_hash[:12]}, class names {result.class_names_hash[:12]}; {versions}; {result.hardware}.{unfamiliar}",
        "note",
    )


def _value(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
