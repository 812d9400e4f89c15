"""Distances by hand, against SciPy and by their bounds; reliable images by hand; memory by formula.

A run that keeps it all.
"""

from __future__ import annotations

import json
import math
from collections import deque

import numpy as np
import pyarrow.parquet
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import linear_sum_assignment
from scipy.stats import wasserstein_distance

import ostta
from helpers.cases import CASES, CLASSES, SmallTower, adapter, images
from helpers.errors import raises
from ostta import Verdict
from ostta.bench.records import write_records
from ostta.bench.result import Result, read_result
from ostta.bench.run import carry_out, prepare
from ostta.bench.spec import RunSpec
from ostta.core.banks import FeatureBank, ScoreBank
from ostta.core.types import Decision, Prediction
from ostta.evaluation import analyses
from ostta.evaluation.analyses import BankBytes, ReliableAccuracy, distances
from ostta.evaluation.loop import Records
from ostta.methods.base import Proposal
from ostta.streams import Sample

RNG = np.random.default_rng(0)


# --- distances --------------------------------------------------------------------------------------------------------
def test_orthogonal_unit_vectors() -> None:
    apart = distances([[1.0, 0.0]], [[0.0, 1.0]])
    assert apart.euclidean == apart.wasserstein == pytest.approx(math.sqrt(2))
    assert apart.cosine == pytest.approx(1.0)
    assert (apart.desired_used, apart.undesired_used, apart.desired_given, apart.undesired_given) == (1, 1, 1, 1)


def test_a_small_case_by_hand() -> None:
    # Pairs: 0 and 4 from (3, 0), 4 and 0 from (3, 4): mean 2; carried over without cost, as the two sets are the same.
    # Cosines: 1 and 3/5, 3/5 and 1: mean 0.8.
    square = distances([[3.0, 0.0], [3.0, 4.0]], [[3.0, 4.0], [3.0, 0.0]])
    assert (square.euclidean, square.wasserstein) == (pytest.approx(2.0), pytest.approx(0.0, abs=1e-12))
    assert square.cosine == pytest.approx(0.2)
    # Cosine does not see lengths: the mean of cosines, not the cosine of means.
    longer = distances([[30.0, 0.0], [3.0, 4.0]], [[3.0, 4.0], [0.3, 0.0]])
    assert longer.cosine == pytest.approx(0.2)


def test_shifted_points_on_a_line() -> None:
    points = np.array([[1.0, 0.0], [2.0, 0.0], [4.0, 0.0]])
    moved = distances(points, points + np.array([2.5, 0.0]))
    assert moved.wasserstein == pytest.approx(2.5)
    # |1-3.5| + |1-4.5| + |1-6.5| + |2-3.5| + |2-4.5| + |2-6.5| + |4-3.5| + |4-4.5| + |4-6.5| = 23.5
    assert moved.euclidean == pytest.approx(23.5 / 9)
    assert moved.cosine == pytest.approx(0.0, abs=1e-12)


def test_unequal_numbers_weigh_every_feature_alike() -> None:
    # Half of each of the two is carried to each third of the others: 1/3 stays at 1, 1/6 goes from 1 to 2, and so on.
    uneven = distances([[1.0], [3.0]], [[1.0], [2.0], [3.0]])
    assert uneven.wasserstein == pytest.approx(1 / 3)


@pytest.mark.parametrize("sizes", [(40, 40), (17, 53)])
def test_wasserstein_on_a_line_agrees_with_scipy(sizes: tuple[int, int]) -> None:
    first, second = (RNG.normal(5, 1, size) for size in sizes)
    direction = RNG.normal(size=8)
    direction /= np.linalg.norm(direction)
    found = distances(np.outer(first, direction), np.outer(second, direction))
    assert found.wasserstein == pytest.approx(wasserstein_distance(first, second))


def test_wasserstein_of_equal_numbers_is_an_assignment() -> None:
    first, second = RNG.normal(size=(30, 5)), RNG.normal(1, 2, size=(30, 5))
    costs = np.array([[math.dist(f, g) for g in second] for f in first])
    found = distances(first, second)
    assert found.wasserstein == pytest.approx(costs[linear_sum_assignment(costs)].mean())
    assert found.euclidean == pytest.approx(costs.mean())


