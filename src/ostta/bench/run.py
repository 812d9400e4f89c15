"""Carry out one run: spec, stream, adapter, records, result file."""

from __future__ import annotations

import hashlib
import importlib
import json
import platform
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from .. import backbones
from ..adapter import Adapter, load
from ..backbones.features import FeaturesBackbone
from ..backbones.protocol import Backbone
from ..core.types import Error
from ..evaluation import analyses
from ..evaluation.loop import Records, evaluate
from ..evaluation.measures import measure_run
from ..evaluation.metrics import mean
from ..feature_files import placed_features, read_features
from ..io import make_folder
from ..lookahead import why_not
from ..state import versions
from ..streams import Stream, prefetched
from .checkpoint import EVERY, Checkpoint, RunPosition
from .folder import RunInputs, StoredResult, class_names_hash, wait_for_lock
from .log import RunLog
from .machine import LoadMeter, hardware, peak_memory, reset_peak
from .naming import file_name
from .records import write_records
from .result import Analyses, DomainFigures, Figures, Latency, Metrics, Quantiles, Result, StreamInfo, read_result
from .spec import RunSpec, code_of, identity, packages_of
from .stream import Composed, check_names, compose, is_features, sides_of

if TYPE_CHECKING:
    from .features import FeatureCache

# Callback for progress: the number of images done, their total number, and the HM so far.
Watch = Callable[[int, int, float | None], None]


@dataclass(frozen=True)
class Prepared:
    """A run that is ready to start: the adapter before its first step, and the stream."""

    spec: RunSpec
    adapter: Adapter
    composed: Composed
    stream_identity: str

    @property
    def stream(self) -> Stream:
        return self.composed.stream

    @property
    def remarks(self) -> tuple[str, ...]:
        """Remarks about the backbone and the data."""
        return self.adapter.backbone.remark, *self.composed.remarks

    @property
    def inputs(self) -> RunInputs:
        return RunInputs(
            self.adapter.backbone.weight_hash, self.stream_identity, class_names_hash(self.adapter.classes)
        )

    @property
    def key(self) -> str:
        """The key in the names of the run's files, which depends on spec, weights and stream."""
        content = [identity(self.spec), self.adapter.backbone.weight_hash, self.stream_identity]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]

    def path(self, out: Path) -> Path:
        kind = self.spec.scenario.kind
        sets = [] if kind == "domains" else [self.spec.desired, self.spec.undesired or "closed"]
        parts = [self.spec.method, *sets] + ([] if kind == "single" else [kind])
        # Names such as "folder:PATH" contain characters that file names should not contain.
        name = "-".join(file_name(Path(part).name) for part in parts)
        return out / f"{name}-s{self.spec.seed}-{self.key}.json"


def prepare(
    spec: RunSpec, root: Path | None, backbone: Backbone | None = None, stream_identity: str | None = None
) -> Prepared:
    """Open data and model. All errors in `spec` are raised here; those in names are raised before data are opened.

    The identity of the stream is computed from the data unless it is given.
    """
    components = check_names(spec, code_of(spec))
    if backbone is None and spec.scenario.kind == "fooling":
        # The model selects the images of this scenario.
        backbone = open_backbone(spec, root)
    composed = compose(spec, root, backbone)
    adapter = load(
        backbone if backbone is not None else open_backbone(spec, root),
        composed.classes,
        method=components.method.of,
        # A spec without a score means the score of the identifier or `max`, for every profile.
        score=components.score.of,
        identifier=components.identifier.of,
        profile=spec.profile,
        seed=spec.seed,
        options=spec.options,
        guard=spec.guard,
    )
    if spec.ahead > 1 and (reason := why_not(adapter)) is not None:
        raise Error(f"Images cannot be encoded ahead: {reason}. Leave out `--ahead`.", code="ahead-impossible")
    _check_features(adapter, composed.stream)
    return Prepared(spec, adapter, composed, stream_identity or composed.stream.identity)


def _check_features(adapter: Adapter, stream: Stream) -> None:
    """Raise an Error if the stream has features that the adapter cannot use, or images without an image tower."""
    model = adapter.backbone
    for _, _, dataset in sides_of(stream):
        if is_features(dataset):
            file = read_features(Path(dataset.layout))
            file.require_encoder(dataset.name, model, adapter.features_suffice, adapter.method_name)
        elif isinstance(model, FeaturesBackbone):
            raise Error(
                f"The backbone {model.id} has no image tower, and '{dataset.name}' has images: name a feature file "
                f"for each side, or the backbone {model.encoder[0]}.",
                code="backbone-without-tower",
            )


