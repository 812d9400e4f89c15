"""Banks, losses and the overlay."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from helpers.errors import raises
from ostta.core.banks import FeatureBank, ScoreBank
from ostta.core.losses import NearestFeatures, desired_contrast, nearest, pseudo_label_loss, undesired_contrast, unit
from ostta.core.overlay import Overlay, encode
from ostta.methods.groups import layernorm_names


def turned(number: int) -> torch.Tensor:
    """A unit feature that tells its number: so many hundredths of a radian from the first axis."""
    angle = torch.tensor(number / 100)
    return torch.stack([angle.cos(), angle.sin()])


@settings(max_examples=40, deadline=None)
@given(pushes=st.lists(st.integers(0, 3), max_size=40), groups=st.sampled_from([1, 4]))
def test_feature_bank_is_a_list_with_a_limit(pushes: list[int], groups: int) -> None:
    """Against the obvious implementation: lists, cut at the front."""
    bank = FeatureBank(8, 2, groups, classes=4)
    plain: list[list[int]] = [[] for _ in range(groups)]
    for number, label in enumerate(pushes):
        place, size = bank.place(label), bank.size_with(label)
        bank.push(turned(number), label)
        features, labels = bank.rows(torch.tensor([place]))
        assert (features[0].equal(turned(number)), labels.tolist()) == (True, [label])
        assert len(bank) == size
        group = plain[label if groups > 1 else 0]
        group.append(number)
        del group[: -8 // groups]
    held = [round(float(torch.atan2(row[1], row[0])) * 100) for row in bank.features]
    assert sorted(held) == sorted(n for group in plain for n in group)
    assert [pushes[n] for n in held] == bank.labels.tolist()
    copy = FeatureBank(8, 2, groups, classes=4)
    copy.load(bank.tensors())
    assert copy.features.equal(bank.features)
    assert len(copy) == len(bank)


def test_feature_bank_keeps_its_storage() -> None:
    bank = FeatureBank(4, 3)
    bank.push(torch.rand(3))
    place = bank.features.data_ptr()
    for _ in range(50):
        bank.push(torch.rand(3))
    assert bank.features.data_ptr() == place
    assert bank.features.shape == (4, 3)


def test_score_bank_orders_oldest_first() -> None:
    bank = ScoreBank(3)
    for score in (1.0, 2.0, 3.0, 4.0):
        bank.push(score)
    assert bank.scores().tolist() == [2.0, 3.0, 4.0]
    assert bank.sorted_with(0.5).tolist() == [0.5, 3.0, 4.0]
    assert bank.scores().tolist() == [2.0, 3.0, 4.0]


def random_case(seed: int, k: int = 5, width: int = 16) -> tuple[torch.Tensor, NearestFeatures]:
    generator = torch.Generator().manual_seed(seed)

    def rows(count: int) -> torch.Tensor:
        return unit(torch.randn(count, width, generator=generator, dtype=torch.float64))

    labels = torch.randint(0, 3, (k,), generator=generator)
    return rows(1)[0].requires_grad_(), NearestFeatures(rows(k), rows(k), labels)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("temperature", [1.0, 0.2])
@pytest.mark.parametrize("normaliser", ["k", "matches"])
def test_gradient_of_desired_contrast_is_the_closed_form(seed: int, temperature: float, normaliser: str) -> None:
    """dL_D/df = (1/N) sum over matching z+ of (-z+ + sum_j p_j z-_j) / tau, p the softmax of the negatives'
    similarities.
    """
    features, near = random_case(seed)
    label = int(near.labels[0])
    desired_contrast(features, near, label, temperature, normaliser).backward()
    p = torch.softmax(near.negatives @ features.detach() / temperature, 0)
    matches = (near.labels == label).double()
    count = matches.sum() if normaliser == "matches" else 5
    closed = (matches[:, None] * (p @ near.negatives - near.positives)).sum(0) / (count * temperature)
    torch.testing.assert_close(features.grad, closed, rtol=0, atol=1e-12)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("temperature", [1.0, 0.2])
def test_gradient_of_undesired_contrast_is_the_closed_form(seed: int, temperature: float) -> None:
    """As for L_D with every positive counted and 1/K, where the appendix misprints K+."""
    features, near = random_case(seed)
    undesired_contrast(features, near, temperature).backward()
    p = torch.softmax(near.negatives @ features.detach() / temperature, 0)
    closed = (p @ near.negatives - near.positives.mean(0)) / temperature
    torch.testing.assert_close(features.grad, closed, rtol=0, atol=1e-12)


@pytest.mark.parametrize("normaliser", ["k", "matches"])
def test_no_matching_positive_gives_zero(normaliser: str) -> None:
    features, near = random_case(0)
    loss = desired_contrast(features, near, 7, normaliser=normaliser)
    loss.backward()
    assert loss.item() == 0.0
    assert not features.grad.any()


def test_contrast_numerically() -> None:
    features, near = random_case(3)
    assert torch.autograd.gradcheck(lambda f: desired_contrast(f, near, int(near.labels[0])), features)
    assert torch.autograd.gradcheck(lambda f: undesired_contrast(f, near), features)


def test_pseudo_label_loss_by_hand() -> None:
    z, augmented = torch.tensor([0.3, 0.1]), torch.tensor([0.2, 0.2])
    expected = -math.log(math.exp(0.3) / (math.exp(0.3) + math.exp(0.1))) - math.log(0.5)
    assert pseudo_label_loss(z, augmented, 0).item() == pytest.approx(expected, abs=1e-6)


def test_nearest_by_cosine_and_without_self() -> None:
    """The image counts as stored before it is: in the place of the oldest feature, where the bank is full."""
    for capacity, behind in ((5, [3, 2, 1, 0]), (4, [3, 2, 1])):
        same, other = FeatureBank(capacity, 2), FeatureBank(4, 2)
        for angle, label in ((0.0, 0), (0.1, 1), (0.5, 2), (1.0, 3)):
            same.push(torch.tensor([math.cos(angle), math.sin(angle)]), label)
            other.push(torch.tensor([math.cos(angle + 2), math.sin(angle + 2)]))
        query, before = torch.tensor([math.cos(1.2), math.sin(1.2)]), same.tensors()
        found = nearest(query, same, other, 1 + len(behind) if capacity == 4 else 3, 7)
        assert found.labels.tolist() == [7, *behind][: len(found.labels)]
        assert found.positives[0].equal(query)
        assert nearest(query, same, other, 3, 7, with_self=False).labels.tolist() == behind[:3]
        assert all(tensor.equal(before[name]) for name, tensor in same.tensors().items())
        stored = FeatureBank(capacity, 2, classes=8)
        stored.load(before)
        stored.push(query, 7)
        rows, labels = stored.rows(stored.similarities(query).topk(3).indices)
        assert rows.equal(found.positives[:3])
        assert labels.equal(found.labels[:3])


class Tower(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.odd_name = nn.LayerNorm(4)
        self.ln_not_a_norm = nn.Linear(4, 4)
        self.blocks = nn.Sequential(nn.LayerNorm(4, elementwise_affine=False), nn.LayerNorm(4, bias=False))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.blocks(self.ln_not_a_norm(self.odd_name(x)))


def test_layernorms_are_chosen_by_structure() -> None:
    assert layernorm_names(Tower()) == ["odd_name.weight", "odd_name.bias", "blocks.1.weight"]
    assert layernorm_names(nn.LayerNorm(2)) == ["weight", "bias"]
    with raises("group-unsupported", match="nothing to adapt"):
        Overlay(nn.Linear(2, 2), layernorm_names(nn.Linear(2, 2)))


def test_overlay_equals_functional_call_and_leaves_the_module_alone() -> None:
    tower = Tower().requires_grad_(False)
    before = {name: value.clone() for name, value in tower.state_dict().items()}
    overlay = Overlay(tower, layernorm_names(tower))
    start, x = overlay, torch.rand(3, 4)
    overlay = start.moved(tensor.detach() + torch.rand_like(tensor) for tensor in start.parameters())
    ours = encode(tower, x, overlay)
    torch.testing.assert_close(ours, unit(torch.func.functional_call(tower, overlay.tensors, (x,))))
    gradients = torch.autograd.grad(ours.sum(), overlay.parameters())
    assert all(gradient.shape == tensor.shape for gradient, tensor in zip(gradients, overlay.parameters(), strict=True))
    assert all(value.equal(before[name]) for name, value in tower.state_dict().items())
    with pytest.raises(RuntimeError):
        encode(tower, torch.rand(3, 5), overlay)
    assert all(value.equal(before[name]) for name, value in tower.state_dict().items())
    torch.testing.assert_close(encode(tower, x, start), encode(tower, x))


def test_overlay_refuses_what_does_not_fit_whole() -> None:
    overlay = Overlay(Tower(), ["odd_name.weight", "odd_name.bias"])
    with raises("state-mismatch", match=r"odd_name\.bias"):
        overlay.restored({"odd_name.weight": torch.zeros(4)})
    other = overlay.moved(2 * tensor.detach() for tensor in overlay.parameters())
    assert all(tensor.equal(other.tensors[name]) for name, tensor in overlay.restored(other.stored()).tensors.items())
    assert not overlay.tensors["odd_name.weight"].equal(other.tensors["odd_name.weight"])
