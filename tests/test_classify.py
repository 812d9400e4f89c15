"""`ostta.classify`: a whole set of images at once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import ostta
from helpers.cases import backbone, images
from helpers.errors import raises

CLASSES = ["cat", "dog", "ship", "truck"]


@pytest.mark.parametrize("method", ["zero_shot", "tda"])
def test_the_order_of_the_images_does_not_matter(method: str) -> None:
    pictures = [*images(60), "lost.png"]
    given: dict = {"method": method, "identifier": "field", "score": "field"} if method == "tda" else {}
    model = backbone("embedded")
    found = ostta.classify(model, CLASSES, pictures, **given).predictions
    order = np.random.default_rng(1).permutation(len(pictures)).tolist()
    permuted = ostta.classify(model, CLASSES, [pictures[place] for place in order], **given).predictions
    for place, prediction in zip(order, permuted, strict=True):
        assert (found[place].label, found[place].best) == (prediction.label, prediction.best)
        assert found[place].probability == pytest.approx(prediction.probability, abs=1e-6)
        assert not prediction.undecided
    assert [prediction.verdict is None for prediction in found] == [False] * 60 + [True]
    assert found[-1].reason


def test_folders_and_features_are_sets_too(tmp_path: Path) -> None:
    for number, picture in enumerate(images(12)):
        picture.save(tmp_path / f"{number:02}.png")
    model = backbone("embedded")
    found = ostta.classify(model, CLASSES, tmp_path, features=True).predictions
    assert [Path(prediction.name or "").name for prediction in found] == [f"{number:02}.png" for number in range(12)]
    rows = torch.tensor([prediction.features for prediction in found])
    for features in (rows, rows.numpy()):
        again = ostta.classify(model, CLASSES, features).predictions
        assert [prediction.label for prediction in again] == [prediction.label for prediction in found]
        assert [prediction.probability for prediction in again] == pytest.approx(
            [prediction.probability for prediction in found], abs=1e-4
        )
    assert ostta.classify(model, CLASSES, []).predictions == []


def test_the_adapter_continues_as_a_stream(tmp_path: Path) -> None:
    pictures = images(80)
    adapter = ostta.classify(backbone("embedded"), CLASSES, pictures[:70], guard=True).adapter
    assert adapter.steps == 70
    adapter.save(tmp_path / "set.ostta")
    restored = ostta.restore(tmp_path / "set.ostta")
    for picture in pictures[70:]:
        expected, prediction = adapter.step(picture), restored.step(picture)
        assert (prediction.label, prediction.undecided) == (expected.label, False)
        assert prediction.probability == pytest.approx(expected.probability, abs=1e-9)
    assert adapter.steps == restored.steps == 80


def test_other_scores_and_methods_cannot_fit_to_a_set() -> None:
    for options in ({"method": "rosita"}, {"method": "tda"}):
        raises(lambda options=options: ostta.classify(backbone("embedded"), CLASSES, images(4), **options))
