"""Choose the constants of the rule `field` on development streams of five sets of features, in three arrangements.

    python tools/choose_field.py encode --work WORK --mnist DIR --caltech caltech101/dev.parquet --out embedded.npz
    python tools/choose_field.py measure --real data/real --golden golden/veil --embedded embedded.npz --set votes=2,3,4
    python tools/choose_field.py measure ... --sensitivity                     # every number at -20 % and +20 %
    python tools/choose_field.py measure ... --orders 10
    python tools/choose_field.py measure ... --set-at-once                     # one fit to all images of a stream

`encode` computes features of held-out training images (see `choose.py`) under the ten development corruptions.
`measure` runs the rule on CLIP (the first splits of Imagenette; `near`: splits of CIFAR-10, whose unknown images
resemble the classes), EfficientNet (4 streams), the embedded model and the recorded model at the ratios 0, 0.1 and 1 of
unknown to known images: shuffled, in bursts and class by class. Without `--embedded`, the embedded model is left out.
The prior centre of a set of features is the mean of others of the same backbone: thumbnails for CLIP's photographs and
the reverse, and the images that ship for the photographs of EfficientNet and for the embedded model. The figure of a
stream is the harmonic mean at ratio 1 and the (C+1)-way accuracy elsewhere; a cell is the mean over its streams and
orders, with a 95 % interval of the difference to the frozen classifier (bootstrap over streams). ECE has 15 bins of
equal mass. The guard is off; `tests/project/test_choose.py` compares the decisions with those of an adapter.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from PIL import Image
from transformers import CLIPVisionModelWithProjection

import ostta
from choose import CIFAR10, CORRUPTIONS, HeldOut
from ostta.centre import centre_of
from ostta.core.levels import Levels
from ostta.core.overlay import encode
from ostta.data.views import canonical
from ostta.field import FieldOptions, FieldScore, fit_to_text, solve
from ostta.identifiers import LDA
from ostta.scores.base import Setting

RATIOS = (1.0, 0.1, 0.0)
UNKNOWNS = ("mnist", "numbers", "caltech", "cifar100")
# The text tower is wrong more often than right there, and no rule can tell anything.
HOPELESS = ("contrast", "impulse_noise")
# Numbers of `ostta.field.solve` and `ostta.field.fit_to_text` that are not options.
FIXED = ("NARROWEST", "TOP", "USUAL_SHARE", "USUAL_FIT", "BELOW_MEAN", "USUAL_ERRORS", "ERRORS_WEIGHT", "PRIOR_WEIGHT")
FROZEN = "frozen, LDA"
Stream = tuple[str, str, np.ndarray, np.ndarray, np.ndarray, float, np.ndarray | None]
Figures = dict[str, dict[tuple[str, str, float], list[dict[str, Any]]]]
NO_PREPROCESSING: Any = None
NO_DECISION: Any = None


def encode_embedded(given: argparse.Namespace) -> None:
    backbone = ostta.backbones.load("embedded")
    held_out = HeldOut(given.work, given.mnist, given.caltech)
    frozen = ostta.load(backbone, CIFAR10, "zero_shot")
    content: dict[str, np.ndarray] = {
        "text": frozen.classifier.numpy(),
        "cifar100_labels": held_out.source("cifar100", "clean").labels - len(CIFAR10),
        "labels": held_out.source("cifar10", "clean").labels[: given.images],
    }

    def features(name: str, corruption: str, images: int = given.images) -> np.ndarray:
        source, rows = held_out.source(name, corruption), []
        for start in range(0, images, 32):
            places = range(start, min(start + 32, images))
            batch = [canonical(source.image(place), backbone.preprocessing) for place in places]
            with torch.no_grad():
                rows.append(encode(backbone.vision, torch.stack(batch), None).numpy())
        return np.concatenate(rows)

    for name in UNKNOWNS[:3]:
        content[name] = features(name, "clean")
    for corruption in CORRUPTIONS:
        content[f"known_{corruption}"] = features("cifar10", corruption)
        content[f"cifar100_{corruption}"] = features("cifar100", corruption)
        print(corruption, flush=True)
    np.savez(given.out, **content)


def streams(given: argparse.Namespace, ratio: float, order: int, arrangement: str) -> Iterator[Stream]:
    """Backbone, name, class embeddings, features, labels (-1: unknown), logit scale and prior centre of each stream."""
    real = _real_streams(given.real)
    centres = {
        "clip": _mean(given.real / "clip_b32_cifar500.npz"),
        "near": _mean(given.real / "clip_b32_imagenette.npz"),
    }
    centres["effnet"] = centre_of(ostta.backbones.load("photos")).numpy()
    counts: dict[str, int] = defaultdict(int)
    for name, text, _, rows, labels, scale in real.streams(ratio, order, ("clip", "near", "effnet"), arrangement):
        backbone = name.split()[0]
        counts[backbone] += 1
        if counts[backbone] <= given.splits or backbone != "clip":
            yield backbone, name, text, rows, labels, scale, centres[backbone]
    if given.embedded is not None:
        centre = centre_of(ostta.backbones.load("embedded")).numpy()
        for stream in _embedded_streams(np.load(given.embedded), real.mixed, ratio, order, arrangement):
            yield *stream, centre
    if given.golden is not None:
        text, rows, labels = recorded(given.golden)
        known = labels >= 0
        made = real.mixed(rows[known], labels[known], rows[~known], ratio, order, arrangement=arrangement)
        yield "recorded", "recorded", text, *made, 100.0, None


def _real_streams(folder: Path) -> Any:
    spec = importlib.util.spec_from_file_location("real_streams", folder / "streams.py")
    assert spec is not None
    assert spec.loader is not None
    real = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(real)
    return real


def _mean(path: Path) -> np.ndarray:
    rows: np.ndarray = np.load(path)["features"].astype(np.float32).mean(0)
    return rows


def _embedded_streams(
    stored: Any, mixed: Callable[..., Any], ratio: float, order: int, arrangement: str
) -> Iterator[tuple[Any, ...]]:
    for corruption, unknown in itertools.product(CORRUPTIONS, UNKNOWNS):
        if corruption in HOPELESS or (ratio == 0 and unknown != UNKNOWNS[0]):
            continue
        kinds = None
        if unknown == "cifar100":
            others = stored[f"cifar100_{corruption}"]
            kinds = stored["cifar100_labels"][: len(others)]
        else:
            others = stored[unknown]
        made = mixed(
            stored[f"known_{corruption}"], stored["labels"], others, ratio, order, kinds=kinds, arrangement=arrangement
        )
        yield "embedded", f"{corruption}/{unknown}", stored["text"], *made, 100.0


@cache
def recorded(folder: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Class embeddings, features and labels of the recorded stream."""
    stored = np.load(folder / "stream.npz")
    text = stored["text_features"].astype(np.float32)
    tower = CLIPVisionModelWithProjection.from_pretrained(folder / "vision")
    backbone = ostta.backbones.wrap(tower, torch.from_numpy(text), image_size=32, logit_scale=100.0)
    pixels = [canonical(Image.fromarray(views[0]), backbone.preprocessing) for views in stored["views"]]
    with torch.no_grad():
        return text, encode(backbone.vision, torch.stack(pixels), None).numpy(), stored["labels"]


