"""The progress of a grid of runs: on a terminal bars that move, elsewhere a line now and then."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from ..bench.requirements import MissingError
from ..bench.runner import GridProgress
from ..bench.spec import RunSpec
from ..bench.worker import Outcome
from ..core.words import counted

# Seconds between two lines where nobody watches.
PAUSE = 30.0


@contextmanager
def grid_progress() -> Iterator[Callable[[GridProgress], None]]:
    """A function that shows a `GridProgress` on stderr."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Lines(console)
        return
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=16), TextColumn("{task.fields[what]}"))
    with Progress(*columns, console=console, transient=True) as bars:
        yield _Bars(bars)


class _Lines:
    def __init__(self, console: Console) -> None:
        self._console, self._told = console, time.monotonic()

    def __call__(self, progress: GridProgress) -> None:
        if time.monotonic() - self._told >= PAUSE:
            self._told = time.monotonic()
            self._console.print(_state(progress), highlight=False, soft_wrap=True)


class _Bars:
    """One bar for the grid, and one below it for each run under way."""

    def __init__(self, bars: Progress) -> None:
        self._bars, self._whole = bars, bars.add_task("runs", total=None, what="")
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, progress: GridProgress) -> None:
        self._bars.update(self._whole, completed=progress.finished, total=progress.total, description=_state(progress))
        for key in self._tasks.keys() - progress.active.keys():
            self._bars.remove_task(self._tasks.pop(key))
        for key, run in progress.active.items():
            if key not in self._tasks:
                self._tasks[key] = self._bars.add_task(title(run.spec), total=None, what="starting")
            if run.total:
                what = f"{run.done}/{run.total}"
                self._bars.update(self._tasks[key], completed=run.done, total=run.total, what=what)


def title(spec: RunSpec) -> str:
    """A run in a few words."""
    sets = "own domains" if spec.scenario.kind == "domains" else f"{spec.desired}/{spec.undesired or 'closed'}"
    return f"{spec.method} {sets} seed {spec.seed}"


def tell_missing(problem: MissingError, suite: str | None = None) -> None:
    """All that is missing, one line each, with how to get it and what can be done without. `suite` is the suite of the runs."""
    typer.echo(problem.head, err=True)
    for each in problem.missing:
        typer.echo(f"  {counted(len(each.runs), 'run')}: {each.reason}", err=True)
    if any(each.data for each in problem.missing):
        what = "NAME" if suite is None else f"--for {shlex.quote(suite)}"
        typer.echo(f"`ostta data get {what} --data FOLDER` fetches the data sets that can be downloaded.", err=True)
    if problem.way_out:
        typer.echo(problem.way_out, err=True)


def duration(seconds: float) -> str:
    """Seconds as a person says them.

    >>> duration(7.4), duration(125), duration(7_300)
    ('7 s', '2 min 05 s', '2 h 01 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3_600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3_600} h {whole % 3_600 // 60:02d} min"


def _state(progress: GridProgress) -> str:
    ended = sum(progress.ended.values())
    failed = f", {progress.ended[Outcome.FAILED]} failed" if progress.ended[Outcome.FAILED] else ""
    left = "" if progress.left is None else f", about {duration(progress.left)} left"
    return f"{ended}/{progress.total} runs{failed}, {len(progress.active)} under way{left}"
