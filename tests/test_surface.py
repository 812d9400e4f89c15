"""What `import ostta` gives a person.

Names, texts of objects, predictions and records as data, and an example on everything.
"""

from __future__ import annotations

import doctest
import inspect
import json
import math
import re
import sys
import typing
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import ostta
import ostta.live
from helpers.cases import CLASSES, adapter, backbone, images
from helpers.errors import raises
from helpers.paths import ROOT
from ostta import Prediction, Verdict
from ostta.core.types import Timing
from ostta.data import ImageSource
from ostta.evaluation.loop import Records
from ostta.step import unseen_prediction
from ostta.streams import Sample

RELIABLE, UNRELIABLE = Verdict.RELIABLE_DESIRED, Verdict.UNRELIABLE_DESIRED


def answer(score: float, threshold: float | None, verdict: Verdict, **more: object) -> Prediction:
    label = "cat" if verdict.desired else None
    return Prediction(label, 3, verdict.desired, score, threshold, None, None, verdict, False, None, None, **more)


# --- texts ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("prediction", "text"),
    [
        (answer(0.412, 0.36, RELIABLE, best="cat"), "Prediction(cat, score 0.41 > 0.36, reliable)"),
        (answer(0.412, 0.36, UNRELIABLE), "Prediction(cat, score 0.41 > 0.36, unreliable)"),
        (
            answer(0.21, 0.36, Verdict.RELIABLE_UNDESIRED, best="dog"),
            "Prediction(unknown, best class dog, score 0.21 < 0.36, reliable)",
        ),
        # Made by hand, without the name of the best class.
        (
            answer(0.35, 0.36, Verdict.UNRELIABLE_UNDESIRED),
            "Prediction(unknown, best class number 3, score 0.35 < 0.36, unreliable)",
        ),
        (answer(0.412, None, UNRELIABLE), "Prediction(cat, score 0.41, unreliable)"),
        # Two numbers that differ look different, and a number that is not zero does not look like zero.
        (answer(0.36012, 0.36, UNRELIABLE), "Prediction(cat, score 0.3601 > 0.3600, unreliable)"),
        (answer(0.36, 0.36, UNRELIABLE), "Prediction(cat, score 0.36 = 0.36, unreliable)"),
        (answer(0.0042, None, UNRELIABLE), "Prediction(cat, score 0.004, unreliable)"),
        (answer(27.5, 21.0, RELIABLE), "Prediction(cat, score 27.50 > 21.00, reliable)"),
        (answer(1e-30, 0.0, UNRELIABLE), "Prediction(cat, score 1e-30 > 0.0, unreliable)"),
        (unseen_prediction("The given bytes are empty."), "Prediction(nothing seen: The given bytes are empty.)"),
        (unseen_prediction(None), "Prediction(nothing seen)"),
    ],
)
def test_the_text_of_a_prediction(prediction: Prediction, text: str) -> None:
    assert repr(prediction) == str(prediction) == text


def test_the_text_of_a_prediction_has_one_line() -> None:
    odd = Prediction("a\nb", 0, True, 0.5, None, None, None, UNRELIABLE, False, None, None)
    assert repr(odd) == "Prediction(a b, score 0.50, unreliable)"


def test_a_rejected_image_keeps_the_name_of_its_best_class() -> None:
    one = adapter("zero_shot", "msp")
    for prediction in one.stream(images(8)):
        assert prediction.best == CLASSES[prediction.index]
        assert prediction.label == (prediction.best if prediction.known else None)
    assert unseen_prediction("dark").best is None


def test_the_text_of_an_adapter() -> None:
    one = adapter("rosita")
    assert repr(one) == (
        "Adapter(wrapped, 10 classes (airplane, automobile, bird, ...), method rosita, identifier lda, profile "
        "reference, "
        "0 steps)"
    )
    one.step(images(1)[0])
    assert repr(one).endswith(", 1 step)")
    few = ostta.load(backbone("embedded"), ["cat"], "zero_shot", "all")
    assert repr(few) == "Adapter(embedded, 1 class (cat), method zero_shot, identifier all, profile reference, 0 steps)"


def test_the_text_of_a_pool_does_not_wait_for_its_work() -> None:
    pool = ostta.StreamPool(backbone("wrapped"), batch=4)
    assert repr(pool) == "StreamPool(wrapped, 0 streams, batch 4, 0 images waiting)"
    pool.add("yard", CLASSES, method="rosita")
    pool.add("door", CLASSES, method="rosita")
    pool.submit("door", images(1)[0])
    assert repr(pool) == "StreamPool(wrapped, 2 streams (door, yard), batch 4, 1 image waiting)"
    with pool, pool.held("door"):
        assert repr(pool).endswith("in the background)")
    assert repr(pool).endswith("closed)")


