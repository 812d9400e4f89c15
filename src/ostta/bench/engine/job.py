"""One run of a grid, as it is handed to whoever carries it out, and how it ended."""

from __future__ import annotations

import traceback
from enum import StrEnum
from pathlib import Path

from pydantic import Field

from ...backbones.protocol import Backbone
from ...core.types import Error
from ..file_model import FileModel
from ..own_code import know_sources
from ..run.checkpoint import EVERY
from ..run.execute import Watch, ensure_result, prepare
from ..spec import RunSpec, run_key


class Job(FileModel):
    """What to run, on which data, and into which folder."""

    spec: RunSpec
    root: Path | None
    out: Path
    # As for `ensure_result`.
    keep_records: bool | None = None
    checkpoint_every: int = EVERY
    cache_features: bool = False
    log: str | None = None
    # The content of the files of code that the spec names: they need not be where the run is carried out.
    sources: list[str] = Field(default_factory=list)


class Outcome(StrEnum):
    """How a run ended."""

    DONE = "done"
    SKIPPED = "skipped"
    FAILED = "failed"


class Ending(FileModel):
    """How a run ended; where it failed, `reason` is a sentence and `trace` is there if nobody had foreseen it."""

    spec: RunSpec
    state: Outcome
    reason: str = ""
    trace: str | None = None

    @property
    def key(self) -> str:
        return run_key(self.spec)


def attempt(job: Job, watch: Watch | None = None, backbone: Backbone | None = None) -> Ending:
    """Carry out a locked run, on `backbone` where it is loaded already; whatever goes wrong is part of the ending."""
    try:
        know_sources(job.sources)
        made = ensure_result(
            prepare(job.spec, job.root, backbone),
            job.out,
            keep_records=job.keep_records,
            watch=watch,
            checkpoint_every=job.checkpoint_every,
            locked=True,
            cache_features=job.cache_features,
            log=job.log,
        )
    except Error as problem:
        return Ending(spec=job.spec, state=Outcome.FAILED, reason=str(problem))
    except Exception as problem:
        reason = f"An unexpected {type(problem).__name__}: {str(problem) or 'no more is known'}."
        return Ending(spec=job.spec, state=Outcome.FAILED, reason=reason, trace=traceback.format_exc())
    return Ending(spec=job.spec, state=Outcome.DONE if made.fresh else Outcome.SKIPPED)