def open_backbone(spec: RunSpec, root: Path | None = None) -> Backbone:
    """Open the backbone of `spec`; a feature file may be in the folder `root` of the data sets."""
    code = code_of(spec)
    if spec.backbone in code:
        return backbones.call_factory(code[spec.backbone], spec.device, spec.dtype)
    return backbones.load(placed_features(spec.backbone, root), spec.device, spec.dtype)


def existing(prepared: Prepared, out: Path) -> Result | None:
    """Return the result of this run if it exists."""
    path = prepared.path(out)
    if not path.exists():
        return None
    result = read_result(path)
    return result if identity(result.spec) == identity(prepared.spec) and prepared.inputs.match(result) else None


def carry_out(
    prepared: Prepared,
    watch: Watch | None = None,
    checkpoint: Checkpoint | None = None,
    cache: FeatureCache | None = None,
    log: str | None = None,
) -> tuple[Result, Records]:
    """Run the stream through the adapter and return the result and the records.

    With a `checkpoint`, the run resumes from it. With a `cache`, cached features replace the images. `log`, such as
    "tensorboard:FOLDER", is where curves are written during the run.
    """
    total = len(prepared.stream)
    before = checkpoint.read(prepared.adapter) if checkpoint is not None else None
    if before is None:
        before = RunPosition(prepared.adapter, Records(), 0.0, None)
    adapter, records = before.adapter, before.records
    curves = None if log is None else RunLog(log, prepared.path(Path()).stem, len(records) + 1, total)
    _load_libraries()
    reset_peak(adapter.device)
    meter = LoadMeter()
    began = time.perf_counter()

    def reached() -> RunPosition:
        seconds = before.seconds + time.perf_counter() - began
        peaks = [peak for peak in (before.peak_memory_mb, peak_memory(adapter.device)) if peak is not None]
        return RunPosition(adapter, records, seconds, max(peaks, default=None), meter.read(before.load))

    def after(done: int, hm: float | None) -> None:
        if checkpoint is not None and checkpoint.due(done) and done < total:
            checkpoint.write(reached())
        if curves is not None:
            curves.step(done, records.predictions[-1], hm)
        if watch is not None:
            watch(done, total, hm)

    with nullcontext() if curves is None else closing(curves):
        if cache is None:
            samples = prefetched(prepared.stream.starting_at(len(records)))
            evaluate(adapter, samples, after, records, ahead=prepared.spec.ahead)
        else:
            samples = prepared.stream.starting_at(len(records), cache.lacks)
            if not cache.covers(prepared.stream):
                samples = prefetched(samples)
            with cache.noting(adapter):
                evaluate(adapter, samples, after, records, partial(cache.step, adapter))
        from_file = any(is_features(dataset) for _, _, dataset in sides_of(prepared.stream))
        by_features = from_file or (cache is not None and cache.used)
        result = summarise(prepared, reached()).model_copy(update={"cached_features": by_features})
        if curves is not None:
            curves.end(result)
    return result, records


def _load_libraries() -> None:
    """Import the libraries for the figures first, so that the peak memory of all runs of a process includes them."""
    for library in ("pyarrow.parquet", "scipy.spatial.distance", "sklearn.metrics"):
        importlib.import_module(library)


def summarise(prepared: Prepared, reached: RunPosition) -> Result:
    """Return the result of a finished run."""
    adapter, records, stream = reached.adapter, reached.records, prepared.stream
    labels = records.labels
    domains = _domains(stream, records)
    verdicts = Counter(str(verdict) for verdict in records.column("verdict"))
    counts = {
        "desired": int((labels >= 0).sum()),
        "undesired": int((labels < 0).sum()),
        **dict(sorted(verdicts.items())),
    }
    counts["undesired_missing"] = stream.short_of
    counts["scores_not_finite"] = int((~np.isfinite(records.column("score"))).sum())
    problems: list[str] = []
    measures = measure_run(records.run_columns(), problems)
    return Result(
        spec=prepared.spec,
        options=json.loads(json.dumps(adapter.resolved.values())),
        option_sources=adapter.resolved.sources,
        stream=StreamInfo(
            hash=stream.hash,
            desired=prepared.composed.desired,
            undesired=prepared.composed.undesired,
            seed=prepared.spec.seed,
            draw=prepared.spec.draw,
            identity=prepared.stream_identity,
        ),
        weight_hash=adapter.backbone.weight_hash,
        class_names_hash=class_names_hash(adapter.classes),
        unfamiliar_classes=adapter.unfamiliar,
        metrics=Metrics.model_validate(records.metrics()),
        domains=domains,
        hm_mean_domains=mean([domain.metrics.hm for domain in domains]),
        analyses=_analyses(adapter, records),
        counts=counts,
        updates=int(records.column("adapted").sum()),
        resets=int(np.isfinite(records.diagnostic("reset")).sum()),
        events=dict(sorted(Counter(event.kind for each in records.predictions for event in each.events).items())),
        latency_ms=_latency(records),
        peak_memory_mb=reached.peak_memory_mb,
        seconds=round(reached.seconds, 3),
        measures=measures,
        remarks=[remark for remark in (*prepared.remarks, *problems) if remark],
        versions=versions() | packages_of(prepared.spec),
        hardware=hardware(prepared.adapter.device),
        threads=torch.get_num_threads(),
        load=reached.load,
    )