def decide(
    text: np.ndarray, rows: np.ndarray, options: FieldOptions, centre: np.ndarray | None = None, at_once: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Log-odds and class of each image, as the profile `field` gives them."""
    prior = None if centre is None else torch.from_numpy(centre)
    texts = torch.from_numpy(np.ascontiguousarray(text))
    score = FieldScore(options, Setting(texts, 100.0, 1.0, NO_PREPROCESSING, encode_nothing, centre=lambda: prior))
    if at_once:
        odds = np.array([scored.value for scored in score.fit_set(rows)])
    else:
        odds = np.zeros(len(rows))
        for place, row in enumerate(rows):
            look: Any = SimpleNamespace(features=torch.from_numpy(row))
            scored = score.value(look)
            odds[place] = scored.value
            score.remember(look, scored, NO_DECISION)
    levels, classes = Levels(len(text)), np.zeros(len(rows), int)
    for place, logits in enumerate(torch.from_numpy((rows @ text.T).astype(np.float64))):
        classes[place] = int(levels.without(logits).argmax())
        levels.remember(logits, bool(odds[place] >= 0))
    return odds, classes


def run(stream: Stream, ratio: float, at_once: bool = False, **options: Any) -> dict[str, Any]:
    _, _, text, rows, labels, _, centre = stream
    if options.get("frozen"):
        lda = LDA()
        accepted = np.array([lda.observe(score).desired for score in (rows @ text.T).max(1).tolist()])
        classes, odds = (rows @ text.T).argmax(1), None
    else:
        fixed = options.pop("fixed", {})
        with patch.dict(vars(solve), fixed), patch.dict(vars(fit_to_text), fixed):
            odds, classes = decide(text, rows, FieldOptions(**options), centre, at_once)
        accepted = odds >= 0
    known, right = labels >= 0, accepted & (classes == labels)
    desired, undesired = right[known].mean(), (~accepted)[~known].mean() if (~known).any() else 1.0
    harmonic = 200 * desired * undesired / max(desired + undesired, 1e-9)
    accuracy = 100 * (right | (~accepted & ~known)).mean()
    result = {"figure": harmonic if ratio == 1 else accuracy, "hm": harmonic}
    result |= {"accepted": 100 * accepted[known].mean(), "rejected": 100 * undesired}
    if odds is not None:
        probability = 1 / (1 + np.exp(-odds))
        bins = np.array_split(np.argsort(probability, kind="stable"), 15)
        result["ece"] = sum(len(b) * abs(probability[b].mean() - known[b].mean()) for b in bins) / len(known)
    return result


def measure(given: argparse.Namespace) -> None:
    choices = _choices(given)
    figures: Figures = {name: defaultdict(list) for name in choices}
    for order, ratio, arrangement in itertools.product(range(given.orders), RATIOS, given.arrangements.split(",")):
        for stream in streams(given, ratio, order, arrangement):
            if given.only and stream[0] not in given.only:
                continue
            for name, options in choices.items():
                found = run(stream, ratio, given.set_at_once, **options) | {"stream": stream[1]}
                figures[name][stream[0], arrangement, ratio].append(found)
        print(f"order {order}, ratio {ratio}, {arrangement} is done", file=sys.stderr, flush=True)
    for name, cells in figures.items():
        for (backbone, arrangement, ratio), rows in sorted(cells.items(), key=lambda item: (*item[0][:2], -item[0][2])):
            values = np.sort([row["figure"] for row in rows])
            tenth = values[: max(1, len(values) // 10)].mean()
            shown = [key for key in rows[0] if key not in ("figure", "stream")]
            others = "  ".join(f"{key} {np.mean([row[key] for row in rows]):.3g}" for key in shown)
            against = "" if name == FROZEN else _difference(rows, figures[FROZEN][backbone, arrangement, ratio])
            cell = f"{backbone:9} {arrangement:9} {ratio:4}"
            print(f"{name:20} {cell}  {values.mean():6.2f}  worst tenth {tenth:6.2f}  {others}  {against}")
    if len(choices) > 2:
        _left_out(figures)


def _difference(rows: list[dict[str, Any]], frozen: list[dict[str, Any]]) -> str:
    """Mean difference to the frozen classifier with a 95 % interval over streams, and the lowest stream."""
    by_stream: dict[str, list[float]] = defaultdict(list)
    for own, other in zip(rows, frozen, strict=True):
        by_stream[own["stream"]].append(own["figure"] - other["figure"])
    means = np.array([np.mean(values) for values in by_stream.values()])
    drawn = np.random.default_rng(0).choice(means, (2000, len(means))).mean(1)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return f"to frozen {means.mean():+.2f} [{low:+.2f}, {high:+.2f}], lowest {means.min():+.2f}"


def _left_out(figures: Figures) -> None:
    """For each backbone, the choice that is best on the mean of the others, and its figures."""
    means = {
        name: {key: float(np.mean([row["figure"] for row in rows])) for key, rows in cells.items()}
        for name, cells in figures.items()
        if name != FROZEN
    }
    for left in sorted({key[0] for key in next(iter(means.values()))}):
        best = max(means, key=lambda name: np.mean([value for key, value in means[name].items() if key[0] != left]))
        own = {key[1:]: round(value, 2) for key, value in means[best].items() if key[0] == left}
        print(f"without {left}: {best}; on {left}: {own}")


def encode_nothing(views: torch.Tensor) -> torch.Tensor:
    raise AssertionError("the rule encodes no image")


def _choices(given: argparse.Namespace) -> dict[str, dict[str, Any]]:
    choices: dict[str, dict[str, Any]] = {FROZEN: {"frozen": True}, "field": {}}
    if given.sensitivity:
        for field in fields(FieldOptions):
            for factor in (0.8, 1.2):
                if field.name in ("undecided_images", "words"):
                    continue
                value = type(field.default)(field.default * factor)
                choices[f"{field.name}={value:g}"] = {field.name: value}
        for name, factor in itertools.product(FIXED, (0.8, 1.2)):
            module = solve if hasattr(solve, name) else fit_to_text
            value = getattr(module, name) * factor
            value = int(value) if isinstance(getattr(module, name), int) else value
            choices[f"{name}={value:g}"] = {"fixed": {name: value}}
    kinds = {field.name: type(field.default) for field in fields(FieldOptions)}
    lines = [[(text.partition("=")[0], value) for value in text.partition("=")[2].split(",")] for text in given.set]
    for pairs in itertools.product(*lines) if lines else ():
        values = {name: kinds[name](value) for name, value in pairs}
        choices[" ".join(f"{name}={value}" for name, value in pairs)] = values
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
    measuring.add_argument("--embedded", type=Path, help="the file that `encode` wrote")
    measuring.add_argument("--golden", type=Path, help="folder of the recorded stream and its image tower")
    measuring.add_argument("--set", action="append", default=[], metavar="NAME=A,B")
    measuring.add_argument("--only", action="append", default=[], help="a backbone; again for another")
    measuring.add_argument("--orders", type=int, default=1)
    measuring.add_argument("--splits", type=int, default=6, help="number of splits of CLIP's photographs, up to 20")
    measuring.add_argument("--arrangements", default="shuffled,bursts,ordered")
    measuring.add_argument("--set-at-once", action="store_true", help="one fit to all images of a stream")
    measuring.add_argument("--sensitivity", action="store_true")
    given = parser.parse_args(arguments)
    encode_embedded(given) if given.command == "encode" else measure(given)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.exit(main())
