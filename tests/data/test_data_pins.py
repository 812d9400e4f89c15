"""Stream orders by seed, views by (seed, t), fingerprints and keys are as recorded.

Result files of users rest on them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from helpers.image_sets import NumberedImages
from ostta.core.types import Preprocessing
from ostta.data import Views, open_dataset
from ostta.feature_files import Metadata, write_features
from ostta.io import write_atomically
from ostta.streams import (
    Continual,
    Covered,
    Domain,
    Fooling,
    Frequent,
    OneClassFirst,
    Ordered,
    Shuffled,
    SingleDomain,
    Smooth,
    SortedClasses,
    Stream,
    UnknownFirst,
    draw,
)


def first_image(image: np.ndarray, *names: object, seed: int, index: int) -> np.ndarray:
    return image


KNOWN, UNKNOWN = NumberedImages("known", 40), NumberedImages("unknown", 30)
DOMAIN = Domain("snow", KNOWN, UNKNOWN, {"corruption": "snow"})
STREAMS: dict[str, Callable[[int], Stream]] = {
    "single": lambda seed: SingleDomain(KNOWN, UNKNOWN, ratio=0.5, seed=seed),
    "drawn": lambda seed: SingleDomain(draw(KNOWN, 9, seed, desired=True), draw(UNKNOWN, 5, seed, desired=False)),
    "continual": lambda seed: Continual([DOMAIN, Domain("fog", KNOWN, UNKNOWN)], ratio=0.5, seed=seed),
    "frequent": lambda seed: Frequent([DOMAIN, Domain("fog", KNOWN, UNKNOWN)], 7, ratio=0.5, seed=seed),
    "ordered": lambda seed: Ordered(DOMAIN, seed=seed),
    "shuffled": lambda seed: Shuffled(DOMAIN, UNKNOWN, 20, seed=seed),
    "smooth": lambda seed: Smooth(KNOWN, UNKNOWN, ["a", "b", "c"], first_image, speed=3, seed=seed),
    "unknown_first": lambda seed: UnknownFirst(DOMAIN, 12, seed=seed),
    "one_class_first": lambda seed: OneClassFirst(DOMAIN, 12, np.arange(20), seed=seed),
    "sorted_classes": lambda seed: SortedClasses(DOMAIN, ratio=0.5, seed=seed),
    "covered": lambda seed: Covered(DOMAIN, [NumberedImages("black", 4)], ratio=0.5, seed=seed),
    "fooling": lambda seed: Fooling(DOMAIN, lambda source: np.arange(len(source)) % 7.0, pool=2, ratio=0.5, seed=seed),
}
ORDERS = {
    "single": "7e223c08ce095ece",
    "drawn": "dff28fc8df731e92",
    "continual": "52ba4d844927896d",
    "frequent": "dea48c2b2259e0f4",
    "ordered": "a2723cc65d8e6bf5",
    "shuffled": "57544931464acac8",
    "smooth": "572eeb1537b683a3",
    "unknown_first": "4e9a091cb7f6d53d",
    "one_class_first": "6ae0cb6e8ad81e5b",
    "sorted_classes": "8013613359882585",
    "covered": "b503c539584d1076",
    "fooling": "78b90838950931c9",
}


def short(digest: str) -> str:
    return digest[:16]


@pytest.mark.parametrize("kind", STREAMS)
def test_the_order_of_a_stream(kind: str) -> None:
    found = hashlib.sha256()
    for seed in (0, 3):
        stream = STREAMS[kind](seed)
        found.update(stream.hash.encode())
        for sample in stream:
            found.update(f"{sample.source} {sample.index} {sample.label} {sample.domain};".encode())
    assert short(found.hexdigest()) == ORDERS[kind]


def gradient(side: int) -> Image.Image:
    row = np.arange(side * side, dtype=np.int64).reshape(side, side)
    return Image.fromarray(np.stack([row % 251, row % 241, row % 239], axis=2).astype(np.uint8))


@pytest.mark.parametrize(
    ("fit", "digest"),
    [("crop", "dd08b67e9ad8d089"), ("square", "dd08b67e9ad8d089")],
)
def test_the_views_of_an_image(fit: str, digest: str) -> None:
    preprocessing = Preprocessing(image_size=32, mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4), fit=fit)
    found = hashlib.sha256()
    for seed, step in ((0, 0), (0, 1), (3, 1)):
        views = Views.of_image(gradient(80), preprocessing, seed, step)
        found.update(views.canonical.numpy().tobytes() + views.augmented(3).numpy().tobytes())
    assert short(found.hexdigest()) == digest


def test_the_order_of_class_folders_and_their_fingerprint(tmp_path: Path) -> None:
    for number in range(6):
        path = tmp_path / "pets" / ("cat", "dog")[number % 2] / f"{number}.ppm"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, b"P6 8 8 255\n" + bytes([number]) * 192)
    dataset = open_dataset(f"folder:{tmp_path / 'pets'}")
    assert [path.name for path in dataset.files] == ["0.ppm", "2.ppm", "4.ppm", "1.ppm", "3.ppm", "5.ppm"]
    corrupted = open_dataset(f"folderc:{tmp_path / 'pets'}", corruption="fog", severity=3, seed=2)
    numbers = np.array([0, 3, 5])
    assert short(dataset.fingerprint(numbers)) == "437cafe28fa4eca2"
    assert short(corrupted.fingerprint(numbers)) == "38c0b0791f953168"
    assert (corrupted.origin, corrupted.condition) == ("generated", "fog 3 seed 2")


@pytest.mark.parametrize(
    ("name", "digest"), [("sample:cifar10", "4f2decccf7ab4344"), ("sample:mnistc", "a6eb769e23f6fdbb")]
)
def test_the_fingerprint_of_a_sample(name: str, digest: str) -> None:
    dataset = open_dataset(name, limit=50)
    assert short(dataset.fingerprint(np.arange(50))) == digest


def test_the_hash_of_a_feature_file(tmp_path: Path) -> None:
    rows = np.eye(4, dtype=np.float32)
    metadata = Metadata("tower", "abc", ("a photo of a {}",), {"tda": {"alpha": 1}}, "a remark", ("kite",))
    file = write_features(tmp_path / "a.npz", rows, np.array([0, 1, -1, 0]), ("cat", "dog"), rows[:2], 50.0, metadata)
    assert short(file.hash) == "6f13aac34451b00c"
    dataset = open_dataset(f"features:{tmp_path / 'a.npz'}")
    assert (dataset.origin, dataset.condition) == ("features", file.hash)