def features(rows: int) -> st.SearchStrategy[np.ndarray]:
    return arrays(np.float64, (rows, 3), elements=st.floats(0.25, 100))


@settings(max_examples=60, deadline=None)
@given(features(6), features(4))
def test_wasserstein_lies_between_its_bounds(first: np.ndarray, second: np.ndarray) -> None:
    found = distances(first, second)
    # Carrying everything everywhere is one way; no way is shorter than the way between the means.
    assert found.wasserstein <= found.euclidean * (1 + 1e-9) + 1e-9
    assert found.wasserstein >= np.linalg.norm(first.mean(0) - second.mean(0)) * (1 - 1e-9) - 1e-9
    assert distances(second, first).wasserstein == pytest.approx(found.wasserstein, abs=1e-9)
    assert distances(first, first[::-1]).wasserstein == pytest.approx(0.0, abs=1e-9)


def test_euclidean_follows_cosine_for_tight_clusters_of_unit_features() -> None:
    centres = RNG.normal(size=(2, 64))
    clusters = [centre + RNG.normal(0, 0.05, size=(50, 64)) for centre in centres]
    first, second = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in clusters)
    found = distances(first, second)
    assert found.euclidean == pytest.approx(math.sqrt(2 * found.cosine), rel=2e-3)
    # The mean of roots is never above the root of the mean.
    assert found.euclidean <= math.sqrt(2 * found.cosine)


def test_a_choice_of_features_is_seeded_and_without_repetition() -> None:
    # Feature k lies 2^k from the one undesired feature, so the sum of the distances spells out which were chosen.
    desired = [[2.0**k, 1.0] for k in range(30)]
    chosen = [distances(desired, [[0.0, 1.0]], limit=10, seed=seed) for seed in (0, 0, 1)]
    assert chosen[0] == chosen[1]
    assert chosen[0].euclidean != chosen[2].euclidean
    for found in chosen:
        assert (found.desired_used, found.undesired_used, found.desired_given, found.undesired_given) == (10, 1, 30, 1)
        assert round(found.euclidean * 10).bit_count() == 10
        assert found.wasserstein == pytest.approx(found.euclidean)
    assert distances(desired, [[0.0, 1.0]], limit=30).euclidean * 30 == pytest.approx(2**30 - 1)


@pytest.mark.parametrize(
    ("desired", "undesired", "keywords", "code"),
    [
        ([[1.0, math.nan], [1.0, 0.0]], [[1.0, 0.0]], {}, "features-invalid"),
        ([[1.0, 0.0]], [[math.inf, 0.0]], {}, "features-invalid"),
        (np.empty((0, 4)), [[1.0] * 4], {}, "features-invalid"),
        ([[1.0] * 4], [], {}, "features-invalid"),
        ([1.0, 0.0], [[1.0, 0.0]], {}, "features-invalid"),
        ([[[1.0]]], [[1.0]], {}, "features-invalid"),
        ([[1.0], [1.0, 2.0]], [[1.0]], {}, "features-invalid"),
        ([[1.0, 0.0]], [[1.0]], {}, "features-invalid"),
        ([[0.0, 0.0]], [[1.0, 0.0]], {}, "features-invalid"),
        ([[1.0]], [[1.0]], {"limit": 0}, "option-invalid"),
    ],
)
def test_what_has_no_distance_is_a_sentence(desired, undesired, keywords: dict, code: str) -> None:
    with raises(code) as caught:
        distances(desired, undesired, **keywords)
    assert str(caught.value)[0].isupper() or str(caught.value)[0].isdigit() or str(caught.value)[0] == "`"
    assert str(caught.value).endswith(".")