def test_the_text_of_backbones() -> None:
    assert repr(backbone("embedded")) == "Embedded(embedded, 32 x 32 images, features of 128)"
    assert repr(backbone("wrapped")) == "Wrapped(32 x 32 images, features of 16)"
    towerless = ostta.backbones.wrap(None, torch.eye(4))
    assert repr(towerless) == "Wrapped(no image tower, features of 4)"


# --- data -------------------------------------------------------------------------------------------------------------
def test_class_scores_are_by_name() -> None:
    one = adapter("zero_shot", class_scores=True)
    prediction = one.predict(images(1)[0])
    assert list(prediction.class_scores) == list(CLASSES)
    assert max(prediction.class_scores, key=prediction.class_scores.get) == prediction.best
    assert prediction.class_scores[prediction.best] == pytest.approx(prediction.score, abs=1e-6)
    assert adapter("zero_shot").predict(images(1)[0]).class_scores is None


def test_a_dict_is_what_json_says_with_plain_values() -> None:
    prediction = adapter("rosita", class_scores=True, features=True).step(images(1)[0])
    found = prediction.to_dict()
    assert found == json.loads(prediction.to_json())
    assert list(found) == list(json.loads(prediction.to_json()))
    assert type(found["verdict"]) is str
    assert type(found["features"]) is list
    assert type(found["class_scores"]) is type(found["diagnostics"]) is type(found["ms"]) is dict
    assert "features" not in adapter("rosita").step(images(1)[0]).to_dict()


def test_what_is_not_finite_stays_in_the_dict_and_is_null_in_json() -> None:
    odd = answer(math.nan, None, UNRELIABLE, class_scores={"cat": math.inf, "dog": 0.5}, diagnostics={"a": math.nan})
    found = odd.to_dict()
    assert math.isnan(found["score"])
    assert math.isnan(found["diagnostics"]["a"])
    assert found["class_scores"] == {"cat": math.inf, "dog": 0.5}
    written = json.loads(odd.to_json())
    assert written["score"] is None
    assert written["diagnostics"] == {"a": None}
    assert written["class_scores"] == {"cat": None, "dog": 0.5}
    # The dict belongs to who asked for it.
    found["class_scores"]["cat"] = 0.0
    assert odd.class_scores["cat"] == math.inf


def some_records() -> Records:
    records = Records()
    full = answer(
        0.4, 0.3, RELIABLE, ms=Timing(1.0, 2.0, 3.0), pseudo_label=3, diagnostics={"matches": 4}, features=(1.0, 0.0)
    )
    records.add(Sample(None, 3, "made", 7, 1), full)
    records.add(Sample(None, -1, "other", 8, 0), unseen_prediction("too dark"))
    return records


def test_records_as_a_table() -> None:
    table = some_records().to_pandas()
    assert list(table.columns) == [
        "source", "number", "label", "domain", "known", "index", "score", "threshold", "mu_desired", "mu_undesired",
        "verdict",
        "adapted", "loss", "reason", "pseudo_label", "matches", "ms_encode", "ms_decide", "ms_update", "features",
    ]  # fmt: skip
    assert table["label"].tolist() == [3, -1]
    assert table["known"].tolist() == [True, False]
    assert table["matches"].tolist()[0] == 4
    assert table[["matches", "score", "threshold"]].isna().to_numpy()[1].all()
    assert table["verdict"].tolist()[0] == "reliable_desired"
    assert table["reason"].tolist()[1] == "too dark"
    assert table["verdict"].isna().tolist() == [False, True]
    assert table["reason"].isna().tolist() == [True, False]
    assert table["ms_decide"].tolist() == [2.0, 0.0]
    np.testing.assert_array_equal(table["features"][0], np.array([1.0, 0.0], np.float32))
    assert table["features"][1] is None
    assert "features" not in Records().to_pandas()
    assert len(Records().to_pandas()) == 0


def test_the_table_is_the_file_of_records(tmp_path: Path) -> None:
    import pyarrow.parquet

    from ostta.bench.records import write_records

    write_records(some_records(), tmp_path / "records.parquet")
    assert pyarrow.parquet.read_table(tmp_path / "records.parquet").column_names == list(
        some_records().to_pandas().columns
    )


def test_a_diagnostic_hides_no_column() -> None:
    records = Records()
    records.add(Sample(None, 3, "made", 0, 0), answer(0.4, 0.3, RELIABLE, diagnostics={"label": 9.0}))
    table = records.to_pandas()
    assert table["label"].tolist() == [3]
    assert table["diagnostic_label"].tolist() == [9.0]


def test_a_table_without_pandas_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with raises("library-missing"):
        some_records().to_pandas()


def test_pandas_is_declared() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    bench = re.search(r"^bench = \[(.*?)^\]", text, flags=re.DOTALL | re.MULTILINE)
    assert bench is not None
    assert "pandas>=" in bench[1]


def test_the_text_of_records() -> None:
    assert repr(some_records()) == "Records(2 images: 1 desired, 1 undesired; 1 accepted, 0 updates)"
    assert repr(Records()) == "Records(0 images: 0 desired, 0 undesired; 0 accepted, 0 updates)"


