"""The commands of `ostta`, one file each."""

from __future__ import annotations

from typing import Annotated

import typer

from . import backbone, bench, compare, data, demo, features, ls, run, serve, stream

app = typer.Typer(
    help="Open-set single-image test-time adaptation for vision-language models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    if wanted:
        from .. import __version__

        typer.echo(__version__)
        raise typer.Exit()


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


app.command("demo")(demo.demo)
app.command("run")(run.run)
app.command("compare")(compare.compare)
app.command("stream")(stream.stream)
app.command("serve")(serve.serve)
app.add_typer(ls.app, name="ls")
app.add_typer(backbone.app, name="backbone")
app.add_typer(data.app, name="data")
app.add_typer(features.app, name="features")
app.add_typer(bench.app, name="bench")
