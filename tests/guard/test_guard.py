"""The guard: each signal, each rung, save and restore, the pool, code from outside, and what it may cost."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import ostta
from helpers.cases import CLASSES, FixedVerdict, adapter, backbone, images, same, trace
from helpers.cases import content as everything
from helpers.errors import raises
from ostta import Verdict
from ostta.backbones.siglip import SIGMOID_DEFAULTS
from ostta.core.optimisers import DiscardedStep
from ostta.core.overlay import distance
from ostta.core.types import EVENTS
from ostta.guard import GuardOptions, Rung, Snapshot
from ostta.guard.guard import MESSAGES
from ostta.guard.shadow import Shadow
from ostta.guard.signals import ACCEPTED, CHECKS, RARE, Check, Signals, effective_classes
from ostta.identifiers.lda import LDAOptions
from ostta.live import StreamPool

TEXTS = torch.eye(10, 16)
NAMES = [f"class {number}" for number in range(10)]


def features(label: int | None, number: int, clear: float = 2.0, width: int = 16) -> torch.Tensor:
    """An image of a class, or of none."""
    chance = torch.Generator().manual_seed(number)
    noise = torch.randn(width, generator=chance) * 0.3
    if label is not None:
        noise[label] += clear
    return noise / noise.norm()


def remembering(method: str = "zero_shot", **options: Any) -> ostta.Adapter:
    """An adapter that needs nothing but features, with a guard."""
    return ostta.load(ostta.backbones.wrap(None, TEXTS, logit_scale=5.0), NAMES, method=method, guard=True, **options)


# A fixed threshold rejects images of two classes at once, which the frozen model accepts: `gap` leaves its band.
STRICT: dict[str, Any] = {"identifier": "msp", "max_gap": 0.2}


def ambiguous(count: int, start: int = 0) -> list[torch.Tensor]:
    """Images of two classes at once."""
    found = [features(3, start + n) + features(4, start + n) for n in range(count)]
    return [image / image.norm() for image in found]


def training(**options: Any) -> ostta.Adapter:
    """ROSITA, told that every image is surely known, so that each one is an update."""
    one = adapter("rosita", losses=("re",), guard=True, **options)
    one.memory.identifier = FixedVerdict(Verdict.RELIABLE_DESIRED)  # type: ignore[assignment]
    return one


def content(one: ostta.Adapter, part: str = "") -> dict[str, torch.Tensor]:
    """What an adapter remembers, or a part of it."""
    return {name: tensor for name, tensor in everything(one).items() if name.startswith(part)}


def kinds(predictions: list[ostta.Prediction]) -> list[str]:
    return [event.kind for prediction in predictions for event in prediction.events]


def usual(count: int, start: int = 0) -> list[torch.Tensor]:
    """All classes alike, and as many images of none."""
    return [features(n // 2 % 10 if n % 2 else None, start + n) for n in range(count)]


# --- signals ----------------------------------------------------------------------------------------------------------
def seen(classes: int = 10, **limits: Any) -> Signals:
    return Signals(GuardOptions(**limits), classes)


def out(signals: Signals) -> set[str]:
    return set(signals.out(signals.values()))


def pairs(own: Any, frozen: Any, classes: int = 10, every: bool = True) -> Signals:
    """Signals of accepted images with the classes that the adapter and the frozen model assign."""
    signals = seen(classes)
    for index, frozen_index in zip(own, frozen, strict=True):
        signals.checked(0, Check(1, int(index), 1, int(frozen_index), 1.0), every=every)
    return signals


def test_the_effective_number_of_classes() -> None:
    assert effective_classes(np.array([7, 0, 0, 0])) == 1
    assert effective_classes(np.array([3, 3, 3, 3])) == pytest.approx(4)
    # Entropy of (1/2, 1/4, 1/4) is 1.5 bits.
    assert effective_classes(np.array([2, 1, 1])) == pytest.approx(2**1.5)


@pytest.mark.parametrize("classes", [2, 10, 100])
def test_one_class_where_the_frozen_model_sees_all_is_uneven_once_enough_was_accepted(classes: int) -> None:
    for every, least in ((True, ACCEPTED[1]), (False, RARE[1])):
        few, enough = (
            pairs([1] * count, [n % classes for n in range(count)], classes, every) for count in (least - 1, least)
        )
        few.checked(0, Check(0, 1, 0, 1, 0.0), every=every)  # a rejected image counts for no class
        assert "evenness" not in few.values()
        assert "evenness" in out(enough)


@pytest.mark.parametrize("classes", [2, 10, 100])
@pytest.mark.parametrize("shown", [1, 2, 3])
def test_few_classes_are_no_collapse_where_the_frozen_model_sees_the_same(classes: int, shown: int) -> None:
    own = [n % min(shown, classes) for n in range(ACCEPTED[0])]
    assert pairs(own, own, classes).values()["evenness"] == pytest.approx(1)
    # One image in ten is confused by the frozen model only.
    confused = [(n * 7) % classes if n % 10 == 0 else index for n, index in enumerate(own)]
    assert "evenness" not in out(pairs(own, confused, classes))


def checks(count: int, every: bool, probability: float | None = None, **limits: Any) -> Signals:
    """The frozen model accepts one image in three, the adapter all of them."""
    signals = seen(**limits)
    for n in range(count):
        share = 1.0 if probability is None else probability
        signals.checked(0, Check(1, n % 10, int(n % 3 == 0), n % 10, share), every=every)
    return signals


def test_disagreement_gap_and_estimate_are_of_checks() -> None:
    values = checks(CHECKS[1], True).values()
    # A method that trains nothing may accept more.
    assert values["disagreement"] == values["gap"] == 0
    signals = checks(CHECKS[1], False, max_disagreement=0.6)
    values = signals.values()
    assert values["gap"] == pytest.approx(values["disagreement"])
    assert values["estimate"] == pytest.approx(1 / 3, abs=0.02)
    assert out(signals) == {"disagreement", "gap"}


def test_the_gap_is_of_probabilities_where_there_are_some() -> None:
    assert checks(CHECKS[1], False, 0.6).values()["gap"] == pytest.approx(0.6 - 1 / 3)
    assert checks(CHECKS[1], True, 0.1).values()["gap"] == pytest.approx(1 / 3 - 0.1)


def test_a_check_takes_the_probability_of_the_decision_and_leaves_undecided_images_out() -> None:
    plain = ostta.Decision(Verdict.RELIABLE_DESIRED, 0.3, 0.4, 0.2)
    assert Check.of(replace(plain, probability=0.7), 4, plain, 2) == (1, 4, 1, 2, 0.7)
    assert Check.of(plain, 4, plain, 2).probability == 1
    one = ostta.load(ostta.backbones.wrap(None, TEXTS), NAMES)  # the profile `field`
    young = one.resolved.score.undecided_images
    found = [one.step_features(image) for image in usual(young + CHECKS[1])]
    assert [prediction.undecided for prediction in found] == [True] * young + [False] * CHECKS[1]
    content = one.guard.tensors()
    # The frozen model follows all images.
    assert len(content["shadow/scores"]) == young + CHECKS[1]
    expected = [prediction.probability for prediction in found[young:]]
    assert content["signals/checks"][:, -1].tolist() == expected
    assert one.guard.signals.values()["share"] == pytest.approx(np.mean(expected))


def test_few_classes_stop_a_method_from_training_and_nothing_else() -> None:
    one = training(patience=1, cool_down=10**6)
    guard = one.guard
    for _ in range(ACCEPTED[1]):
        guard.signals.trained_on(0, 0)
        guard.signals.checked(0, Check(1, 0, 1, 0, 1.0), every=True)
    assert out(guard.signals) == {"diversity"}
    events = [event for n in range(200) for event in guard.climb()]
    assert [event.kind for event in events] == ["warn", "skip"]
    assert "`min_diversity=0` trains nevertheless." in events[1].sentence
    assert guard.rung == Rung.SKIPPING
    for n in range(ACCEPTED[0]):
        guard.signals.trained_on(0, n % 10)
    assert [event.kind for n in range(16) for event in guard.climb()] == ["thaw"]


def test_a_collapse_that_the_frozen_model_does_not_share_lowers_the_estimate() -> None:
    both, own = seen(), seen()
    for number in range(CHECKS[0]):
        agreed = number % 4 > 0
        both.checked(0, Check(int(agreed), 0, 1, 0, float(agreed)), every=True)
        own.checked(0, Check(1, 0 if agreed else 1, 1, number % 10 if agreed else 2, 1.0), every=True)
    assert both.values()["estimate"] == pytest.approx(0.75)
    assert own.values()["estimate"] < 0.2
    assert "estimate" in out(own)


def test_a_few_checks_suffice_where_they_are_rare_and_kinds_are_not_mixed() -> None:
    signals = seen()
    for _ in range(RARE[1]):
        signals.checked(0, Check(1, 0, 0, 0, 1.0), every=False)
    assert "gap" in out(signals)
    signals.checked(0, Check(1, 0, 0, 0, 1.0), every=True)
    assert "gap" not in out(signals)


def test_long_steps_drift_and_values_that_are_not_finite() -> None:
    signals = seen()
    for _ in range(4):
        signals.moved(0, 0.01)
    assert out(signals) == {"step"}
    signals.drifted(0, 0.5)
    for _ in range(3):
        signals.stepped(0, True, None)
    assert out(signals) == {"step", "drift", "not_finite"}
    signals.forget()
    assert out(signals) == set()


def test_means_that_close_in_are_a_warning_only() -> None:
    one = remembering(min_separation=0.9, patience=1)
    for _ in range(200):
        one.guard.signals.stepped(0, False, 1.0)
    for _ in range(60):
        one.guard.signals.stepped(0, False, 0.1)
    warned = [event for _ in range(3) for event in one.guard.climb()]
    assert [event.kind for event in warned] == ["warn"]
    assert warned[0].evidence["separation"] < 0.9
    assert one.guard.rung == Rung.CALM


def test_prompts_of_the_text_tower_drift_too() -> None:
    """`tpt_c` on a CLIP sees images through the frozen tower; what it trains is in the text tower."""
    one = adapter("tpt_c", kind="embedded", guard=True, check_every=2, lr=1.0, views=2, share=1.0)
    one.memory.identifier = FixedVerdict(Verdict.RELIABLE_DESIRED)  # type: ignore[assignment]
    for image in images(4):
        assert one.step(image).adapted
    values = one.guard.signals.values()
    assert values["step"] > 0
    assert values["drift"] == pytest.approx(distance(one.state.overlay, one.method.initial))
    assert values["drift"] > 0


# --- the frozen model beside ------------------------------------------------------------------------------------------
def test_the_shadow_is_the_frozen_classifier_to_the_bit() -> None:
    frozen = ostta.load(ostta.backbones.wrap(None, TEXTS), NAMES, "zero_shot", features=True)
    shadow = Shadow(frozen.classifier, LDAOptions())
    for step, image in enumerate(usual(600), 1):
        found = frozen.step_features(image)
        judged = shadow.judge(torch.tensor(found.features), step)
        shadow.remember(judged, step)
        told = (judged.scored.value, judged.decision.threshold, judged.decision.verdict, judged.index)
        assert told == (found.score, found.threshold, found.verdict, found.index)


@pytest.mark.parametrize("identifier", ["field", "lda"])
def test_the_frozen_model_decides_with_the_options_of_the_backbone_and_of_the_identifier(identifier: str) -> None:
    """All cosines are negative, as those of SigLIP may be, and outside the grid of the default search."""
    texts = torch.cat([0.6 * TEXTS, torch.full((10, 1), -0.8)], dim=1)
    negative = ostta.backbones.wrap(None, texts)
    if identifier == "field":
        negative.defaults = SIGMOID_DEFAULTS
        one = ostta.load(negative, NAMES, guard=True)
    else:
        one = ostta.load(negative, NAMES, "zero_shot", guard=True, search="exact", window=64)
    one.guard.rung = Rung.FROZEN
    found = [one.step_features(torch.cat([0.6 * image, torch.tensor([0.8])])) for image in usual(200)]
    assert max(prediction.score for prediction in found) < 0
    assert 40 < sum(prediction.known for prediction in found[100:]) < 65
    assert len(one.guard.tensors()["shadow/scores"]) == (200 if identifier == "field" else 64)


def test_a_resting_adapter_answers_as_the_frozen_classifier() -> None:
    one = remembering(**STRICT, patience=1, cool_down=100_000)
    frozen = ostta.load(ostta.backbones.wrap(None, TEXTS), NAMES, "zero_shot")
    stream = ambiguous(80) + usual(100, 1000)
    pairs = [(one.step_features(image), frozen.step_features(image)) for image in stream]
    frozen_at = next(n for n, (found, _) in enumerate(pairs) if "freeze" in kinds([found]))
    assert CHECKS[1] < frozen_at < 80
    assert one.frozen
    for found, expected in pairs[frozen_at + 1 :]:
        assert (found.known, found.index, found.score, found.threshold) == (
            expected.known, expected.index, expected.score, expected.threshold,
        )  # fmt: skip
        assert found.reason == "the adapter is frozen"


# --- the ladder -------------------------------------------------------------------------------------------------------
def test_a_usual_stream_has_no_events() -> None:
    assert kinds([remembering().step_features(image) for image in usual(300)]) == []


@pytest.mark.parametrize("method", ["field", "zero_shot", "tda"])
@pytest.mark.parametrize("clear", [2.0, 1.0, 0.8])
def test_a_camera_that_sees_three_of_twenty_classes_is_no_collapse(method: str, clear: float) -> None:
    """The frozen model is right on all, on 87 % and on 69 % of the known images."""
    texts, names = torch.eye(20, 32), [f"class {number}" for number in range(20)]
    parts: dict[str, Any] = {} if method == "field" else {"method": method, "guard": True}
    one = ostta.load(ostta.backbones.wrap(None, texts), names, **parts)
    assert one.guard is not None
    stream = [features(n // 2 % 3 if n % 2 else None, n, clear, width=32) for n in range(240)]
    assert kinds([one.step_features(image) for image in stream]) == []


def test_a_model_that_answers_one_class_is_frozen_and_the_event_says_what_would_be_innocent() -> None:
    one = remembering("tda")
    look = one.method.look

    def collapsed(state: Any, seen: torch.Tensor, views: Any) -> Any:
        found = look(state, seen, views)
        return replace(found, logits=found.logits + 1000 * torch.eye(10)[7])

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(one.method, "look", collapsed)
        one.memory.identifier = FixedVerdict(Verdict.UNRELIABLE_DESIRED)  # type: ignore[assignment]
        found = [one.step_features(features(n % 10, n)) for n in range(64)]
    events = [event for prediction in found for event in prediction.events]
    assert [event.kind for event in events] == ["warn", "skip", "freeze"]
    assert events[0].evidence["evenness"] < 0.1
    assert "spread over 1.0 classes, 9.9 by the frozen model" in events[0].sentence
    assert "If the images show few classes" in events[0].sentence
    assert "`min_evenness=0` turns this check off." in events[0].sentence


def test_every_signal_has_a_message_with_an_option_that_exists() -> None:
    numbers = dict.fromkeys(
        ("classes_used", "frozen_classes_used", "classes_trained_on", "share", "frozen_share", *MESSAGES), 0.5
    )
    for name, (report, expected) in MESSAGES.items():
        assert "{" not in report.format(**numbers)
        options = set(re.findall(r"`(\w+)(?:=\d)?`", expected))
        assert options <= {field.name for field in fields(GuardOptions)}
        assert options or name == "not_finite"
    signals = seen(
        min_evenness=1, min_diversity=1, max_disagreement=0, max_gap=0, min_estimate=1, max_step=1e-9, max_drift=1e-9
    )
    assert set(signals.out(dict.fromkeys(MESSAGES, 0.5) | {"not_finite": 9.0})) == set(MESSAGES)


def test_one_rung_after_the_other_then_a_thaw() -> None:
    one = remembering("tda", **STRICT, patience=8, snapshot_every=50, cool_down=100)
    found = [one.step_features(image) for image in usual(200)]
    assert kinds(found) == []
    found = [one.step_features(image) for image in ambiguous(160, 5000)]
    assert kinds(found) == ["warn", "skip", "roll_back", "freeze"]
    for event in (event for prediction in found for event in prediction.events):
        assert event.kind in EVENTS
        assert event.evidence["gap"] > 0.2
        assert "`max_gap=1` turns this check off." in event.sentence
    found = [one.step_features(image) for image in usual(500, 9000)]
    assert kinds(found) == ["thaw"]
    assert not one.frozen


def test_skipping_stores_nothing_and_takes_no_step() -> None:
    one = training(max_step=1e-12, patience=1, cool_down=10**6)
    found = one.step(images(1)[0])
    while "skip" not in kinds([found]):
        found = one.step(images(1)[0])
    before = content(one, "method/")
    found = one.step(images(2)[1])
    assert not found.adapted
    assert found.reason == "the guard leaves out updates for now"
    assert same(content(one, "method/"), before) or "freeze" in kinds([found])


def test_freezing_goes_back_to_the_start_and_keeps_no_score_of_the_trained_model() -> None:
    one = training(max_step=1e-12, patience=1, cool_down=10**6)
    start = {name: tensor.clone() for name, tensor in one.state.tensors().items()}
    found = [one.step(image) for image in images(12)]
    assert kinds(found) == ["warn", "skip", "freeze"]
    assert same(one.state.tensors(), start)
    assert one.guard.pristine
    assert one.frozen


def test_the_time_until_a_thaw_doubles() -> None:
    one = remembering(**STRICT, cool_down=64, patience=8)
    spells = []
    for spell in range(2):
        for image in ambiguous(200, 1000 * spell):
            one.step_features(image)
        assert one.frozen
        count = 0
        while one.frozen:
            one.step_features(features(count // 2 % 10 if count % 2 else None, 50_000 + 1000 * spell + count))
            count += 1
        spells.append(count)
    assert spells[1] >= spells[0] + 40


def test_a_roll_back_returns_all_that_images_have_taught() -> None:
    one = remembering("tda", score="dart", snapshot_every=50)
    for image in usual(50):
        one.step_features(image)
    kept = content(one)
    for image in usual(30, 700):
        one.step_features(image)
    assert not same(content(one), kept)
    event = one.roll_back()
    assert event.kind == "roll_back"
    assert "50" in event.sentence
    for part in ("method/", "score/", "identifier/"):
        assert same(content(one, part), {name: value for name, value in kept.items() if name.startswith(part)})
    assert one.steps == 80
    with raises("snapshot-missing"):
        one.roll_back()


def test_a_collapse_is_undone_to_before_the_images_that_show_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """One image in 20 is compared, so `disagreement` covers 480 images when it leaves its band."""
    one, collapse = training(), 600
    guard, restored = one.guard, list[int]()

    def record(turn: Any, memory: Any, *_: Any) -> None:
        step, label = memory.steps, memory.steps // 20 % 10
        if step % 20 == 0:
            guard.signals.checked(step, Check(1, label if step < collapse else 0, 1, label, 1.0), every=False)

    monkeypatch.setattr(guard, "_record", record)
    monkeypatch.setattr(guard, "_restore", lambda snapshot, memory: restored.append(snapshot.step))
    while not restored:
        one.memory.steps += 1
        guard.watch(SimpleNamespace(failed=False), one.memory, 0, None, False)
        assert one.memory.steps < 2 * collapse
    covered = guard.signals.first_step(["disagreement"])
    assert one.memory.steps - 480 <= covered <= collapse
    assert covered - 480 < restored[0] < covered


@pytest.mark.parametrize("accepted", [1, 3])
def test_snapshots_reach_beyond_all_images_that_the_signals_cover(accepted: int) -> None:
    guard, most = training().guard, GuardOptions().snapshots
    for step in range(1, 10_000):
        if step % 20 == 0:
            known = int(step // 20 % accepted == 0)
            guard.signals.checked(step, Check(known, 0, 1, 0, 1.0), every=False)
        if step % 128 == 0:
            guard._keep(Snapshot(step, {}))
            covered = 20 * RARE[0] * accepted  # images between the first and the last comparison of `evenness`
            kept = [snapshot.step for snapshot in guard.snapshots]
            assert kept[-1] == step
            assert len(kept) <= most
            if step > 3 * covered:
                assert step - 3 * covered < kept[0] < guard.signals.first_step() <= step - covered + 20 * accepted


def test_a_signal_tells_from_which_image_on_it_was_computed() -> None:
    signals = seen()
    assert signals.first_step() == np.inf
    for step in range(1, 201):
        signals.stepped(step, failed=False)
        signals.trained_on(step, 0)
        signals.moved(step, 0.1)
        signals.drifted(step, 0.1)
        signals.checked(step, Check(step % 2, 0, 1, 0, 1.0), every=True)
    first = {name: signals.first_step([name]) for name in MESSAGES}
    assert first == {
        "evenness": 9, "diversity": 105, "disagreement": 73, "gap": 73, "estimate": 9, "step": 185, "drift": 200,
        "not_finite": 137,
    }  # fmt: skip
    assert signals.first_step() == 9


def test_failed_updates_do_not_replace_the_snapshots() -> None:
    """A failed update is not counted as a step.

    A snapshot that is due at the step before must not be stored again each time.
    """
    one = training(patience=2, snapshot_every=4)
    stream = images(17)
    for image in stream[:4]:
        one.step(image)
    one.guard.signals.reset()  # as if the first snapshot were older than all that the signals cover
    for image in stream[4:8]:
        one.step(image)
    kept = [snapshot.step for snapshot in one.guard.snapshots]
    assert len(kept) == 2
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("ostta.step.gradient_step", lambda *_: DiscardedStep("not finite"))
        assert "not finite" in str(one.step(stream[8]).reason)
        assert [snapshot.step for snapshot in one.guard.snapshots] == kept
        found = [one.step(image) for image in stream[9:17]]
    assert kinds(found)[:3] == ["warn", "skip", "roll_back"]


def test_resets_are_events_with_and_without_a_guard() -> None:
    for guard in (False, True):
        one = adapter("rosita", losses=("re",), reset_every=3, guard=guard)
        one.memory.identifier = FixedVerdict(Verdict.RELIABLE_DESIRED)  # type: ignore[assignment]
        found = [one.step(image) for image in images(7)]
        assert kinds(found) == ["reset", "reset"]
        assert found[2].events[0].evidence == {"reset": 3.0}


# --- by hand ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("method", ["rosita", "tda", "dpe", "prototypes", "zero_shot"])
def test_a_frozen_adapter_answers_and_its_method_stays(method: str) -> None:
    one = adapter(method)
    for image in images(6):
        one.step(image)
    assert one.freeze().kind == "freeze"
    before = content(one, "method/")
    found = [one.step(image) for image in images(8)]
    assert all(p.verdict is not None and not p.adapted for p in found)
    assert same(content(one, "method/"), before)
    assert one.steps == 14
    assert one.thaw().kind == "thaw"
    assert not one.frozen


@pytest.mark.parametrize("method", ["zero_shot", "tda"])
def test_the_guard_leaves_an_adapter_that_was_frozen_by_hand_as_it_is(method: str) -> None:
    one = remembering(method, **STRICT, answer="levelled", snapshot_every=50)
    for image in usual(110):
        one.step_features(image)
    one.freeze()
    parts = ("method/", "score/", "levels/", "guard/snapshots/")
    before = {part: content(one, part) for part in parts}
    found = [one.step_features(image) for image in ambiguous(150, 5000)]
    assert kinds(found) == []
    assert {prediction.reason for prediction in found} == {"the adapter is frozen"}
    for part in parts:
        assert same(content(one, part), before[part]), part
    # Thawed, it is guarded again, from signals that start anew.
    one.thaw()
    assert kinds([one.step_features(image) for image in ambiguous(80, 7000)])[:2] == ["warn", "skip"]


def test_frozen_is_kept_in_the_state(tmp_path: Path) -> None:
    one = adapter("tda")
    one.freeze()
    one.save(tmp_path / "a.ostta")
    again = ostta.Adapter.restore(tmp_path / "a.ostta", backbone=one.backbone)
    assert again.frozen
    again.reset()
    assert not again.frozen


def test_without_a_guard_there_is_nothing_to_roll_back_to() -> None:
    with raises("snapshot-missing", match="only `guard=True` keeps snapshots"):
        adapter("rosita").roll_back()
    with raises("guard-off", match="`check_every` is an option of the guard, which is off"):
        adapter("rosita", check_every=3)


def test_the_profile_field_has_a_guard_and_others_have_none() -> None:
    texts = ostta.backbones.wrap(None, TEXTS)
    assert ostta.load(texts, NAMES).guard is not None
    assert ostta.load(texts, NAMES, guard=False).guard is None
    assert ostta.load(texts, NAMES, "tda").guard is None
    assert ostta.load(texts, NAMES, profile="paper", method="tda").guard is None


# --- purity, state files, the pool ------------------------------------------------------------------------------------
def test_predict_changes_nothing_calm_or_frozen() -> None:
    one = remembering(**STRICT, patience=1, cool_down=10**6)
    for n, image in enumerate(ambiguous(60)):
        before = content(one)
        assert one.predict_features(features(n % 3, n)).events == ()
        assert same(content(one), before)
        one.step_features(image)
    assert one.frozen


@pytest.mark.parametrize("stop", [30, 90, 150, 260])
def test_a_restored_stream_goes_on_to_the_same_answers_and_events(stop: int, tmp_path: Path) -> None:
    options: dict[str, Any] = {"snapshot_every": 20, "snapshots": 8, "patience": 4, "cool_down": 40}
    parts: dict[str, Any] = {**STRICT, "answer": "levelled"}
    stream = [*usual(100), *ambiguous(100, 5000), *usual(160, 9000)]
    one, other = (remembering("tda", **parts, **options) for _ in range(2))
    found = [one.step_features(image) for image in stream]
    assert set(kinds(found)) >= {"warn", "skip", "roll_back", "freeze", "thaw"}
    again = [other.step_features(image) for image in stream[:stop]]
    other.save(tmp_path / "a.ostta")
    other = ostta.Adapter.restore(tmp_path / "a.ostta", backbone=other.backbone)
    again += [other.step_features(image) for image in stream[stop:]]
    assert trace(again) == trace(found)
    assert [p.events for p in again] == [p.events for p in found]
    assert same(content(one), content(other))


@pytest.mark.parametrize("stop", [2, 5, 9])
def test_a_restored_stream_that_trains_goes_on_to_the_same(stop: int, tmp_path: Path) -> None:
    def made() -> ostta.Adapter:
        return adapter("rosita", guard=True, max_step=1e-5, patience=2, check_every=3, snapshot_every=2, cool_down=4)

    one, other = made(), made()
    stream = images(14)
    found = [one.step(image) for image in stream]
    again = [other.step(image) for image in stream[:stop]]
    other.save(tmp_path / "a.ostta")
    other = ostta.Adapter.restore(tmp_path / "a.ostta", backbone=other.backbone)
    again += [other.step(image) for image in stream[stop:]]
    assert trace(again) == trace(found)
    assert [p.events for p in again] == [p.events for p in found]


def test_a_state_without_a_guard_knows_none_of_it(tmp_path: Path) -> None:
    one = adapter("rosita")
    assert "guard" not in one.describe()["options"]
    assert not any(name.startswith("guard") for name in content(one))
    guarded = adapter("rosita", guard=True, check_every=7)
    guarded.save(tmp_path / "a.ostta")
    again = ostta.Adapter.restore(tmp_path / "a.ostta", backbone=guarded.backbone)
    assert again.resolved.guard == guarded.resolved.guard
    assert again.resolved.sources["guard"]["check_every"] == "explicit"


def test_a_pool_guards_as_adapters_do() -> None:
    options: dict[str, Any] = {"max_step": 1e-12, "patience": 1, "check_every": 2, "cool_down": 3}
    pool = StreamPool(backbone("embedded"))
    alone = {}
    for number, name in enumerate(("door", "yard")):
        pool.add(name, CLASSES, method="rosita", guard=True, seed=number, **options)
        alone[name] = ostta.load(backbone("embedded"), CLASSES, method="rosita", guard=True, seed=number, **options)
    frozen = False
    for image in images(18):
        together = pool.step(dict.fromkeys(alone, image))
        for name, one in alone.items():
            expected, found = one.step(image), together[name]
            assert (found.known, found.index, found.adapted) == (expected.known, expected.index, expected.adapted)
            assert kinds([found]) == kinds([expected])
            frozen = frozen or one.frozen
    assert frozen


class Remembers:
    """A score from outside that only remembers: the best cosine less the mean of all it has seen."""

    Options = ostta.scores.MaxOptions
    about = "less the mean"
    scale = None

    def __init__(self, options: Any, setting: Any) -> None:
        self.reset()

    def reset(self) -> None:
        self.total = torch.zeros(2, dtype=torch.float64)

    def value(self, look: Any) -> Any:
        mean = float(self.total[0] / max(float(self.total[1]), 1))
        return ostta.core.types.Scored(float(look.logits.max()) - mean)

    def remember(self, look: Any, scored: Any, decision: Any) -> None:
        self.total += torch.tensor([float(look.logits.max()), 1.0], dtype=torch.float64)

    def memories(self) -> dict[str, Any]:
        return {}

    def tensors(self) -> dict[str, torch.Tensor]:
        return {"total": self.total}  # its own storage

    def load(self, tensors: dict[str, torch.Tensor]) -> None:
        self.total = tensors["total"].clone()


def test_a_score_from_outside_is_rolled_back_too() -> None:
    one = remembering(score=Remembers, identifier="lda", snapshot_every=20)
    for image in usual(20):
        one.step_features(image)
    kept = one.score.total.clone()
    for image in usual(15, 300):
        one.step_features(image)
    assert not torch.equal(one.score.total, kept)
    one.roll_back()
    assert torch.equal(one.score.total, kept)


# --- what it costs ----------------------------------------------------------------------------------------------------
def test_a_frozen_forward_on_one_image_in_so_many_and_none_where_nothing_is_trained() -> None:
    passes = {}
    for method in ("zero_shot", "rosita"):
        for guard in (False, True):
            one = adapter(method, kind="embedded", guard=guard, **({"check_every": 5} if guard else {}))
            if method == "rosita":
                one.memory.identifier = FixedVerdict(Verdict.UNRELIABLE_DESIRED)  # type: ignore[assignment]
            count = [0]
            hook = one.backbone.vision.register_forward_hook(lambda m, i, o, c=count: c.__setitem__(0, c[0] + len(o)))
            if guard:
                one.guard.pristine = False  # as after a first update
            for image in images(20):
                one.step(image)
            hook.remove()
            passes[method, guard] = count[0]
    assert passes["zero_shot", True] == passes["zero_shot", False] == 20
    assert passes["rosita", False] == 20
    assert passes["rosita", True] == 24


def test_a_method_that_has_trained_nothing_yet_pays_for_no_check() -> None:
    one = adapter("rosita", kind="embedded", guard=True, check_every=1)
    one.memory.identifier = FixedVerdict(Verdict.UNRELIABLE_DESIRED)  # type: ignore[assignment]
    count = [0]
    hook = one.backbone.vision.register_forward_hook(lambda *_: count.__setitem__(0, count[0] + 1))
    for image in images(5):
        one.step(image)
    hook.remove()
    assert count[0] == 5
