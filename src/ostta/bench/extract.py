"""Encode data sets and write their features to a file. Runs on a feature file need no images and no image tower."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..backbones.protocol import DEFAULT_TEMPLATES, Backbone
from ..backbones.wrapped import Wrapped
from ..centre import centre_of
from ..core.overlay import encode
from ..core.types import Error
from ..data.by_name import open_dataset
from ..data.dataset import Dataset
from ..data.names import is_own
from ..data.readers.features import ORIGIN
from ..data.views import canonical
from ..feature_files import SUFFIX, FeatureFile, Metadata, write_features
from ..state import versions
from ..streams import Drawn, Source, draw
from .features import FeatureStore, store_key
from .run import Watch, open_backbone
from .spec import RunSpec, code_of, packages_of

# Images in one batch of the image tower, and texts in one batch of the text tower.
BATCH, TEXTS = 32, 256


# Seconds between two writes of the features so far.
KEEP_EVERY = 30.0


@dataclass(frozen=True)
class Side:
    """The images of one side: `source` are the images of `dataset` to encode."""

    dataset: Dataset
    source: Source
    known: bool


def extract(
    spec: RunSpec,
    root: Path | None,
    out: Path,
    *,
    known: bool = True,
    templates: Sequence[str] = DEFAULT_TEMPLATES,
    words: Sequence[str] = (),
    half: bool = False,
    batch: int = BATCH,
    watch: Watch | None = None,
) -> FeatureFile:
    """Encode the images of both sides of `spec` with its backbone, and write their features to `out`.

    known: whether there is a known side. An interrupted extraction resumes: until the file is written, features are
    kept in a folder beside `out`.
    """
    if out.suffix != SUFFIX:
        raise Error(
            f"The features are written to a file whose name ends in {SUFFIX}, not to '{out}'.", code="option-invalid"
        )
    if batch < 1:
        raise Error(f"`batch` must be at least 1 image, not {batch}.", code="option-invalid")
    sides = list(_sides(spec, root, known))
    backbone = open_backbone(spec, root)
    classes = sides[0].dataset.classes if known else ()
    with torch.no_grad():
        class_embeddings = _texts(backbone, classes, templates)
        word_embeddings = _texts(backbone, words, templates)
    centre = centre_of(backbone)
    parts = out.parent / f".{out.name}.parts"
    done, total = 0, sum(len(side.source) for side in sides)

    def count(images: int) -> None:
        nonlocal done
        for _ in range(images):
            done += 1
            if watch is not None:
                watch(done, total, None)

    rows = [_encoded(side, backbone, parts, spec, batch, count) for side in sides]
    labels = [np.asarray(s.source.labels) if s.known else np.full(len(s.source), -1, np.int64) for s in sides]
    dtype = np.float16 if half else np.float32
    written = write_features(
        out,
        np.concatenate(rows).astype(dtype),
        np.concatenate(labels),
        classes,
        class_embeddings.astype(dtype),
        float(backbone.logit_scale),
        _metadata(spec, backbone, sides, classes, templates),
        tuple(words),
        word_embeddings.astype(dtype),
        None if centre is None else centre.cpu().numpy(),
    )
    shutil.rmtree(parts, ignore_errors=True)
    return written


def _sides(spec: RunSpec, root: Path | None, known: bool) -> Iterator[Side]:
    code = code_of(spec)
    for name, desired in ((spec.desired if known else None, True), (spec.undesired, False)):
        if not name:
            continue
        options = {"corruption": spec.corruption, "severity": spec.severity, "seed": spec.seed, "code": code}
        options |= {"named": desired, "classes": spec.classes if desired else None}
        dataset, source = open_part(name, root, spec.limit, spec.seed, desired=desired, **options)
        if dataset.origin == ORIGIN:
            raise Error(f"'{name}' has features already: give a data set of images.", code="dataset-invalid")
        if not len(dataset):
            raise Error(f"{name} has no images.", code="dataset-empty")
        yield Side(dataset, source, desired)


def open_part(
    name: str, root: Path | None, limit: int | None, draw_seed: int, *, desired: bool, **options: Any
) -> tuple[Dataset, Source]:
    """Open a data set, and return it with its first `limit` images.

    The first images of a user's own set may all be of one class, so some of each class are drawn from it.
    """
    drawn = limit is not None and is_own(name)
    dataset = open_dataset(name, root, limit=None if drawn else limit, **options)
    return dataset, draw(dataset, limit, draw_seed, desired=desired) if limit is not None and drawn else dataset


def _texts(backbone: Backbone, names: Sequence[str], templates: Sequence[str]) -> NDArray[np.float32]:
    parts = [names[start : start + TEXTS] for start in range(0, len(names), TEXTS)]
    rows = [backbone.classifier(part, templates).float().cpu().numpy() for part in parts]
    return np.concatenate(rows) if rows else np.zeros((0, backbone.feature_width), np.float32)


def _encoded(
    side: Side, backbone: Backbone, parts: Path, spec: RunSpec, batch: int, count: Callable[[int], None]
) -> NDArray[np.float32]:
    """Return the unit features [N, D] of one side, in the order of its images."""
    name = store_key(backbone, side.dataset, spec.plugins)
    store = FeatureStore(parts / name, backbone.feature_width)
    numbers = side.source.numbers.tolist() if isinstance(side.source, Drawn) else list(range(len(side.source)))
    missing = [number for number in numbers if store.get(number) is None]
    count(len(numbers) - len(missing))
    kept = time.monotonic()
    try:
        for start in range(0, len(missing), batch):
            some = missing[start : start + batch]
            images = [canonical(side.dataset.image(number), backbone.preprocessing) for number in some]
            with torch.no_grad():
                features = encode(backbone.vision, torch.stack(images).to(backbone.device)).float().cpu()
            for number, row in zip(some, features, strict=True):
                # The length of features that are zero or not finite is not 1.
                if not abs(float(row.norm()) - 1) < 1e-3:
                    raise Error(
                        f"Image {number} of {side.dataset.name} has features that are zero or not finite: "
                        "remove it from the data set.",
                        code="features-invalid",
                    )
                store.add(number, row.clone())
            count(len(some))
            if time.monotonic() - kept > KEEP_EVERY:
                store.write()
                kept = time.monotonic()
    finally:
        store.write()
    found = [store.get(number) for number in numbers]
    return torch.stack([row for row in found if row is not None]).numpy()


def _metadata(
    spec: RunSpec, backbone: Backbone, sides: Sequence[Side], classes: Sequence[str], templates: Sequence[str]
) -> Metadata:
    return Metadata(
        backbone=backbone.id,
        weight_hash=backbone.weight_hash,
        # Given embeddings do not depend on templates.
        templates=() if isinstance(backbone, Wrapped) else tuple(templates),
        defaults={owner: dict(options) for owner, options in backbone.defaults.items()},
        remark=backbone.remark,
        unfamiliar=tuple(backbone.unfamiliar(classes)) if classes else (),
        sets=tuple(_described(side) for side in sides),
        versions=versions() | packages_of(spec),
    )


def _described(side: Side) -> dict[str, Any]:
    dataset = side.dataset
    return {
        "name": dataset.name,
        "side": "known" if side.known else "unknown",
        "images": len(side.source),
        "origin": dataset.origin,
        "note": dataset.note,
    }
