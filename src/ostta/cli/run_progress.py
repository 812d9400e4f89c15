"""The progress line of a run: on a terminal a bar, elsewhere nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@contextmanager
def progress_line(name: str) -> Iterator[Callable[[int, int, float | None], None]]:
    """A function `watch(done, total, hm)` that keeps one line on stderr up to date."""
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
            # The bar redraws ten times a second; telling it about every image would cost more than some methods do.
            if done % 10 == 0 or done == total:
                bar.update(task, completed=done, total=total, hm="" if hm is None else f"HM {hm:.2f}")

        yield watch
