"""Result files: one JSON a run, with everything needed to trace its figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, ValidationError, model_validator

from ..config.registry import find_components
from ..config.resolve import group_by_owner
from ..core.types import Error
from ..evaluation.analyses import BankBytes, Distances, ReliableAccuracy
from ..evaluation.metrics import CONVENTION
from ..io import read_regular, readable, write_atomically
from .file_model import FileModel, first_problem
from .spec import RunSpec, stream_key

SCHEMA = 1


class Side(FileModel):
    """One side of the stream: which data set, how many images, and where its pixels come from."""

    name: str
    images: int
    classes: int
    origin: str
    note: str = ""


class StreamInfo(FileModel):
    """The stream: the hash of its order, and the identity of its images; `draw` is what the seed drew: the order, or the images too.

    `identity` also covers origin, corruption, severity and content (`streams.Stream.identity`). Files of version 0.2.0 and earlier
    have none.
    """

    later: ClassVar[tuple[str, ...]] = ("draw", "identity")

    hash: str
    desired: Side
    undesired: Side | None
    seed: int
    draw: Literal["order", "images", "orders"] = "order"
    identity: str | None = None


class Figures(FileModel):
    """In percent; None where there are images of one side only.

    Of FPR95 there are three, by the conventions that `ostta.evaluation.metrics` describes; files from before that have one, and files from before
    version 0.2 have no `accepted_desired` and no `accuracy`.
    """

    later: ClassVar[tuple[str, ...]] = ("fpr95_strict", "fpr95_undesired", "accepted_desired", "accuracy")

    auroc: float | None
    fpr95: float | None
    acc_desired: float | None
    acc_undesired: float | None
    hm: float | None
    fpr95_strict: float | None = None
    fpr95_undesired: float | None = None
    accepted_desired: float | None = None
    accuracy: float | None = None


class Metrics(Figures):
    """The figures over the whole stream."""

    convention: str = CONVENTION


class DomainFigures(FileModel):
    """The figures over the images of one domain."""

    name: str
    images: int
    metrics: Figures


class Quantiles(FileModel):
    """Median and 95th percentile, and the mean: steps that learn can cost tens of times the others, which a median hides."""

    later: ClassVar[tuple[str, ...]] = ("mean",)

    p50: float
    p95: float
    mean: float | None = None


class Latency(FileModel):
    """Milliseconds a step, preprocessing left out."""

    encode: Quantiles
    decide: Quantiles
    update: Quantiles
    total: Quantiles


# A process that waited for a core more than this part of its time shared it; without that figure, so many times the cores in the average.
BUSY_WAIT, BUSY_AVERAGE = 0.1, 1.25


class Load(FileModel):
    """How busy the machine was: the load average of the last minute when the run ended, the run itself among it, and the cores to use.

    `waited`: of the time in which the run could have gone on, the part in which no core was free for it. None: the system does not say.
    """

    cores: int
    average: float | None = None
    waited: float | None = None

    @property
    def busy(self) -> bool:
        """Whether times taken then are longer than the run's own.

        >>> Load(cores=2, average=1.1, waited=0.01).busy, Load(cores=2, average=6.0, waited=0.55).busy
        (False, True)
        """
        if self.waited is not None:
            return self.waited > BUSY_WAIT
        return self.average is not None and self.average > BUSY_AVERAGE * self.cores

    @property
    def remark(self) -> str:
        """What to say beside a time that was taken then; empty where the machine was quiet."""
        if not self.busy:
            return ""
        waited = "" if self.waited is None else f" the run waited for a core {100 * self.waited:.0f} % of its time,"
        return f"The machine was busy:{waited} load average {self.average}, {self.cores} cores. ms/step is longer than the run's own."


class Analyses(FileModel):
    """What the paper measures beside the five figures; `ostta.evaluation.analyses` has the formulas. None: this run cannot give it.

    stream_distances are of all images' features, where the adapter option `features` kept them; bank_distances of the method's two
    banks at the end; average_matches is the mean K+ of L_D; reliable is in percent.
    """

    stream_distances: Distances | None
    bank_distances: Distances | None
    average_matches: float | None
    reliable: ReliableAccuracy
    bank_bytes: BankBytes
    adapted_parameters: int | None


class Result(FileModel):
    """The content of a result file.

    `domains` and the plain mean of their HM are there where the scenario has several. The mean is the headline of a continual run;
    it is None where a domain has no HM. `peak_memory_mb` is from the first image on, with model and data open; None where the system
    does not say.
    """

    later: ClassVar[tuple[str, ...]] = (
        "domains",
        "hm_mean_domains",
        "analyses",
        "threads",
        "resets",
        "cached_features",
        "events",
        "load",
        "measures",
    )

    schema_version: int = SCHEMA
    spec: RunSpec
    # By owner (method, score, identifier, adapter), then by name.
    options: dict[str, dict[str, Any]]
    option_sources: dict[str, dict[str, str]]
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
    # Image features came from an earlier run on the same stream: the figures are the same, the times are not comparable.
    cached_features: bool = False
    # How often what was trained went back to the start (`reset_every`).
    resets: int = 0
    # How often each kind of event came: what the guard did, and resets.
    events: dict[str, int] = Field(default_factory=dict)
    # How busy the machine was; files from before that do not say.
    load: Load | None = None
    # By the names of `ostta.evaluation.measures`, those of plug-ins among them; None where the run cannot give one.
    measures: dict[str, float | None] = Field(default_factory=dict)

    @property
    def stream_identity(self) -> tuple[str, ...]:
        """What must be equal for two results to be of the same images in the same order.

        A file without an identity equals only files of that kind, with the same order, spec and origins.
        """
        if self.stream.identity is not None:
            return (self.stream.hash, self.stream.identity)
        sides = [
            None if side is None else (side.name, side.origin) for side in (self.stream.desired, self.stream.undesired)
        ]
        return (self.stream.hash, "", repr(sides), stream_key(self.spec), str(self.spec.seed))

    @property
    def busy(self) -> bool:
        """Whether the run's times were taken on a busy machine."""
        return self.load is not None and self.load.busy

    @model_validator(mode="before")
    @classmethod
    def _by_owner(cls, content: Any) -> Any:
        """Files from before there was a score have their options by name alone."""
        if not isinstance(content, dict) or not isinstance(content.get("options"), dict):
            return content
        if content["options"].keys() <= {"method", "score", "identifier", "adapter", "guard"}:
            return content
        spec = content.get("spec")
        named = spec.model_dump() if isinstance(spec, RunSpec) else spec if isinstance(spec, dict) else {}
        parts = [named.get("method", "rosita"), named.get("score"), named.get("identifier", "lda")]
        try:
            choice = find_components(*parts)
        except Error:  # of a method that is not here; its own options are the method's all the same
            choice = find_components("zero_shot", None, "lda")
        split = {
            name: group_by_owner(choice, content[name])
            for name in ("options", "option_sources")
            if isinstance(content.get(name), dict)
        }
        return {**content, **split}

    def write(self, path: Path) -> None:
        text = readable(json.dumps(self.model_dump(mode="json"), indent=2, ensure_ascii=False))
        write_atomically(path, f"{text}\n".encode())


def read_result(path: Path) -> Result:
    """A result file, checked against the schema."""
    try:
        return Result.model_validate_json(read_regular(path, "result file"))
    except ValidationError as problem:
        raise Error(
            f"{path} is not a result file of this version ({first_problem(problem)}).", code="result-invalid"
        ) from None
