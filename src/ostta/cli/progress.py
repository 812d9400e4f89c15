"""Progress and problems of downloads and runs on stderr.

Progress is shown as bars on a terminal. Elsewhere, a grid of runs prints a line every half minute.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

if TYPE_CHECKING:
    from ..bench.runner import GridProgress, MissingError, Summary
    from ..bench.spec import RunSpec

# Seconds between two lines if stderr is not a terminal.
INTERVAL = 30.0


@contextmanager
def progress_line(name: str) -> Iterator[Callable[[int, int, float | None], None]]:
    """Show one bar. Yields a function `watch(done, total, hm)`."""
    columns = (
        TextColumn("{task.description:<10}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[hm]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(name, total=None, hm="")

        def watch(done: int, total: int, hm: float | None) -> None:
            # An update after every image would cost more than some methods do.
            if done % 10 == 0 or done == total:
                bar.update(task, completed=done, total=total, hm="" if hm is None else f"HM {hm:.2f}")

        yield watch


@contextmanager
def download_progress() -> Iterator[Callable[[str, int, int | None], None]]:
    """Show one bar per file. Yields a function `watch(file, done, total)`, which counts bytes."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bars:
        tasks: dict[str, TaskID] = {}

        def watch(file: str, done: int, total: int | None) -> None:
            if file not in tasks:
                tasks[file] = bars.add_task(file, total=total)
            bars.update(tasks[file], completed=done, total=total)

        yield watch


def run_runs(
    specs: Sequence[RunSpec], data: Path | None, out: Path, suite: str | None = None, **options: Any
) -> Summary:
    """Run `specs` with the `options` of `run_grid` and print why runs failed; exit if something is missing."""
    from ..bench.naming import run_title
    from ..bench.runner import MissingError, run_grid

    try:
        with grid_progress() as watch:
            summary = run_grid(specs, data, out, watch=watch, **options)
    except MissingError as problem:
        print_missing(problem, suite)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        typer.echo(f"Stopped. {out} keeps the finished runs; the same command carries out the others.", err=True)
        raise
    for ending in summary.failed:
        typer.echo(f"{run_title(ending.spec)} failed: {ending.reason}", err=True)
    return summary


def print_missing(problem: MissingError, suite: str | None = None) -> None:
    """Print everything that is missing, one line each, and how to continue. `suite` is the suite of the runs."""
    from ..core.text import counted

    typer.echo(problem.head, err=True)
    for each in problem.missing:
        typer.echo(f"  {counted(len(each.runs), 'run')}: {each.reason}", err=True)
    if any(each.data for each in problem.missing):
        name = "NAME" if suite is None else f"--for {shlex.quote(suite)}"
        typer.echo(f"`ostta data get {name} --data FOLDER` downloads data sets, if they can be downloaded.", err=True)
    if problem.way_out:
        typer.echo(problem.way_out, err=True)


@contextmanager
def grid_progress() -> Iterator[Callable[[GridProgress], None]]:
    """Show one bar for a grid and one for each active run; yields a function to call with the progress."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=16), TextColumn("{task.fields[state]}"))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        yield _Bars(bars) if console.is_terminal else _Lines(console)


class _Lines:
    def __init__(self, console: Console) -> None:
        self._console, self._printed_at = console, time.monotonic()

    def __call__(self, progress: GridProgress) -> None:
        if time.monotonic() - self._printed_at >= INTERVAL:
            self._printed_at = time.monotonic()
            self._console.print(_state(progress), highlight=False, soft_wrap=True)


class _Bars:
    def __init__(self, bars: Progress) -> None:
        self._bars, self._grid = bars, bars.add_task("runs", total=None, state="")
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, progress: GridProgress) -> None:
        from ..bench.naming import run_title

        self._bars.update(self._grid, completed=progress.finished, total=progress.total, description=_state(progress))
        for key in self._tasks.keys() - progress.active.keys():
            self._bars.remove_task(self._tasks.pop(key))
        for key, run in progress.active.items():
            if key not in self._tasks:
                self._tasks[key] = self._bars.add_task(run_title(run.spec), total=None, state="starting")
            if run.total:
                state = f"{run.done}/{run.total}"
                self._bars.update(self._tasks[key], completed=run.done, total=run.total, state=state)


def _state(progress: GridProgress) -> str:
    from ..bench.workers import Outcome

    failed = f", {progress.ended[Outcome.FAILED]} failed" if progress.ended[Outcome.FAILED] else ""
    left = "" if progress.left is None else f", about {duration(progress.left)} left"
    return f"{sum(progress.ended.values())}/{progress.total} runs{failed}, {len(progress.active)} active{left}"


def duration(seconds: float) -> str:
    """Return seconds as text.

    >>> duration(7.4), duration(125), duration(7_300)
    ('7 s', '2 min 05 s', '2 h 01 min')
    """
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 1:
        return f"{rest} s"
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"
