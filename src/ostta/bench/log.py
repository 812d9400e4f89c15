"""Logs of runs while they go on, for programs that draw them. Another kind is a class with these three methods, and a line in `LOGS`."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from ..core.types import Error, Prediction
from .result import Result

# Points a curve, at most: more than this no screen shows, and a long run would fill the disk.
MOST_POINTS = 2_000


class RunLog(Protocol):
    """What a run tells. `done` counts images from 1."""

    def step(self, done: int, prediction: Prediction, hm: float | None) -> None:
        """One image, what was said of it, and the HM so far."""

    def end(self, result: Result) -> None:
        """The run is over, and this came out."""

    def close(self) -> None:
        """Nothing more will be told, whether the run ended or not."""


class TensorBoard:
    """Events that TensorBoard reads, in a folder for each run: curves over the stream, options and figures."""

    def __init__(self, folder: Path, first: int) -> None:
        """`first` is the first image that will be told of; what an earlier process told of it and later ones is passed over."""
        try:
            import tensorboard  # noqa: F401 - torch says of its absence less than we do
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise Error(
                "The log tensorboard needs TensorBoard: pip install 'ostta[tensorboard]'.", code="library-missing"
            ) from None
        try:
            self._writer: Any = SummaryWriter(str(folder), purge_step=first if first > 1 else None)
        except OSError as problem:
            raise Error(
                f"The log in {folder} cannot be written ({problem.strerror}).", code="file-not-written"
            ) from None

    def step(self, done: int, prediction: Prediction, hm: float | None) -> None:
        values = {"hm": hm, "score": prediction.score, "threshold": prediction.threshold, "loss": prediction.loss}
        for name, value in values.items():
            if value is not None:
                self._writer.add_scalar(f"stream/{name}", value, done)

    def end(self, result: Result) -> None:
        options = {
            name: value if isinstance(value, bool | int | float | str) else json.dumps(value)
            for owner in result.options.values()
            for name, value in owner.items()
        }
        spec = result.spec
        named = {"method": spec.method, "identifier": spec.identifier, "backbone": spec.backbone, "seed": spec.seed}
        figures = {
            f"figures/{name}": value for name, value in result.metrics.model_dump().items() if isinstance(value, float)
        }
        self._writer.add_text("spec", f"```\n{spec.model_dump_json(indent=2)}\n```")
        self._writer.add_hparams(options | named, figures, run_name=".")

    def close(self) -> None:
        self._writer.close()


LOGS: dict[str, Callable[[Path, int], RunLog]] = {"tensorboard": TensorBoard}


def check_log(log: str) -> tuple[str, Path]:
    """The kind and the folder of a log such as "tensorboard:FOLDER".

    >>> check_log("tensorboard:curves")[0]
    'tensorboard'
    """
    kind, colon, folder = log.partition(":")
    if kind not in LOGS or not colon or not folder:
        raise Error(
            f"A log is named as {' or '.join(f'{name}:FOLDER' for name in LOGS)}, not {log!r}.",
            code="option-unreadable",
        )
    return kind, Path(folder).expanduser()


def open_log(log: str, name: str, first: int) -> RunLog:
    """The log of one run, in a folder called `name`."""
    kind, folder = check_log(log)
    return LOGS[kind](folder / name, first)


class Thinned:
    """Tells a log of at most `MOST_POINTS` images, evenly through the stream, and of the last. A log that fails stops no run."""

    def __init__(self, log: RunLog, total: int) -> None:
        self._log, self._total, self._every = log, total, -(-total // MOST_POINTS)

    def step(self, done: int, prediction: Prediction, hm: float | None) -> None:
        if done % self._every == 0 or done == self._total:
            with suppress(OSError):
                self._log.step(done, prediction, hm)

    def end(self, result: Result) -> None:
        with suppress(OSError):
            self._log.end(result)

    def close(self) -> None:
        with suppress(OSError):
            self._log.close()