# --- reliable images --------------------------------------------------------------------------------------------------
RD, UD, UU, RU = Verdict
# label, verdict, class before the update, class after it, K+
TWELVE = [
    (0, RD, 0, 0, 5),
    (0, RD, 1, 1, 0),  # no neighbour of its class, which counts as well
    (1, RD, 1, 0, 3),  # right when it was stored; the update spoilt the answer
    (1, RD, 1, 1, None),  # before the banks were full enough
    (-1, RD, 0, 0, 2),
    (0, UD, 0, 0, None),
    (1, UD, 0, 0, None),
    (-1, UD, 0, 0, None),
    (1, UU, 1, 1, None),
    (1, RU, 1, 1, None),
    (-1, RU, 0, 0, None),
    (-1, RU, 1, 1, None),
]


def records_of(rows: list[tuple], kept: np.ndarray | None = None) -> Records:
    records = Records()
    for number, (label, verdict, before, after, matches) in enumerate(rows):
        known = verdict.desired
        prediction = Prediction(
            str(after) if known else None, after, known, 0.5, 0.4, 0.6, 0.3, verdict, True, 1.0, None,
            pseudo_label=before, diagnostics={} if matches is None else {"matches": matches},
            features=None if kept is None else tuple(kept[number].tolist()),
        )  # fmt: skip
        records.add(Sample(images(1)[0], label, "made", number), prediction)
    return records


def test_reliable_accuracy_of_twelve_images_by_hand() -> None:
    # Reliable desired: five, of which four are desired, of which three had their own class before the update (two have
    # it after). Reliable undesired: three, of which two are undesired.
    found = analyses.reliable_accuracy(records_of(TWELVE))
    assert found.pseudo_label == pytest.approx(100 * 3 / 4)
    assert found.desired == pytest.approx(100 * 4 / 5)
    assert found.undesired == pytest.approx(100 * 2 / 3)


def test_average_matches_of_twelve_images_by_hand() -> None:
    assert analyses.average_matches(records_of(TWELVE)) == pytest.approx((5 + 0 + 3 + 2) / 4)


def test_no_reliable_image_gives_no_figure() -> None:
    unreliable = records_of([row for row in TWELVE if row[1] in (UD, UU)])
    assert analyses.reliable_accuracy(unreliable) == ReliableAccuracy(None, None, None)
    assert analyses.average_matches(unreliable) is None
    strangers = records_of([row for row in TWELVE if row[0] < 0 and row[1] is RD])
    assert analyses.reliable_accuracy(strangers) == ReliableAccuracy(None, 0.0, None)


# --- what predictions and records carry -------------------------------------------------------------------------------
def test_features_and_pseudo_label_are_from_before_the_update() -> None:
    one = adapter("rosita", features=True, lr=20.0)
    moved = changed = 0
    for image in images(80):
        before, stepped, after = one.predict(image), one.step(image), one.predict(image)
        assert stepped.pseudo_label == before.index == before.pseudo_label
        np.testing.assert_allclose(stepped.features, before.features, atol=1e-6)
        assert np.linalg.norm(stepped.features) == pytest.approx(1.0, abs=1e-5)
        if stepped.adapted:
            moved += after.features != before.features
        changed += stepped.index != stepped.pseudo_label
    assert moved
    assert changed


def test_matches_are_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    one = adapter("zero_shot")

    def propose(state, look, decision: Decision) -> Proposal:
        return Proposal(loss=1.0, adapted=True, diagnostics={"matches": 3})

    monkeypatch.setattr(one.method, "propose", propose)
    assert one.step(images(1)[0]).diagnostics == {"matches": 3}
    assert one.predict(images(1)[0]).diagnostics == {}


def test_matches_of_rosita_are_the_definition_worked_out_from_the_stream() -> None:
    one = adapter("rosita", kind="embedded", features=True)
    classifier = one.classifier.numpy()
    desired, undesired = deque(maxlen=5 * 10), deque(maxlen=64)
    acted = []
    for image in images(120):
        seen = one.step(image)
        features, expected = np.array(seen.features), None
        if seen.verdict is RU:
            undesired.append(features)
        elif seen.verdict is RD:
            desired.append(features)
            if len(desired) > 5 and len(undesired) > 5:
                nearest = sorted(desired, key=lambda stored: -stored @ features)[:5]
                expected = sum(int((classifier @ stored).argmax()) == seen.pseudo_label for stored in nearest)
                acted.append(expected)
        assert seen.diagnostics.get("matches") == expected
    assert len(set(acted)) > 1