# --- names ------------------------------------------------------------------------------------------------------------
def test_everything_in_all_is_there() -> None:
    assert {"StreamPool", "identifiers", "backbones", "ImageSource"} <= set(ostta.__all__)
    assert set(ostta.__all__) <= set(dir(ostta))
    for name in ostta.__all__:
        assert getattr(ostta, name) is not None
    assert ostta.StreamPool is ostta.live.StreamPool
    with pytest.raises(AttributeError, match="no attribute 'StreamPol'"):
        _ = ostta.StreamPol  # type: ignore[attr-defined]


def test_testing_and_restore_are_there_after_one_import(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(ostta, "testing", raising=False)  # as before anybody imported it
    assert ostta.testing.check_method
    assert ostta.restore == ostta.Adapter.restore


def test_images_have_their_type() -> None:
    for function in (ostta.Adapter.step, ostta.Adapter.predict):
        assert typing.get_type_hints(function)["image"] == ImageSource
    assert typing.get_type_hints(ostta.StreamPool.submit)["image"] == ImageSource | torch.Tensor
    # What `read_image` takes.
    for source in (bytearray, memoryview, bytes, str):
        assert source in typing.get_args(ImageSource)


# --- examples ---------------------------------------------------------------------------------------------------------
A_MODEL = "needs a model of another library; docs/backbones.md shows it"
A_PROTOCOL = "a part of a protocol, whose class has the example"
WITHOUT = {
    "ostta.backbones.huggingface.from_transformers": A_MODEL,
    "ostta.backbones.open_clip.from_open_clip": A_MODEL,
    "ostta.backbones.onnx_export.export": "takes seconds; docs/onnx.md shows it",
    "ostta.backbones.protocol.HasTextTower.embed": A_PROTOCOL,
    "ostta.backbones.protocol.TunesPrompts.prompted": A_PROTOCOL,
}
# Their methods are those of the protocol `Identifier`, which the examples of the classes call.
CLASS_ALONE = {name for name in ostta.identifiers.__all__ if name != "IDENTIFIERS"}


def public() -> Iterator[tuple[str, Callable[..., object]]]:
    """Every function, class and method that a person gets at by the names the package says are public."""
    exported = [
        (room, name)
        for room in (ostta, ostta.backbones, ostta.bench, ostta.identifiers, ostta.live, ostta.sources)
        for name in room.__all__
    ]
    things = {id(thing): thing for thing in [Records, *(getattr(room, name) for room, name in exported)]}
    for thing in things.values():
        if inspect.isclass(thing) or inspect.isfunction(thing):
            if not thing.__module__.startswith("ostta"):
                continue
            yield f"{thing.__module__}.{thing.__qualname__}", thing
        if inspect.isclass(thing) and thing.__name__ not in CLASS_ALONE:
            for name, member in vars(thing).items():
                if not name.startswith("_") and (
                    inspect.isfunction(member) or isinstance(member, (classmethod, staticmethod))
                ):
                    yield f"{thing.__module__}.{thing.__qualname__}.{name}", member


def found_by_doctest(module: str) -> dict[str, doctest.DocTest]:
    return {test.name: test for test in doctest.DocTestFinder(recurse=True).find(sys.modules[module])}


def test_the_list_of_public_things_is_no_empty_one() -> None:
    names = {name for name, _ in public()}
    assert {
        "ostta.adapter.load", "ostta.adapter.Adapter.step", "ostta.core.types.Prediction.to_dict",
        "ostta.live.pool.StreamPool.held",
        "ostta.evaluation.loop.Records.to_pandas", "ostta.adapter.Adapter.restore", "ostta.backbones.wrapped.wrap",
        "ostta.identifiers.lda.LDA",
        "ostta.backbones.protocol.Backbone.classifier", "ostta.core.types.Error", "ostta.sources.factory.open",
        "ostta.sources.source.Source.new_events", "ostta.sources.source.Item.require_image",
    } <= names  # fmt: skip
    assert set(WITHOUT) <= names


@pytest.mark.parametrize("name", sorted({name for name, _ in public()} - set(WITHOUT)))
def test_everything_public_has_an_example_that_runs(name: str) -> None:
    module = max((known for known in sys.modules if name.startswith(f"{known}.")), key=len)
    test = found_by_doctest(module).get(name)
    # What the finder does not see, such as a function behind a decorator of another module, pytest does not run.
    assert test is not None, f"doctest does not find {name}"
    run = [example for example in test.examples if not example.options.get(doctest.SKIP)]
    assert run, f"{name} has no example that runs"
    assert any(example.want for example in run), f"the example of {name} shows nothing"


def test_importing_the_setup_of_the_examples_starts_no_server() -> None:
    import importlib.util
    import threading

    before = set(threading.enumerate())
    spec = importlib.util.spec_from_file_location("examples_setup", ROOT / "src" / "conftest.py")
    assert spec is not None
    assert spec.loader is not None
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    assert set(threading.enumerate()) == before
