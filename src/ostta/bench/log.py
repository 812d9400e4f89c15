"""Log of a run while it goes on: curves, options and figures for TensorBoard."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..core.errors import import_extra, translate_errors
from ..core.types import Error, Prediction
from .result import Result

# Points of a curve at most, so that a long run does not fill the disk.
MOST_POINTS = 2_000


def check_log(log: str) -> Path:
    """Return the folder of a log such as "tensorboard:FOLDER".

    >>> check_log("tensorboard:curves").name
    'curves'
    """
    kind, _, folder = log.partition(":")
    if kind != "tensorboard" or not folder:
        raise Error(f"A log is named as tensorboard:FOLDER, not {log!r}.", code="option-unreadable")
    return Path(folder).expanduser()


class RunLog:
    """Log of one run, in the folder `name` of `log`. A log that cannot be written does not stop the run.

    first: number of the first image of this process; TensorBoard ignores what an earlier process wrote about it and
    later images. total: number of images of the run.
    """

    def __init__(self, log: str, name: str, first: int, total: int) -> None:
        self._writer = _summary_writer(check_log(log) / name, first)
        self._total, self._every = total, -(-total // MOST_POINTS)

    def step(self, done: int, prediction: Prediction, hm: float | None) -> None:
        """Add a point to the curves, unless there would be too many. `done` counts images from 1."""
        if done % self._every and done != self._total:
            return
        values = {"hm": hm, "score": prediction.score, "threshold": prediction.threshold, "loss": prediction.loss}
        with suppress(OSError):
            for name, value in values.items():
                if value is not None:
                    self._writer.add_scalar(f"stream/{name}", value, done)

    def end(self, result: Result) -> None:
        """Add spec, options and figures of the finished run."""
        spec = result.spec
        options = {
            name: value if isinstance(value, bool | int | float | str) else json.dumps(value)
            for owner in result.options.values()
            for name, value in owner.items()
        }
        named = {"method": spec.method, "identifier": spec.identifier, "backbone": spec.backbone, "seed": spec.seed}
        metrics = result.metrics.model_dump()
        figures = {f"figures/{name}": value for name, value in metrics.items() if isinstance(value, float)}
        with suppress(OSError):
            self._writer.add_text("spec", f"```\n{spec.model_dump_json(indent=2)}\n```")
            self._writer.add_hparams(options | named, figures, run_name=".")

    def close(self) -> None:
        with suppress(OSError):
            self._writer.close()


def _summary_writer(folder: Path, first: int) -> Any:
    # Without this import, the error of torch does not say what to install.
    import_extra("tensorboard", "The log tensorboard", "tensorboard")
    from torch.utils.tensorboard import SummaryWriter

    with translate_errors("file-not-written", f"The log in {folder} cannot be written ({{reason}}).", OSError):
        return SummaryWriter(str(folder), purge_step=first if first > 1 else None)