def test_records_keep_features_as_arrays_and_nothing_of_an_image_without_any() -> None:
    kept = RNG.normal(size=(12, 4)).astype(np.float32)
    records = records_of(TWELVE, kept)
    records.add(
        Sample(images(1)[0], -1, "made", 12), adapter(features=True).step_views(torch.full((2, 3, 32, 32), math.nan))
    )
    assert [row.dtype for row in records.features[:12]] == [np.float32] * 12
    assert np.array_equal(records.features[:12], kept)
    assert records.features[12] is None
    assert all(prediction.features is None for prediction in records.predictions)
    labels = records.labels[:12]
    assert analyses.stream_distances(records) == distances(kept[labels >= 0], kept[labels < 0])


def test_no_stream_distances_without_features_or_with_one_side() -> None:
    assert analyses.stream_distances(records_of(TWELVE)) is None
    desired = [row for row in TWELVE if row[0] >= 0]
    assert analyses.stream_distances(records_of(desired, np.ones((len(desired), 4)))) is None


# --- memory and parameters --------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("bank", "megabytes"), [(64, 0.233), (320, 0.758)])
def test_memory_of_rosita_is_the_papers_formula(bank: int, megabytes: float) -> None:
    """5 C + 64 float32 features of 512; the paper's table has the figure of 5 C + 320 (D7)."""
    backbone = ostta.backbones.wrap(SmallTower(512), torch.randn(10, 512), image_size=32)
    one = ostta.load(backbone, CLASSES, "rosita", undesired_bank=bank)
    found = analyses.bank_bytes(one)
    assert found.features == (5 * 10 + bank) * 512 * 4
    assert found.features / 1e6 == pytest.approx(megabytes, abs=5e-4)
    assert found.scores == 512 * 8
    assert analyses.adapted_parameters(one) == 4 * 512


@pytest.mark.parametrize(("method", "kind"), CASES)
def test_memory_is_that_of_the_features_in_the_state_file(method: str, kind: str) -> None:
    one = adapter(method, "lda", kind)
    stored = [tensor for name, tensor in one.state.tensors().items() if name.endswith(("/features", "/pixels"))]
    assert analyses.bank_bytes(one).features == sum(tensor.numel() * tensor.element_size() for tensor in stored)


@pytest.mark.parametrize(
    ("method", "count"),
    [("zero_shot", 0), ("tda", 10 * (3 + 2)), ("dpe", 10 * 3), ("oga", 10 * 8), ("prototypes", 64), ("unient", 0)],
)
def test_memory_of_other_methods(method: str, count: int) -> None:
    assert analyses.bank_bytes(adapter(method)) == BankBytes(count * 16 * 4, 512 * 8)


def test_a_memory_counts_by_what_the_state_says_and_not_by_the_name_of_an_attribute() -> None:
    """A method from outside may keep its banks in a list, or under names of its own."""
    one = adapter("zero_shot", "msp")
    banks = [FeatureBank(4, 16), FeatureBank(6, 16)]
    for number, bank in enumerate(banks):
        bank.push(torch.eye(16)[number])
    one.state.memories = lambda: {"desired": banks[0], "undesired": banks[1]}
    one.identifier.memories = lambda: {"long": ScoreBank(100), "short": ScoreBank(10)}
    assert analyses.bank_bytes(one) == BankBytes(10 * 16 * 4, 110 * 8)
    assert analyses.bank_distances(one).cosine == 1.0


@pytest.mark.parametrize(("method", "kind"), CASES)
def test_memories_have_the_names_of_the_state_file(method: str, kind: str) -> None:
    one = adapter(method, "lda", kind)
    named = {name.rpartition("/")[0] for name in one.state.tensors() if name.endswith(("/features", "/pixels"))}
    assert set(one.state.memories()) == named
    assert set(one.identifier.memories()) == {name for name in one.identifier.tensors() if name == "scores"}


def test_memory_of_the_identifier() -> None:
    assert analyses.bank_bytes(adapter("zero_shot", "lda", window=100)).scores == 800
    assert analyses.bank_bytes(adapter("zero_shot", "daf")).scores == 4096
    assert analyses.bank_bytes(adapter("zero_shot", "msp")).scores == 0


