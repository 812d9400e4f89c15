"""Measures from records: against scikit-learn, against loops over all pairs and windows, and by hand."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss, roc_auc_score
from typer.testing import CliRunner

from helpers.errors import raises
from helpers.results import made
from ostta.bench.collected import collect_results
from ostta.bench.figures import SuiteFigures
from ostta.bench.formats import FORMATS
from ostta.bench.result import read_result
from ostta.bench.suite import expand, read_suite
from ostta.cli.app import app
from ostta.config import plugins
from ostta.evaluation.measures import MEASURES, RunColumns, find_measure, measure_run, regret, worst_tenth
from ostta.pages.suite import suite_report


def columns(seed: int = 0, count: int = 120, digits: int = 1) -> dict[str, object]:
    """Records of a run with many equal scores and probabilities."""
    chance = np.random.default_rng(seed)
    labels = np.where(chance.random(count) < 0.6, chance.integers(0, 4, count), -1)
    scores = (chance.normal(size=count) + 1.5 * (labels >= 0)).round(digits)
    index = np.where(chance.random(count) < 0.7, labels, (labels + 1) % 4)
    verdicts = np.where(scores > 0.8, "reliable_desired", "reliable_undesired")
    return {
        "label": labels,
        "score": scores,
        "known": scores > 0.8,
        "index": index,
        "probability": (1 / (1 + np.exp(-scores))).round(digits + 1),
        "adapted": chance.random(count) < 0.3,
        "pseudo_label": index,
        "verdict": verdicts,
    }


def run(seed: int = 0, count: int = 120, digits: int = 1) -> RunColumns:
    return RunColumns.of(columns(seed, count, digits))


@pytest.mark.parametrize("seed", range(3))
def test_openauc_and_oscr_are_those_of_all_pairs(seed: int) -> None:
    one = run(seed)
    pairs = [
        one.right_class[i] * ((one.scores[i] > one.scores[j]) + 0.5 * (one.scores[i] == one.scores[j]))
        for i in np.flatnonzero(one.known)
        for j in np.flatnonzero(~one.known)
    ]
    assert MEASURES["openauc"](one) == pytest.approx(100 * np.mean(pairs))
    # The curve, threshold by threshold.
    points = [(0.0, 0.0)]
    for threshold in sorted(set(one.scores), reverse=True):
        above = one.scores >= threshold
        points.append((above[~one.known].mean(), (above & one.right_class)[one.known].mean()))
    area = sum((x - x0) * (y + y0) / 2 for (x0, y0), (x, y) in itertools.pairwise(points))
    assert MEASURES["oscr"](one) == pytest.approx(100 * area) == pytest.approx(MEASURES["openauc"](one))
    # With every class right, it is the AUROC.
    perfect = replace(one, index=one.labels)
    assert MEASURES["openauc"](perfect) == pytest.approx(100 * roc_auc_score(one.known, one.scores))


def test_aupr_both_ways_is_that_of_a_loop() -> None:
    one = run(1)
    for name, positive, scores in (("aupr_known", one.known, one.scores), ("aupr_unknown", ~one.known, -one.scores)):
        area, before = 0.0, 0.0
        for threshold in sorted(set(scores), reverse=True):
            above = scores >= threshold
            recall, precision = above[positive].mean(), positive[above].mean()
            area, before = area + (recall - before) * precision, recall
        assert MEASURES[name](one) == pytest.approx(100 * area)
    # A score that knows nothing has the share of its side.
    nothing = replace(one, scores=np.zeros(len(one.scores)))
    assert MEASURES["aupr_unknown"](nothing) == pytest.approx(MEASURES["share_unknown"](one))
    assert MEASURES["share_unknown"](one) == pytest.approx(100 * np.mean(one.labels < 0))


def test_calibration_agrees_with_scikit_learn() -> None:
    one = run(2, 150, digits=6)
    truth, predicted = calibration_curve(one.known, one.probability, n_bins=15, strategy="quantile")
    assert len(truth) == 15
    # 150 different probabilities: ten in each bin.
    assert MEASURES["ece"](one) == pytest.approx(np.mean(np.abs(truth - predicted)))
    assert MEASURES["brier"](one) == pytest.approx(brier_score_loss(one.known, one.probability))


def test_calibration_by_hand() -> None:
    labels = np.array([0, 0, 0, -1, -1, 0])
    probability = np.array([0.9, 0.9, 0.9, 0.9, 0.2, 0.2])
    one = replace(run(0, 6), labels=labels, probability=probability)
    # Equal probabilities share a bin: four images with 0.9, of which three are known, and two with 0.2, of which one
    # is.
    assert MEASURES["ece"](one) == pytest.approx((4 * 0.15 + 2 * 0.3) / 6)
    assert MEASURES["brier"](one) == pytest.approx((3 * 0.01 + 0.81 + 0.04 + 0.64) / 6)
    # Images without a probability do not count; without any there is no value.
    partly = replace(one, probability=np.where(np.arange(6) < 4, probability, np.nan))
    assert MEASURES["ece"](partly) == pytest.approx(0.15)
    absent = RunColumns.of({name: values for name, values in columns().items() if name != "probability"})
    assert MEASURES["ece"](absent) is MEASURES["brier"](absent) is MEASURES["share_undecided"](absent) is None
    assert MEASURES["share_undecided"](replace(one, undecided=np.arange(6) < 3)) == 50.0


def test_a_run_of_the_field_profile_has_measures_of_its_probabilities(tmp_path: Path) -> None:
    arguments = ["--desired", "sample:cifar10", "--undesired", "sample:mnist", "--limit", "40", "--out", str(tmp_path)]
    done = CliRunner().invoke(app, ["run", *arguments, "--profile", "field", "--set", "accept=0.8"])
    assert done.exit_code == 0, done.output
    (path,) = tmp_path.glob("*.json")
    result = read_result(path)
    assert result.options["adapter"]["accept"] == ["0.8"]
    kept = pyarrow.parquet.read_table(tmp_path / result.records).to_pydict()
    known, probability = np.array(kept["label"]) >= 0, np.array(kept["probability"])
    assert kept["known"] == (probability >= 0.8).tolist()
    assert kept["undecided"] == [place < 32 for place in range(80)]
    assert result.measures["share_undecided"] == 40.0
    assert result.measures["brier"] == pytest.approx(brier_score_loss(known, probability))
    assert 0 <= result.measures["ece"] <= 1


@pytest.mark.parametrize("seed", range(3))
def test_risk_and_coverage_agree_with_the_closed_form_and_a_loop(seed: int) -> None:
    one = run(seed)
    right, accuracy = one.right_class, one.right_class.mean()
    # Traub et al.: AUGRC = (1 - AUROC_f) acc (1 - acc) + (1 - acc)^2 / 2, where AUROC_f ranks right answers above
    # failures.
    closed = (1 - roc_auc_score(right, one.scores)) * accuracy * (1 - accuracy) + (1 - accuracy) ** 2 / 2
    assert MEASURES["augrc"](one) == pytest.approx(100 * closed)
    fine = run(seed, digits=9)
    order = np.argsort(-fine.scores)
    for share in (80, 90, 95):
        covered = order[: len(order) * share // 100]
        assert MEASURES[f"error_at_{share}"](fine) == pytest.approx(100 * np.mean(~fine.right_class[covered]))


def test_what_was_learned_from_by_hand() -> None:
    one = RunColumns.of({
        "label": [0, 1, -1, -1, 2, 0],
        "score": [1.0] * 6,
        "known": [True] * 6,
        "index": [0] * 6,
        "adapted": [True, True, True, True, True, False],
        "pseudo_label": [0, 0, 1, 0, 2, 3],
        # As known: right, wrong class, unknown image. As unknown: right, and a known image. The last has no update.
        "verdict": ["reliable_desired"] * 3 + ["reliable_undesired"] * 2 + ["unreliable_desired"],
    })  # fmt: skip
    assert MEASURES["update_purity"](one) == pytest.approx(100 * 2 / 5)
    assert MEASURES["update_purity"](replace(one, adapted=np.zeros(6, bool))) is None


def test_streams_of_one_side() -> None:
    one = run(0)
    closed = replace(one, labels=np.abs(one.labels))
    values = measure_run(closed, problems := [])
    assert not problems
    assert values["rejected_closed"] == pytest.approx(100 * np.mean(~one.accepted))
    assert {name for name, value in values.items() if value is None} == {
        "openauc",
        "oscr",
        "aupr_known",
        "aupr_unknown",
    }
    assert MEASURES["rejected_closed"](one) is None


def test_regret_is_that_of_every_window() -> None:
    ours, frozen = run(1, 700), replace(run(1, 700), accepted=np.random.default_rng(5).random(700) < 0.5)
    for size in (1, 50, 512, 700, 5000):
        windows = [slice(start, start + size) for start in range(max(1, 700 - size + 1))]
        lost = max(100 * (frozen.correct[each].mean() - ours.correct[each].mean()) for each in windows)
        assert regret(ours, frozen, size) == pytest.approx(lost)
    assert regret(ours, ours) == 0.0
    with raises("runs-not-paired"):
        regret(run(1), run(2))


def test_the_worst_tenth() -> None:
    values = [float(value) for value in range(25)]
    # Three of 25.
    assert worst_tenth(values) == 1.0
    assert worst_tenth(values, lower_is_better=True) == 23.0
    assert worst_tenth(values[:9]) is None


# --- measures from outside --------------------------------------------------------------------------------------------
def test_a_package_or_a_file_adds_a_measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def registered(kind: str, name: str) -> object:
        return {"mine": lambda run: float(run.accepted.sum()), "broken": lambda run: 1 / 0, "text": "no function"}[name]

    monkeypatch.setattr(
        plugins, "registered_names", lambda kind: ["mine", "broken", "text"] if kind == "measure" else []
    )
    monkeypatch.setattr(plugins, "registered", registered)
    one = run()
    values = measure_run(one, problems := [])
    assert values["mine"] == one.accepted.sum()
    assert "The measure 'broken' failed: ZeroDivisionError: division by zero." in problems
    assert any("must be a function of RunColumns or a Measure, not 'no function'" in problem for problem in problems)
    with raises("measure-unknown", match="There is no measure 'none'"):
        find_measure("none")
    (tmp_path / "own.py").write_text(
        "from ostta.evaluation.measures import Measure\ntwice = Measure('x', 'twice ↑', lambda run: 2.0)\n"
    )
    found = find_measure(f"{tmp_path / 'own.py'}:twice")
    assert (found(one), found.heading) == (2.0, "twice ↑")


SUITE = """
metrics = ["hm", "hm_worst_tenth", "openauc", "aupr_unknown", "ece", "regret", "own.py:accepted"]
orders = 10
limit = 5
[base]
desired = "sample:cifar10c"
undesired = "sample:mnist"
[axes]
method = ["zero_shot", "tda"]
"""


def test_tables_and_pages_have_measures_from_result_files_and_from_records(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def accepted(run):\n    return 100 * float(run.accepted.mean())\n")
    (tmp_path / "suite.toml").write_text(SUITE)
    suite = read_suite(tmp_path / "suite.toml", str(tmp_path / "suite.toml"))
    runs = {}
    for place, cell in enumerate(expand(suite)):
        kept = columns(cell.seed) | ({} if cell.spec.method == "zero_shot" else {"known": np.ones(120, bool)})
        shown = {"source": ["x"] * 120, "number": list(range(120)), "domain": [0] * 120}
        pyarrow.parquet.write_table(pyarrow.table(kept | shown), tmp_path / f"{place}.parquet")
        runs[cell.spec.method, cell.seed] = RunColumns.of(kept)
        # The result file has one of the measures; the others come from the records.
        made(cell.spec, 60.0 + cell.seed, records=f"{place}.parquet", measures={"openauc": 12.5}).write(
            tmp_path / f"{place}.json"
        )
    figures = SuiteFigures(collect_results(suite, tmp_path))
    (column,) = figures.columns
    frozen, tda = ("zero_shot",), ("tda",)
    value = {metric: figures.figure(tda, column, metric).mean for metric in suite.metrics}
    assert (value["openauc"], value["hm_worst_tenth"]) == (12.5, 60.0)
    ece = [MEASURES["ece"](runs["tda", seed]) for seed in range(10)]
    assert value["ece"] == pytest.approx(np.mean(ece))
    lost = [regret(runs["tda", seed], runs["zero_shot", seed]) for seed in range(10)]
    assert value["regret"] == pytest.approx(np.mean(lost))
    assert value["regret"] > 0
    assert figures.figure(frozen, column, "regret").mean is None
    own = next(metric for metric in suite.metrics if metric.endswith("own.py:accepted"))
    assert value[own] == 100.0
    text = FORMATS["md"](figures)
    assert all(heading in text for heading in ("OpenAUC ↑", "HM, worst tenth ↑", "ECE ↓", "regret, worst 512 ↓"))
    assert re.search(r"\| +accepted ", text)
    assert f"{np.mean(ece):.4f}" in text
    assert "Share of unknown images: " in text
    # The page has those too that the suite does not name.
    page = suite_report(figures).replace("\u00a0", " ")
    assert "AUGRC ↓" in page
    assert "right among updates ↑" in page
    (tmp_path / "bad.toml").write_text(SUITE.replace("openauc", "openacu"))
    with raises("suite-invalid", match="did you mean 'openauc'"):
        read_suite(tmp_path / "bad.toml", "bad.toml")
