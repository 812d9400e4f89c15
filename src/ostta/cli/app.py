"""All commands of `ostta`: the command `bench table` is the function `table` in bench_table.py."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated

import typer

COMMANDS = "demo sort stream serve run compare"
GROUPS = {
    "bench": (
        "Run suites of experiments and show results.",
        "ls run table report pictures verify",
    ),
    "ls": (
        "List methods, backbones, data sets and other names.",
        "methods scores identifiers profiles options groups backbones datasets measures results",
    ),
    "data": ("Check and download data sets.", "check get"),
    "features": ("Encode images once and store their features.", "extract"),
    "backbone": ("Choose, export and prepare backbones.", "suggest export statistics"),
}

app = typer.Typer(
    help="Open-set single-image test-time adaptation for vision-language models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(requested: bool) -> None:
    if requested:
        from .. import __version__

        typer.echo(__version__)
        raise typer.Exit()


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def _add(group: typer.Typer, name: str, file: str) -> None:
    group.command(name)(getattr(import_module(f".{file}", __package__), name))


for _name in COMMANDS.split():
    _add(app, _name, _name)
for _group_name, (_help, _names) in GROUPS.items():
    # Without a callback, a group with a single command would be that command.
    _group = typer.Typer(help=_help, no_args_is_help=True, callback=lambda: None)
    for _name in _names.split():
        _add(_group, _name, f"{_group_name}_{_name}")
    app.add_typer(_group, name=_group_name)