def test_adapted_parameters_are_counted() -> None:
    assert analyses.adapted_parameters(adapter("rosita")) == 4 * 16
    assert analyses.adapted_parameters(adapter("tda")) is None


def test_bank_distances_need_two_filled_banks() -> None:
    one = adapter("rosita")
    assert analyses.bank_distances(one) is None
    sides = np.eye(16, dtype=np.float32)
    one.state.desired.push(torch.from_numpy(sides[0]), 0)
    assert analyses.bank_distances(one) is None
    one.state.undesired.push(torch.from_numpy(sides[1]))
    found = analyses.bank_distances(one)
    assert found is not None
    assert (found.euclidean, found.desired_given, found.undesired_given) == (pytest.approx(math.sqrt(2)), 1, 1)
    assert analyses.bank_distances(adapter("tda")) is None


# --- a whole run ------------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple:
    spec = RunSpec(desired="sample:cifar10c", undesired="sample:mnist", limit=20, options={"features": "true"})
    prepared = prepare(spec, None)
    result, records = carry_out(prepared)
    path = prepared.path(tmp_path_factory.mktemp("run"))
    write_records(records, path.with_suffix(".parquet"))
    result.write(path)
    return prepared, result, path


def test_a_run_holds_its_analyses_and_reads_them_back(finished: tuple) -> None:
    prepared, result, path = finished
    assert read_result(path) == result
    found = result.analyses
    assert found.stream_distances.desired_given == found.stream_distances.undesired_given == 20
    assert 0 < found.stream_distances.wasserstein <= found.stream_distances.euclidean < 2
    state = prepared.adapter.state
    assert found.bank_distances.desired_given == len(state.desired) > 0
    assert found.bank_distances.undesired_given == len(state.undesired) > 0
    assert len(state.desired) == result.counts["reliable_desired"]
    assert found.adapted_parameters == sum(p.numel() for p in state.overlay.parameters())
    width = prepared.adapter.classifier.shape[1]
    assert found.bank_bytes == BankBytes((5 * 10 + 64) * width * 4, 4096)
    assert 0 <= found.reliable.pseudo_label <= 100


def test_records_on_disk_give_the_same_distances(finished: tuple) -> None:
    _, result, path = finished
    table = pyarrow.parquet.read_table(path.with_suffix(".parquet"))
    labels, rows = table["label"].to_numpy(), np.array(table["features"].to_pylist(), dtype=np.float32)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    pairs = [math.dist(f, g) for f in rows[labels >= 0] for g in rows[labels < 0]]
    assert result.analyses.stream_distances.euclidean == pytest.approx(np.mean(pairs), rel=1e-5)
    assert table["pseudo_label"].to_numpy().min() >= 0
    assert len(table["matches"]) == 40


def test_without_features_a_run_keeps_none(tmp_path) -> None:
    spec = RunSpec(method="zero_shot", desired="sample:cifar10c", undesired="sample:mnist", limit=4)
    result, records = carry_out(prepare(spec, None))
    write_records(records, tmp_path / "r.parquet")
    assert "features" not in pyarrow.parquet.read_table(tmp_path / "r.parquet").column_names
    found = result.analyses
    assert (found.stream_distances, found.bank_distances, found.average_matches) == (None, None, None)
    assert (found.adapted_parameters, found.bank_bytes.features) == (None, 0)


def test_result_files_from_before_the_analyses_still_load(finished: tuple, tmp_path) -> None:
    content = json.loads(finished[2].read_text())
    spoilt = json.loads(finished[2].read_text())
    del content["analyses"]
    (tmp_path / "old.json").write_text(json.dumps(content))
    old = read_result(tmp_path / "old.json")
    assert isinstance(old, Result)
    assert old.analyses is None
    spoilt["analyses"]["bank_bytes"]["labels"] = 3
    (tmp_path / "spoilt.json").write_text(json.dumps(spoilt))
    with raises("result-invalid", match=r"analyses\.bank_bytes\.labels"):
        read_result(tmp_path / "spoilt.json")
