"""Result files: one JSON a run, with everything needed to trace its figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field, ValidationError, ValidationInfo, field_validator

from ..analyses import BankBytes, Distances, ReliableAccuracy
from ..core.types import Error
from ..data.names import placed
from ..files import is_unicode, read_regular, readable, write_atomically
from ..metrics import CONVENTION
from ..options import canonical
from .file_model import Strict as Strict
from .file_model import first_problem
from .scenario import Scenario, SingleScenario

SCHEMA = 1


class RunSpec(Strict):
    """What was asked for: one method on one stream. Two runs with equal specs and equal weights give equal figures.

    Options and paths are kept in one form, so that `lr=1e-3` typed and `lr = 0.001` in a suite ask for the same run.
    """

    later: ClassVar[tuple[str, ...]] = ("scenario",)

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
    scenario: Scenario = Field(default_factory=SingleScenario)

    @field_validator("options")
    @classmethod
    def _canonical(cls, given: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        return canonical(info.data.get("method", ""), info.data.get("identifier", ""), given)

    @field_validator("backbone", "desired", "undesired")
    @classmethod
    def _writable(cls, name: str | None) -> str | None:
        if name is not None and not is_unicode(name):
            raise ValueError(f"the name {name!r} is not valid Unicode text, and a result could not be filed under it")
        return name

    @field_validator("desired", "undesired")
    @classmethod
    def _placed(cls, name: str | None) -> str | None:
        return None if name is None else placed(name)


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


class Figures(Strict):
    """In percent; None where there are images of one side only.

    Of FPR95 there are three, by the conventions that `ostta.metrics` describes; files from before that have one.
    """

    later: ClassVar[tuple[str, ...]] = ("fpr95_strict", "fpr95_undesired")

    auroc: float | None
    fpr95: float | None
    acc_desired: float | None
    acc_undesired: float | None
    hm: float | None
    fpr95_strict: float | None = None
    fpr95_undesired: float | None = None


class Metrics(Figures):
    """The figures over the whole stream."""

    convention: str = CONVENTION


class DomainFigures(Strict):
    """The figures over the images of one domain."""

    name: str
    images: int
    metrics: Figures


class Quantiles(Strict):
    """Median and 95th percentile, and the mean: steps that learn can cost tens of times the others, which a median hides."""

    later: ClassVar[tuple[str, ...]] = ("mean",)

    p50: float
    p95: float
    mean: float | None = None


class Latency(Strict):
    """Milliseconds a step, preprocessing left out."""

    encode: Quantiles
    decide: Quantiles
    update: Quantiles
    total: Quantiles


class Analyses(Strict):
    """What the paper measures beside the five figures; `ostta.analyses` has the formulas. None: this run cannot give it.

    stream_distances are of all images' features, where the adapter option `features` kept them; bank_distances of the method's two
    banks at the end; average_matches is the mean K+ of L_D; reliable is in percent.
    """

    stream_distances: Distances | None
    bank_distances: Distances | None
    average_matches: float | None
    reliable: ReliableAccuracy
    bank_bytes: BankBytes
    adapted_parameters: int | None


class Result(Strict):
    """The content of a result file.

    `domains` and the plain mean of their HM are there where the scenario has several. The mean is the headline of a continual run;
    it is None where a domain has no HM. `peak_memory_mb` is None where the system does not say.
    """

    later: ClassVar[tuple[str, ...]] = ("domains", "hm_mean_domains", "analyses", "threads")

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
    peak_memory_mb: float | None
    seconds: float
    versions: dict[str, str]
    hardware: str
    remarks: list[str]
    # A file beside this one: a result file makes nobody read another place.
    records: Annotated[str, Field(pattern=r"^[^/\\]+\.parquet$")] | None = None
    domains: list[DomainFigures] = Field(default_factory=list)
    hm_mean_domains: float | None = None
    analyses: Analyses | None = None
    # The last bits of a sum depend on how many threads share it, so a run can be repeated exactly only with as many.
    threads: int | None = None

    def write(self, path: Path) -> None:
        text = readable(json.dumps(self.model_dump(mode="json"), indent=2, ensure_ascii=False))
        write_atomically(path, f"{text}\n".encode())


def read_result(path: Path) -> Result:
    """A result file, checked against the schema."""
    try:
        return Result.model_validate_json(read_regular(path))
    except OSError as problem:
        raise Error(f"The result file {path} cannot be read ({problem.strerror}).") from None
    except ValidationError as problem:
        raise Error(f"{path} is not a result file of this version ({first_problem(problem)}).") from None
