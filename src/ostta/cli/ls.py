"""`ostta ls`: what there is to choose from."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import typer

app = typer.Typer(
    help="List what there is: methods, groups, backbones, identifiers, datasets, profiles.", no_args_is_help=True
)


def _print(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def _cells(row: Iterable[object]) -> list[str]:
    return ["–" if cell is None else f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row]


@app.command()
def methods() -> None:
    """The methods: what each trains, remembers and costs. Example: ostta ls methods"""
    from ..methods import METHODS

    _print(
        "Methods",
        ("method", "trains", "remembers", "passes of the image tower", "paper"),
        [(name, *dataclasses.astuple(method.facts)) for name, method in METHODS.items()],
    )


@app.command()
def groups() -> None:
    """The groups of parameters that a method can train: its option `group`. Example: ostta ls groups"""
    from ..methods.tuned import GROUPS

    _print("Groups of parameters", ("group", "what is trained"), GROUPS.items())


@app.command()
def backbones() -> None:
    """The backbones that are known by name. Example: ostta ls backbones"""
    from ..backbones import backbone_names

    _print("Backbones", ("backbone", "what it is", "how to get it"), backbone_names())


@app.command()
def identifiers() -> None:
    """The identifiers. Example: ostta ls identifiers"""
    from ..identifiers import IDENTIFIERS

    _print("Identifiers", ("identifier", "what it does"), [(name, entry[2]) for name, entry in IDENTIFIERS.items()])


@app.command()
def datasets() -> None:
    """The data sets that are known by name. Example: ostta ls datasets"""
    from ..data.datasets import dataset_names

    _print(
        "Data sets",
        ("data set", "images", "classes", "where it comes from; ROOT is your data folder"),
        [_cells((row.name, row.images, row.classes, row.where)) for row in dataset_names()],
    )
    typer.echo("A split is named behind a colon, and the first is meant where none is named:")
    for row in dataset_names():
        if len(row.splits) > 1:
            # The 27 sequences of CCC would fill the screen.
            few = ", ".join(row.splits) if len(row.splits) < 4 else f"{row.splits[0]} and {len(row.splits) - 1} more"
            typer.echo(f"  {row.name}: {few}")


@app.command()
def profiles() -> None:
    """The profiles, option by option, with the number of the disagreement. Example: ostta ls profiles"""
    from ..options import DISAGREEMENTS, MENDED_BUGS, PROFILES, options_class

    rows = []
    for owner, entries in DISAGREEMENTS.items():
        defaults = options_class(owner)()
        for option, (number, meaning) in entries.items():
            reference = str(getattr(defaults, option))
            paper = str(PROFILES["paper"].get(owner, {}).get(option, "same"))
            rows.append((owner, option, number, meaning, reference, paper))
    _print(
        "Profiles: where the paper's text and the published code disagree",
        ("of", "option", "no.", "what it is about", "reference", "paper"),
        rows,
    )
    typer.echo("An explicit option beats the backbone's default, which beats the profile.")
    typer.echo("docs/disagreements.md has all 33, those of data and streams too, and what follows from each.")
    typer.echo("Published bugs that are mended by default, and the option that brings each back:")
    for option, bug in MENDED_BUGS.items():
        typer.echo(f"  {option}=reference  {bug}")
