"""CLIPTTA in its streaming form.

Its losses against the published ones written out, its memory, its state and its steps.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

import ostta
from helpers.cases import CLASSES, FixedVerdict, adapter, backbone, content, images, same, trace
from helpers.errors import raises
from ostta import Decision, Error, Verdict
from ostta.core.losses import entropy, unit
from ostta.core.optimisers import Optimiser
from ostta.core.otsu import otsu_split
from ostta.data.views import Views, canonical, from_levels, to_levels
from ostta.live import StreamPool
from ostta.rivals.cliptta import contrastive_entropy, mixed_entropy, outlier_exposure
from ostta.rivals.image_memory import ImageBuffer, ImageMemory


def chance(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# --- losses -----------------------------------------------------------------------------------------------------------
def published_contrast(features: torch.Tensor, text: torch.Tensor, scale: float) -> torch.Tensor:
    """The entropy of each row of the B x B matrix: every image against the class of every image."""
    answers = (features @ text.T).argmax(1)
    return entropy(scale * features @ text[answers].T)


@pytest.mark.parametrize(("batch", "classes"), [(1, 10), (8, 3), (64, 10), (30, 200)])
def test_contrast_by_classes_is_that_of_all_pairs(batch: int, classes: int) -> None:
    features = unit(torch.randn(batch, 32, generator=chance(), dtype=torch.float64)).requires_grad_()
    text = unit(torch.randn(classes, 32, generator=chance(1), dtype=torch.float64))
    expected = published_contrast(features, text, 10.0)
    z = features @ text.T
    found = contrastive_entropy(10 * z, z.argmax(1).bincount(minlength=classes).double())
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)
    wanted = torch.autograd.grad(expected.mean(), features, retain_graph=True)[0]
    torch.testing.assert_close(torch.autograd.grad(found.mean(), features)[0], wanted, atol=1e-12, rtol=0)


def test_mean_prediction_and_exposure_are_their_formulas() -> None:
    logits = torch.randn(6, 4, generator=chance())
    before = torch.tensor([0.4, 0.3, 0.2, 0.1])
    mean = 0.75 * before + 0.25 * logits.softmax(1).mean(0)
    assert float(mixed_entropy(logits, before, 0.25)) == pytest.approx(float(-(mean * mean.log()).sum()), abs=1e-6)
    sure = torch.full((2, 3), -200.0)
    sure[:, 0] = 200.0
    sure.requires_grad_()
    alone = mixed_entropy(sure, torch.zeros(3), 1.0)
    assert float(alone.detach()) == 0
    assert bool(torch.isfinite(torch.autograd.grad(alone, sure)[0]).all())

    scores, others = [-2.20, -2.25], [-2.21, -2.24, -2.26]
    both = scores + others
    inside = [1 / (1 + math.exp(-(u + 2.23) / 0.005)) for u in both]
    m_in = sum(w * u for w, u in zip(inside, both, strict=True)) / sum(inside)
    m_out = sum((1 - w) * u for w, u in zip(inside, both, strict=True)) / sum(1 - w for w in inside)
    found = outlier_exposure(torch.tensor(scores), torch.tensor(others), -2.23, 0.005)
    assert float(found) == pytest.approx(-((m_in - m_out) ** 2), rel=1e-4)


def test_adam_is_torchs() -> None:
    values = [torch.randn(5, generator=chance()), torch.randn(2, 3, generator=chance(1))]
    theirs = [value.clone().requires_grad_() for value in values]
    adam, own = torch.optim.Adam(theirs, lr=1e-3, eps=1e-6), Optimiser("adamw", 1e-3, eps=1e-6, decay=0.0)
    for step in range(5):
        gradients = [torch.randn(value.shape, generator=chance(step + 2)) for value in values]
        for parameter, gradient in zip(theirs, gradients, strict=True):
            parameter.grad = gradient.clone()
        adam.step()
        values, own = own.step(values, gradients)
    for found, expected in zip(values, theirs, strict=True):
        torch.testing.assert_close(found, expected.detach())


# --- images -----------------------------------------------------------------------------------------------------------
def test_levels_give_the_canonical_view_back_bit_by_bit() -> None:
    preprocessing = backbone("embedded").preprocessing
    views = torch.stack([canonical(image, preprocessing) for image in images(8)])
    assert torch.equal(from_levels(to_levels(views, preprocessing), preprocessing), views)
    every = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 16, 16).expand(1, 3, 16, 16)
    assert torch.equal(to_levels(from_levels(every, preprocessing), preprocessing), every)


def picture(value: int) -> torch.Tensor:
    return torch.full((3, 2, 2), value, dtype=torch.uint8)


def test_memory_keeps_the_confident_and_gives_up_the_old() -> None:
    memory = ImageMemory(capacity=4, depth=2, longest=10, size=2)
    for now, (label, confidence, place) in enumerate(
        [
            (0, 0.5, 0),
            (0, 0.4, 1),
            (0, 0.3, None),  # less confident than both
            (0, 0.4, 1),  # as confident as the weakest, and younger
            (1, 0.1, 2),  # a class with room takes an empty place
            (2, 0.1, 3),
            (3, 0.1, 0),  # no place is empty: the oldest of all goes
            (0, 0.2, 1),  # the class has room again, and its own image is the oldest of all
            (1, 0.05, 2),
        ],
        start=1,
    ):
        assert memory.place(label, confidence, now) == place, now
        if place is not None:
            memory.put(place, picture(now), label, confidence, now)
    assert len(memory) == 4
    deep = ImageMemory(capacity=4, depth=1, longest=10, size=2)
    deep.put(0, picture(1), 0, 0.9, 1)
    assert deep.place(0, 0.1, 11) is None
    assert deep.place(0, 0.1, 12) == 0  # older than ten accepted images


def test_draws_take_turns_among_the_classes() -> None:
    memory = ImageMemory(capacity=8, depth=4, longest=10, size=2)
    assert len(memory.drawn(4, 0)) == 0
    for place, label in enumerate([0, 0, 0, 5, 7, 7]):
        memory.put(place, picture(place), label, 0.5, place)
    drawn = [[int(image[0, 0, 0]) for image in memory.drawn(3, turn)] for turn in range(4)]
    assert drawn == [[0, 3, 4], [1, 3, 5], [2, 3, 4], [0, 3, 5]]
    assert len(memory.drawn(100, 0)) == 6  # each once


def test_images_refuse_what_cannot_be() -> None:
    memory, buffer = ImageMemory(4, 2, 10, 2), ImageBuffer(3, 2)
    memory.put(0, picture(9), 1, 0.5, 3)
    buffer.push(picture(7), -1)
    for own, bad in (
        (memory, {"labels": torch.tensor([-1, 1, -1, -1])}),
        (memory, {"labels": torch.tensor([2, -1, -1, -1])}),
        (memory, {"times": torch.tensor([9, 0, 0, 0])}),
        (memory, {"times": torch.tensor([3, 1, 0, 0])}),
        (memory, {"confidences": torch.tensor([1.5, 0, 0, 0])}),
        (memory, {"pixels": torch.ones(4, 3, 2, 2, dtype=torch.uint8)}),
        (memory, {"labels": torch.tensor([1, 1, 1, -1])}),
        (buffer, {"count": torch.tensor(4)}),
        (buffer, {"count": torch.tensor(0)}),
        (buffer, {"labels": torch.tensor([-1, 1, -1])}),
    ):
        arguments: tuple[int, ...] = (2, 5) if own is memory else (2,)
        own.load(own.tensors(), *arguments)
        with raises("state-damaged"):
            own.load({**own.tensors(), **bad}, *arguments)


# --- the method -------------------------------------------------------------------------------------------------------
def test_the_loss_is_its_terms_written_out() -> None:
    one, given = adapter("cliptta", kind="embedded", buffer=4, recent=16), FixedVerdict()
    one.memory.identifier = given  # type: ignore[assignment]
    pictures = images(12)
    verdicts = [Verdict.RELIABLE_DESIRED, Verdict.UNRELIABLE_UNDESIRED, Verdict.UNRELIABLE_DESIRED] * 4
    for image, given.verdict in zip(pictures[:11], verdicts, strict=False):
        one.step(image)
    state, method, text = one.state, one.method, one.classifier
    assert state.updates == 2
    view = Views.of_image(pictures[11], one.backbone.preprocessing, 0, 11)
    look = one.pipeline.look_now(view)
    proposal = method.propose(state, look, Decision(Verdict.RELIABLE_DESIRED, None, None, None))
    gradient = proposal.gradient
    assert gradient is not None
    features = ostta.core.overlay.encode(gradient.overlay.vision, gradient.further_images(view), gradient.overlay)
    found = gradient.loss(look, features)
    features, look_features = features.detach(), look.features.detach()
    scale = one.backbone.logit_scale
    own = torch.cat([features[:3], look_features[None]]) @ text.T
    # Images 9 and 11 of the buffer (numbers 8 to 11) were accepted, and so is the last one.
    accepted = [label >= 0 for label in state.buffer.labels] + [True]
    assert accepted == [verdicts[number].desired for number in (8, 9, 10)] + [True]
    counts = torch.ones(10)
    for label in [*state.recent[state.recent >= 0].tolist(), int(look.logits.argmax())][-16:]:
        counts[label] += 1
    contrast = sum(
        (-p * (p / counts).log()).nan_to_num().sum(1).mean()
        for p in (
            (counts * (scale * z).exp()) / (counts * (scale * z).exp()).sum(1, keepdim=True)
            for z in (own[torch.tensor(accepted)], features[3:] @ text.T)
        )
    )
    share = max(4 / 16, 1 / 3)
    mean = (1 - share) * state.mean + share * (scale * own).softmax(1).mean(0)
    u = own.log_softmax(1).max(1).values
    line = otsu_split(state.scores.sorted_with(float(u[-1]))).threshold
    others = torch.from_numpy(state.scores.scores()[:-3]).float()
    expected = contrast + (mean * mean.log()).sum() + outlier_exposure(u, others, line, 0.005)
    assert float(found.detach()) == pytest.approx(float(expected), rel=1e-4)
    # The buffer was seen under the very values that are trained now, so its scores are the last of the bank.
    assert u[:3].tolist() == pytest.approx(state.scores.scores()[-3:].tolist(), abs=1e-5)


@pytest.mark.parametrize("buffer", [1, 3])
def test_one_step_a_buffer_and_the_state_follows(buffer: int) -> None:
    one = adapter("cliptta", buffer=buffer)
    found = [one.step(image) for image in images(12)]
    assert [p.adapted for p in found] == [(number + 1) % buffer == 0 for number in range(12)]
    assert one.state.optimiser.steps == one.state.updates == 12 // buffer
    assert float(one.state.mean.sum()) == pytest.approx(1, abs=1e-5)
    assert len(one.state.scores) == 12
    assert one.state.accepted == sum(p.known for p in found)
    assert {p.reason for p in found if not p.adapted} <= {"the buffer is still filling"}
    assert {name: memory.bytes for name, memory in one.state.memories().items()} == {
        "buffer": (buffer - 1) * 3 * 32 * 32,
        "images": 64 * 3 * 32 * 32,
    }


def test_the_memory_is_bounded_whatever_the_number_of_classes() -> None:
    own = ostta.backbones.wrap(
        torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 16), torch.nn.LayerNorm(16)),
        torch.randn(100, 16, generator=chance()),
        image_size=8,
    )
    one = ostta.load(own, [f"class {number}" for number in range(100)], method="cliptta", identifier="all")
    for number in range(100):
        one.step_views(torch.randn(1, 3, 8, 8, generator=chance(number)))
    assert len(one.state.images) <= 64
    labels = one.state.images.tensors()["labels"]
    assert labels[labels >= 0].bincount().max() == 1


def test_a_buffer_without_accepted_images_has_no_contrast() -> None:
    one, given = adapter("cliptta", buffer=2), FixedVerdict(Verdict.RELIABLE_UNDESIRED)
    one.memory.identifier = given  # type: ignore[assignment]
    found = [one.step(image) for image in images(6)]
    assert [p.diagnostics for p in found if p.adapted] == 3 * [{"accepted": 0, "drawn": 0}]
    assert all(math.isfinite(p.loss or 0) for p in found)
    silent = adapter("cliptta", buffer=2, beta_reg=0.0, beta_ood=0.0)
    silent.memory.identifier = given  # type: ignore[assignment]
    before = silent.state.overlay
    said = [silent.step(image).reason for image in images(4)]
    assert said == 2 * ["the buffer is still filling", said[1]]
    assert str(said[1]).startswith("no loss applies")
    assert silent.state.overlay is before
    assert len(silent.state.buffer) == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"beta_tta": 0.0, "beta_reg": 0.0, "beta_ood": 0.0}, "no loss"),
        ({"buffer": 16, "recent": 8}, "at least `buffer`"),
        ({"memory": 0}, "`memory` must be from 1"),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], words: str) -> None:
    with pytest.raises(Error, match=words):
        adapter("cliptta", **options)


def test_a_state_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    """Restored with a half-full buffer, and with a full one."""
    whole = adapter("cliptta", kind="embedded")
    expected = trace(whole.stream(images(30)))
    for cut in (12, 15):
        part = adapter("cliptta", kind="embedded")
        found = trace(part.stream(images(30)[:cut]))
        part.save(tmp_path / "state.ostta")
        part = ostta.Adapter.restore(tmp_path / "state.ostta")
        assert found + trace(part.stream(images(30)[cut:])) == expected
        assert same(content(part), content(whole))


def test_streams_of_a_pool_learn_from_their_own_images() -> None:
    """With other methods beside them, and with buffers that are full at different times."""
    pool, model = StreamPool(backbone("embedded")), backbone("embedded")
    options: dict[str, dict[str, Any]] = {
        "a": {"method": "cliptta", "buffer": 3}, "b": {"method": "cliptta", "buffer": 4}, "c": {"method": "rosita"},
        "d": {"method": "cliptta", "buffer": 3, "group": "last_block"},
    }  # fmt: skip
    alone = {name: ostta.load(model, CLASSES, seed=5, **own) for name, own in options.items()}
    for name, own in options.items():
        pool.add(name, CLASSES, seed=5, **own)
    for image in images(24):
        together = pool.step(dict.fromkeys(options, image))
        for name, one in alone.items():
            expected = one.step(image)
            assert together[name].score == pytest.approx(expected.score, abs=1e-4)
            assert together[name].adapted == expected.adapted
            if expected.loss is not None:
                assert together[name].loss == pytest.approx(expected.loss, abs=1e-3)
