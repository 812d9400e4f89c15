"""Whether a process that has carried out a run is as good as a new one for the next.

Before each run the environment, the working folder and the filters of warnings are what they were at the start, and torch's random
numbers begin where they do in a new process. After it, what else a run could have left behind is looked at: settings of torch, threads
at work, and memory. A process that has any of it is not used again.
"""

from __future__ import annotations

import gc
import os
import threading
import warnings
from collections.abc import Callable
from typing import Any

import torch

from ..run.memory import can_reset_peak, give_back, memory_now
from .job import Ending

# Bytes that a process may grow by: libraries that some runs need and others do not, and the allocator's odd ends.
MOST_GROWTH = 500_000_000


class Freshness:
    """What this process was like before its first run; `memory` says how many bytes it has."""

    def __init__(self, memory: Callable[[], int | None] = memory_now) -> None:
        self._memory = memory
        self._seed, self._settings = torch.initial_seed(), _settings()
        self._environment, self._folder = dict(os.environ), os.getcwd()
        self._filters = list(warnings.filters)
        self._least: int | None = None
        self._model: tuple[str, ...] = ()

    def begin(self) -> None:
        """Before a run."""
        if dict(os.environ) != self._environment:
            os.environ.clear()
            os.environ.update(self._environment)
        os.chdir(self._folder)
        warnings.filters[:] = self._filters  # type: ignore[index]
        torch.manual_seed(self._seed)

    def restored(self, ending: Ending) -> bool:
        """After a run: whether the next one may have this process too."""
        return (
            # What nobody foresaw may have left anything.
            ending.trace is None
            and _settings() == self._settings
            and not any(_at_work())
            # Else the peak memory of the next run would be that of this one.
            and can_reset_peak()
            and not self._leaked(ending)
        )

    def _leaked(self, ending: Ending) -> bool:
        """Whether the process has grown since its first run on this backbone, by what cannot be given back."""
        model = (ending.spec.backbone, ending.spec.device, ending.spec.dtype)
        if model != self._model:
            self._model, self._least = model, None
            # What is there now stays: looking through it before each run would take as long as a short run.
            gc.unfreeze()
            give_back()
            gc.freeze()
        now = self._memory()
        if now is None:
            return True
        least = now if self._least is None else self._least
        if now > least + MOST_GROWTH:
            give_back()
            now = self._memory() or now
        self._least = min(least, now)
        return now > least + MOST_GROWTH


def _settings() -> dict[str, Any]:
    return {
        "threads": torch.get_num_threads(),
        "dtype": torch.get_default_dtype(),
        "device": str(torch.get_default_device()),
        "gradients": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "matmul": torch.get_float32_matmul_precision(),
    }


def _at_work() -> list[threading.Thread]:
    """The threads that somebody still waits for; those that only watch, such as a progress bar's, are daemons."""
    return [each for each in threading.enumerate() if not each.daemon and each is not threading.main_thread()]
