"""Choose the constants of the rule `field` on development streams of four backbones, and report each backbone when it is left out.

    python tools/choose_field.py encode --work WORK --mnist DIR --caltech caltech101/dev.parquet --out embedded.npz
    python tools/choose_field.py measure --real data/real --golden golden/veil --embedded embedded.npz --set votes=2,3,4
    python tools/choose_field.py measure ... --orders 10 --sensitivity         # every constant at -20 % and +20 %

`encode` computes features of held-out training images (see `choose.py`) under the ten development corruptions. `measure` runs
the rule on CLIP (20 splits of Imagenette), EfficientNet (4 streams), the embedded model and the recorded model at the ratios 0, 0.1
and 1 of unknown to known images. The figure of a stream is the harmonic mean at ratio 1 and the (C+1)-way accuracy elsewhere; a
backbone's figure is the mean over its streams. With several values, the value that is best on the mean of the *other* backbones is
reported for each backbone. ECE has 15 bins of equal mass.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import torch

import ostta
from choose import CIFAR10, CORRUPTIONS, HeldOut
from ostta.core.overlay import encode
from ostta.data.views import canonical
from ostta.field import FieldOptions

RATIOS = (1.0, 0.1, 0.0)
UNKNOWNS = ("mnist", "numbers", "caltech", "cifar100")
# The text tower is wrong more often than right there, and no rule can tell anything.
HOPELESS = ("contrast", "impulse_noise")
Stream = tuple[str, str, np.ndarray, np.ndarray, np.ndarray, float]


def encode_embedded(given: argparse.Namespace) -> None:
    backbone = ostta.backbones.load("embedded")
    held_out = HeldOut(given.work, given.mnist, given.caltech)
    frozen = ostta.load(backbone, CIFAR10, "zero_shot")
    content: dict[str, np.ndarray] = {"text": frozen.classifier.numpy()}

    def features(name: str, corruption: str) -> np.ndarray:
        source, rows = held_out.source(name, corruption), []
        for start in range(0, given.images, 32):
            batch = [canonical(source.image(place), backbone.preprocessing) for place in range(start, start + 32)]
            with torch.no_grad():
                rows.append(encode(backbone.vision, torch.stack(batch), None).numpy())
        content["labels"] = source.labels[: len(rows) * 32] if name == "cifar10" else content.get("labels", np.zeros(0))
        return np.concatenate(rows)

    for name in UNKNOWNS[:3]:
        content[name] = features(name, "clean")
    for corruption in CORRUPTIONS:
        content[f"known_{corruption}"] = features("cifar10", corruption)
        content[f"cifar100_{corruption}"] = features("cifar100", corruption)
        print(corruption, flush=True)
    np.savez(given.out, **content)


def streams(given: argparse.Namespace, ratio: float, order: int) -> Iterator[Stream]:
    """Backbone, name, class embeddings, features, labels (-1 for unknown images) and logit scale."""
    spec = importlib.util.spec_from_file_location("real_streams", given.real / "streams.py")
    assert spec is not None
    assert spec.loader is not None
    real = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(real)
    for name, text, _, rows, labels, scale in real.streams(ratio, order):
        yield name.split()[0], name, text, rows, labels, scale
    stored = np.load(given.embedded)
    for corruption in CORRUPTIONS:
        for unknown in UNKNOWNS if corruption not in HOPELESS else ():
            others = stored[f"cifar100_{corruption}"] if unknown == "cifar100" else stored[unknown]
            made = real.mixed(stored[f"known_{corruption}"], stored["labels"], others, ratio, order)
            yield "embedded", f"{corruption}/{unknown}", stored["text"], *made, 100.0
    if given.golden is not None:
        recorded = np.load(given.golden)
        known = recorded["labels"] >= 0
        rows, labels = recorded["features"].astype(np.float32), recorded["labels"]
        made = real.mixed(rows[known], labels[known], rows[~known], ratio, order)
        yield "recorded", "recorded", recorded["text"].astype(np.float32), *made, 100.0


def run(stream: Stream, **options: Any) -> dict[str, float]:
    _, _, text, rows, labels, scale = stream
    wrapped = ostta.backbones.wrap(None, torch.from_numpy(np.ascontiguousarray(text)), logit_scale=scale)
    adapter = ostta.load(wrapped, [f"class {number}" for number in range(len(text))], guard=False, **options)
    found = [adapter.step_features(torch.from_numpy(row)) for row in rows]
    known, accepted = labels >= 0, np.array([each.known for each in found])
    right = accepted & (np.array([each.index for each in found]) == labels)
    desired, undesired = right[known].mean(), (~accepted)[~known].mean() if (~known).any() else 1.0
    figure = 200 * desired * undesired / max(desired + undesired, 1e-9)
    if (~known).mean() < 0.3:
        figure = 100 * (right | (~accepted & ~known)).mean()
    result = {"figure": figure, "accepted": 100 * accepted[known].mean(), "rejected": 100 * undesired}
    if found[0].probability is not None:
        probability = np.array([each.probability for each in found])
        bins = np.array_split(np.argsort(probability, kind="stable"), 15)
        result["ece"] = sum(len(b) * abs(probability[b].mean() - known[b].mean()) for b in bins) / len(known)
    return result


def measure(given: argparse.Namespace) -> None:
    choices = _choices(given)
    figures: dict[str, dict[tuple[str, float], list[dict[str, float]]]] = {name: defaultdict(list) for name in choices}
    for ratio, order in itertools.product(RATIOS, range(given.orders)):
        for stream in streams(given, ratio, order):
            if given.only and stream[0] not in given.only:
                continue
            if ratio == 0 and stream[0] == "embedded" and not stream[1].endswith("mnist"):
                continue
            for name, options in choices.items():
                figures[name][stream[0], ratio].append(run(stream, **options))
    for name, cells in figures.items():
        for (backbone, ratio), rows in cells.items():
            values = np.sort([row["figure"] for row in rows])
            tenth = values[: max(1, len(values) // 10)].mean()
            others = "  ".join(f"{key} {np.mean([row[key] for row in rows]):.3g}" for key in rows[0] if key != "figure")
            print(
                f"{name:32} {backbone:9} {ratio:4}  {values.mean():6.2f}  worst tenth {tenth:6.2f}  {others}",
                flush=True,
            )
    if len(choices) > 2:
        _left_out(figures)


def _left_out(figures: dict[str, dict[tuple[str, float], list[dict[str, float]]]]) -> None:
    means = {
        name: {key: float(np.mean([row["figure"] for row in rows])) for key, rows in cells.items()}
        for name, cells in figures.items()
        if name != "frozen, LDA"
    }
    backbones = sorted({backbone for backbone, _ in next(iter(means.values()))})
    for left in backbones:
        best = max(
            means, key=lambda name: np.mean([value for (backbone, _), value in means[name].items() if backbone != left])
        )
        own = {ratio: round(value, 2) for (backbone, ratio), value in means[best].items() if backbone == left}
        print(f"without {left}: {best}; on {left}: {own}")


def _choices(given: argparse.Namespace) -> dict[str, dict[str, Any]]:
    choices: dict[str, dict[str, Any]] = {"frozen, LDA": {"method": "zero_shot"}, "field": {}}
    if given.sensitivity:
        for field in fields(FieldOptions):
            for factor in (0.8, 1.2):
                value = type(field.default)(field.default * factor)
                if field.name != "undecided_images":
                    choices[f"{field.name}={value:g}"] = {field.name: value}
    lines = [[(text.partition("=")[0], value) for value in text.partition("=")[2].split(",")] for text in given.set]
    for pairs in itertools.product(*lines) if lines else ():
        choices[" ".join(f"{name}={value}" for name, value in pairs)] = {"options": dict(pairs), "profile": "field"}
    return choices


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    encoding, measuring = commands.add_parser("encode"), commands.add_parser("measure")
    encoding.add_argument("--work", type=Path, required=True, help="the folder that train_embedded.py prepared")
    encoding.add_argument("--mnist", type=Path, required=True)
    encoding.add_argument("--caltech", type=Path, required=True)
    encoding.add_argument("--images", type=int, default=1504, help="images of each set, a multiple of 32")
    encoding.add_argument("--out", type=Path, required=True)
    measuring.add_argument("--real", type=Path, required=True, help="features of real backbones, with streams.py")
    measuring.add_argument("--embedded", type=Path, required=True, help="the file that `encode` wrote")
    measuring.add_argument("--golden", type=Path, help="npz with features, labels and text of the recorded model")
    measuring.add_argument("--set", action="append", default=[], metavar="NAME=A,B")
    measuring.add_argument("--only", action="append", default=[], help="a backbone; again for another")
    measuring.add_argument("--orders", type=int, default=1)
    measuring.add_argument("--sensitivity", action="store_true")
    given = parser.parse_args(arguments)
    encode_embedded(given) if given.command == "encode" else measure(given)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.exit(main())