@dataclass(frozen=True)
class ResultFile:
    """The path of a result, whether it was computed now, and a note if it replaces a file that cannot be read."""

    path: Path
    fresh: bool
    note: str = ""


def ensure_result(
    prepared: Prepared,
    out: Path,
    *,
    keep_records: bool | None = None,
    watch: Watch | None = None,
    checkpoint_every: int = EVERY,
    locked: bool = False,
    cache_features: bool = False,
    log: str | None = None,
) -> ResultFile:
    """Carry out a run unless its result is already in `out`.

    keep_records: whether the per-image records are kept. With True, a run whose result has no records is carried out
    again; with None it is not. A result file that cannot be read is renamed. locked: whether this process already
    holds the lock of the run. cache_features: whether image features are kept in `out` and shared by runs that need
    nothing else.
    """
    make_folder(out)
    with nullcontext() if locked else wait_for_lock(out, prepared.spec):
        path, note = prepared.path(out), ""
        try:
            before = existing(prepared, out)
        except Error as problem:
            before, renamed = None, path.replace(path.with_name(f"{path.name}.damaged"))
            note = f"{problem} It was renamed to {renamed.name}, and the run was carried out again."
        if before is not None and (not keep_records or StoredResult(path, before).records is not None):
            return ResultFile(path, fresh=False)
        checkpoint = Checkpoint(out, prepared.key, _identity(prepared), checkpoint_every)
        cache = None
        # The cache has features of images that were encoded one at a time.
        if cache_features and prepared.spec.ahead == 1:
            from .features import cache_of

            cache = cache_of(prepared, out)
        result, records = carry_out(prepared, watch, checkpoint, cache, log)
        if keep_records is not False:
            kept = path.with_suffix(".parquet")
            write_records(records, kept)
            result = result.model_copy(update={"records": kept.name})
        result.write(path)
        checkpoint.remove()
        # Remove the partial files of a process that was killed.
        for begun in out.glob(f".{path.stem}.*.partial"):
            begun.unlink(missing_ok=True)
    return ResultFile(path, fresh=True, note=note)


def run(
    spec: RunSpec,
    root: Path | None,
    out: Path,
    *,
    keep_records: bool | None = None,
    watch: Watch | None = None,
    checkpoint_every: int = EVERY,
) -> Path:
    """Carry out `spec` unless its result is already in `out`, and return the path of the result file."""
    prepared = prepare(spec, root)
    return ensure_result(prepared, out, keep_records=keep_records, watch=watch, checkpoint_every=checkpoint_every).path


def _identity(prepared: Prepared) -> dict[str, object]:
    """Return the conditions, beside the key of the run, under which a resumed run gives bit-equal results."""
    return {
        "options": prepared.adapter.resolved.values(),
        "versions": versions() | packages_of(prepared.spec),
        "threads": torch.get_num_threads(),
        "machine": platform.machine(),
    }


def _domains(stream: Stream, records: Records) -> list[DomainFigures]:
    """Return the figures of each domain if the stream has several."""
    if len(stream.domains) < 2:
        return []
    images = Counter(records.domain)
    return [
        DomainFigures(name=stream.domains[number], images=images[number], metrics=Figures.model_validate(figures))
        for number, figures in records.metrics_by_domain().items()
    ]


def _analyses(adapter: Adapter, records: Records) -> Analyses:
    return Analyses(
        stream_distances=analyses.stream_distances(records),
        bank_distances=analyses.bank_distances(adapter),
        average_matches=analyses.average_matches(records),
        reliable=analyses.reliable_accuracy(records),
        bank_bytes=analyses.bank_bytes(adapter),
        adapted_parameters=analyses.adapted_parameters(adapter),
    )


def _latency(records: Records) -> Latency:
    parts = {part: records.timings(part) for part in ("encode", "decide", "update")}
    parts["total"] = sum(parts.values(), start=np.zeros(len(records)))
    return Latency(**{name: _quantiles(values) for name, values in parts.items()})


def _quantiles(values: NDArray[np.float64]) -> Quantiles:
    figures = {"p50": np.quantile(values, 0.5), "p95": np.quantile(values, 0.95), "mean": values.mean()}
    return Quantiles(**{name: round(float(value), 3) for name, value in figures.items()})
