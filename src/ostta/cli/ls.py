"""`ostta ls`: what there is to choose from."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import ls_results
from .listing import print_table

if TYPE_CHECKING:
    from ..config.declare import Option
    from ..config.registry import Component, ComponentKind

app = typer.Typer(
    help="List what there is: methods, scores, identifiers, groups, backbones, options, datasets, profiles, measures, results.",
    no_args_is_help=True,
)


def _cells(row: Iterable[object]) -> list[str]:
    return ["–" if cell is None else f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row]


_Also = Annotated[list[str] | None, typer.Argument(metavar="[FILE.py:NAME]...", help="Those of your own files, too.")]


app.command("results")(ls_results.results)


@app.command()
def methods(also: _Also = None) -> None:
    """The methods: what each trains, remembers and costs. Example: ostta ls methods"""
    print_table(
        "Methods",
        ("method", "trains", "remembers", "passes of the image tower", "paper"),
        [(found.name, *dataclasses.astuple(found.of.facts)) for found in _every("method", also)],
    )


@app.command()
def groups() -> None:
    """The groups of parameters that a method can train: its option `group`. Example: ostta ls groups"""
    from ..methods.trained_overlay import GROUPS

    print_table("Groups of parameters", ("group", "what is trained"), GROUPS.items())


@app.command()
def backbones() -> None:
    """The backbones that are known by name. Example: ostta ls backbones"""
    from ..backbones import backbone_names

    print_table("Backbones", ("backbone", "what it is", "how to get it"), backbone_names())


@app.command()
def identifiers(also: _Also = None) -> None:
    """The identifiers. Example: ostta ls identifiers"""
    rows = [(found.name, found.of.about) for found in _every("identifier", also)]
    print_table("Identifiers", ("identifier", "what it does"), rows)


@app.command()
def scores(also: _Also = None) -> None:
    """The scores. Example: ostta ls scores"""
    print_table("Scores", ("score", "what it is"), [(found.name, found.of.about) for found in _every("score", also)])


@app.command()
def measures() -> None:
    """The measures of `ostta.evaluation.measures` and of installed packages, for the metrics of a suite. Example: ostta ls measures"""
    from ..core.types import Error
    from ..evaluation.measures import find_measure, measure_names

    found = []
    for name in measure_names():
        try:
            found.append(find_measure(name))
        except Error as problem:
            warnings.warn(str(problem), stacklevel=1)
    about = [(each.name, each.heading, (each.compute.__doc__ or "").partition("\n")[0]) for each in found]
    print_table("Measures", ("measure", "heading", "what it is"), about)


def _every(kind: ComponentKind, also: Sequence[str] | None) -> list[Component]:
    """What is registered, and what is in the files that the person names; what cannot be had is said, and the rest goes on."""
    from ..config.plugins import from_file
    from ..config.registry import find_component, list_components

    found, problems = list_components(kind)
    for problem in problems:
        warnings.warn(problem, stacklevel=2)
    return [*found, *(find_component(kind, from_file(name)) for name in also or ())]


@app.command()
def datasets() -> None:
    """The data sets that are known by name. Example: ostta ls datasets"""
    from ..data.by_name import dataset_names

    print_table(
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
def options(
    of: Annotated[
        str,
        typer.Argument(
            metavar="METHOD", help="A method, a score, an identifier, `adapter`, or file.py:Name of your own."
        ),
    ],
) -> None:
    """The options of a method, of a score, of an identifier, or of the adapter. Example: ostta ls options rosita"""
    from ..config.declare import list_options
    from ..config.registry import require_known
    from ..config.resolve import list_options_classes

    known = list_options_classes() | _owners_in([of])
    listed = list_options(known[require_known(of, known, "method, score or identifier")])
    if not listed:
        typer.echo(f"{of} has no options.")
        return
    print_table(
        f"Options of {of}",
        ("option", "takes", "default", "paper", "no.", "what it means"),
        [(one.name, one.takes, one.text(one.default), _paper(one), one.number or "–", one.about) for one in listed],
    )
    typer.echo("paper: its value in the profile `paper`. no.: of the disagreement in docs/disagreements.md.")
    _print_departures({of: listed})


@app.command()
def profiles(also: _Also = None) -> None:
    """The profiles, option by option, with the number of the disagreement. Example: ostta ls profiles"""
    from ..config.declare import PROFILES, UNCHANGED, list_options
    from ..config.profiles import ABOUT, apply_profile
    from ..config.resolve import list_options_classes

    known = {
        owner: list_options(options) for owner, options in (list_options_classes() | _owners_in(also or [])).items()
    }
    print_table(
        "Profiles: what is chosen where nothing is named",
        ("profile", "method", "score", "identifier", "options", "what it is"),
        [
            (
                profile,
                str(picked.method),
                str(picked.score or "max"),
                str(picked.identifier),
                _of_field(known) if profile == "field" else "see below" if profile == "paper" else "–",
                ABOUT[profile],
            )
            for profile in PROFILES
            for picked in [apply_profile(profile)]
        ],
    )
    print_table(
        "Where the paper's text and the published code disagree",
        ("of", "option", "no.", "reference", "paper", "what it is about"),
        [
            (owner, one.name, one.number or "–", one.text(one.default), _paper(one), one.about)
            for owner, listed in known.items()
            for one in listed
            if one.number is not None or one.paper is not UNCHANGED
        ],
    )
    typer.echo("An explicit option beats the backbone's default, which beats the profile.")
    typer.echo("docs/disagreements.md has all 33, those of data and streams too, and what follows from each.")
    _print_departures(known)


def _owners_in(names: Sequence[str]) -> dict[str, Any]:
    """The options classes of the methods, scores and identifiers in a person's own files, by the names that were given."""
    from ..config.plugins import from_file, names_file
    from ..config.registry import find_component

    classes = {name: from_file(name) for name in names if names_file(name)}
    kinds: dict[str, ComponentKind] = {
        name: "method" if hasattr(of, "propose") else "score" if hasattr(of, "value") else "identifier"
        for name, of in classes.items()
    }
    return {name: find_component(kinds[name], of).options for name, of in classes.items()}


def _of_field(known: Mapping[str, Sequence[Option]]) -> str:
    """The options that the profile `field` sets."""
    from ..config.declare import UNCHANGED

    every = [one for listed in known.values() for one in listed if one.field is not UNCHANGED]
    return ", ".join(f"{one.name}={one.text(one.field)}" for one in every) or "–"


def _paper(one: Option) -> str:
    from ..config.declare import UNCHANGED

    return "same" if one.paper is UNCHANGED else one.text(one.paper)


def _print_departures(known: Mapping[str, Sequence[Option]]) -> None:
    """Where the defaults are not what the published code does."""
    from ..config.declare import UNCHANGED

    every = [(owner, one) for owner, listed in known.items() for one in listed]
    bugs = [f"  {owner}: {one.name}=reference  {one.bug} ({one.number})" for owner, one in every if one.bug]
    others = [
        f"  {owner}: {one.name}={one.text(one.published)}  {one.about} ({one.number})"
        for owner, one in every
        if one.published is not UNCHANGED
    ]
    for heading, lines in (
        ("Published bugs that are mended by default, and the option that brings each back:", bugs),
        ("What the published code does otherwise than the default, without being a bug:", others),
    ):
        for line in (heading, *lines) if lines else ():
            typer.echo(line)
