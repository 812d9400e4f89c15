"""Result files: one JSON a run, with everything needed to trace its figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..core.types import Error
from ..metrics import CONVENTION
from ..state import write_atomically

SCHEMA = 1


class Strict(BaseModel):
    """No unknown fields: a misspelt one is an error, not a silent default."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class RunSpec(Strict):
    """What was asked for: one method on one stream. Two runs with equal specs and equal weights give equal figures."""

    backbone: str = "embedded"
    method: str = "rosita"
    identifier: str = "lda"
    profile: str = "reference"
    options: dict[str, Any] = Field(default_factory=dict)
    desired: str = "cifar10c"
    undesired: str | None = "mnist"
    corruption: str = "snow"
    severity: int = 5
    ratio: float = 1.0
    limit: int | None = None
    classes: list[str] | None = None
    seed: int = 0


class Side(Strict):
    """One side of the stream: which data set, how many images, and where its pixels come from."""

    name: str
    images: int
    classes: int
    origin: str
    note: str = ""


class StreamInfo(Strict):
    """The stream, and the hash of its order."""

    hash: str
    desired: Side
    undesired: Side | None
    seed: int


class Metrics(Strict):
    """In percent; None where the stream has only one side."""

    auroc: float | None
    fpr95: float | None
    acc_desired: float | None
    acc_undesired: float | None
    hm: float | None
    convention: str = CONVENTION


class Quantiles(Strict):
    """Median and 95th percentile."""

    p50: float
    p95: float


class Latency(Strict):
    """Milliseconds a step, preprocessing left out."""

    encode: Quantiles
    decide: Quantiles
    update: Quantiles
    total: Quantiles


class Result(Strict):
    """The content of a result file."""

    schema_version: int = SCHEMA
    spec: RunSpec
    options: dict[str, Any]
    option_sources: dict[str, str]
    stream: StreamInfo
    weight_hash: str
    class_names_hash: str
    unfamiliar_classes: list[str]
    metrics: Metrics
    counts: dict[str, int]
    updates: int
    latency_ms: Latency
    peak_memory_mb: float
    seconds: float
    versions: dict[str, str]
    hardware: str
    remarks: list[str]
    records: str | None = None

    def write(self, path: Path) -> None:
        write_atomically(path, (json.dumps(self.model_dump(mode="json"), indent=2, ensure_ascii=False) + "\n").encode())


def read_result(path: Path) -> Result:
    """A result file, checked against the schema."""
    try:
        return Result.model_validate_json(path.read_bytes())
    except OSError as problem:
        raise Error(f"The result file {path} cannot be read ({problem.strerror}).") from None
    except ValidationError as problem:
        first = problem.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the whole file"
        raise Error(f"{path} is not a result file of this version ({place}: {first['msg']}).") from None
