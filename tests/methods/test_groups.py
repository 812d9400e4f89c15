"""The parameter groups: how many they are on ViT-B/16, that they learn, and which combinations are refused."""

from __future__ import annotations

import math
from typing import Any, get_args

import pytest
import torch
from transformers import CLIPConfig, CLIPModel

import ostta
from helpers.cases import CLASSES, SmallTower, adapter, backbone, class_scores, images, same
from helpers.cases import learned as given
from helpers.errors import raises
from ostta.backbones.clip import Clip
from ostta.backbones.lora import with_lora
from ostta.backbones.maple import Maple, MaplePrompts
from ostta.backbones.preprocessing import clip_preprocessing
from ostta.core.losses import entropy
from ostta.core.optimisers import Optimiser
from ostta.core.types import Verdict
from ostta.methods import groups
from ostta.methods.groups import Group, block_names, build_overlay, layernorm_names

GROUPS = get_args(Group)
# Paper (LoRA, LayerNorm) and arithmetic on the architecture.
ON_VIT_B16 = {
    "layernorm": 39_936,
    "prompts": 2_048,
    "prompts+layernorm": 41_984,
    "first_block": 7_087_872,
    "last_block": 7_087_872,
    # Both towers; CLIP's count of 149,620,737 has the logit scale in it.
    "full": 149_620_736,
}


class FourWords:
    """Tokens of "a photo of a NAME.": start, four words, a name, a stop, an end."""

    all_special_tokens = ("<|startoftext|>", "<|endoftext|>")

    def __call__(self, prompts: list[str], **_: Any) -> dict[str, list[list[int]]]:
        return {"input_ids": [[49406, *range(320, 320 + len(p.split()) + p.count(".")), 49407] for p in prompts]}


@pytest.fixture(scope="module")
def vit_b16() -> Clip:
    """The shape alone: nothing has memory, so nothing can be run."""
    with torch.device("meta"):
        model = CLIPModel(
            CLIPConfig(
                vision_config={
                    "patch_size": 16,
                    "hidden_size": 768,
                    "intermediate_size": 3072,
                    "num_attention_heads": 12,
                    "num_hidden_layers": 12,
                },
                text_config={
                    "hidden_size": 512,
                    "intermediate_size": 2048,
                    "num_attention_heads": 8,
                    "eos_token_id": 49407,
                },
            )
        )
    model.logit_scale = torch.nn.Parameter(torch.tensor(4.6))
    return Clip("vit-b16", model, FourWords(), clip_preprocessing(224))


def names_of(clip: Any, group: str, rank: int = 16) -> dict[str, int]:
    """As `build_overlay` chooses them, on a model that cannot be run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(groups, "_require_default_template", lambda *_: None)
        tuned = build_overlay(clip, torch.zeros(1, 512, device="meta"), ["cat"], group, rank)  # type: ignore[arg-type]
    return {name: tensor.numel() for name, tensor in tuned.tensors.items()}


@pytest.mark.parametrize(("group", "count"), ON_VIT_B16.items())
def test_counts_on_vit_b16(vit_b16: Clip, group: str, count: int) -> None:
    with torch.device("meta"):
        assert sum(names_of(vit_b16, group).values()) == count


@pytest.mark.parametrize(("rank", "count"), [(2, 110_592), (4, 221_184), (8, 442_368), (16, 884_736)])
def test_lora_counts_on_vit_b16(vit_b16: Clip, rank: int, count: int) -> None:
    with torch.device("meta"):
        names = names_of(vit_b16, "lora", rank)
    assert sum(names.values()) == count == 55_296 * rank
    assert all(part in "".join(names) for part in ("q_proj", "k_proj", "v_proj"))
    assert "out_proj" not in "".join(names)


def test_prompts_of_maple_on_vit_b16(vit_b16: Clip) -> None:
    with torch.device("meta"):
        maple = Maple(vit_b16, MaplePrompts(512, 768), "vit-b16+maple")
        count = sum(names_of(maple, "prompts").values())
    # Three prompts of two tokens, three projections from 512 to 768 with their biases.
    assert count == 3 * 2 * 512 + 3 * (512 * 768 + 768)


def test_blocks_are_found_by_structure() -> None:
    tower = backbone("embedded").vision
    first, last = block_names(tower, 0), block_names(tower, -1)
    assert all(".layers.0." in name for name in first)
    assert all(".layers.3." in name for name in last)
    assert {name.replace(".0.", ".3.") for name in first} == set(last)
    with raises("group-unsupported", match="no list of alike blocks"):
        block_names(SmallTower(), 0)
    assert set(layernorm_names(tower)) > {name for name in first if "layer_norm" in name}


def learned(one: ostta.Adapter, verdict: Verdict, seed: int = 0) -> Any:
    return given(one, random_views(seed), verdict)


def random_views(seed: int) -> torch.Tensor:
    return torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("kind", ["embedded", "embedded+maple"])
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("method", ["rosita", "unient", "prototypes", "entropy"])
def test_every_group_learns_and_moves_nothing_else(method: str, group: str, kind: str) -> None:
    options: dict[str, Any] = {"entropy": {"confidence": 0.0}, "prototypes": {"wait": 0}}.get(method, {})
    if (method, group) == ("rosita", "prompts"):
        options = {"losses": ("re",)}
    weights = {name: value.clone() for name, value in backbone(kind).vision.state_dict().items()}
    one = adapter(method, kind=kind, group=group, lr=0.05, class_scores=True, **options)
    fresh = one.state.overlay.stored()
    verdicts = [Verdict.RELIABLE_UNDESIRED] * 7 + [Verdict.RELIABLE_DESIRED] * 8
    outcomes = [learned(one, verdict, seed) for seed, verdict in enumerate(verdicts)]
    assert outcomes[-1].adapted
    moved = one.state.overlay.stored()
    assert all(torch.isfinite(tensor).all() for tensor in moved.values())
    still = [name for name in fresh if fresh[name].equal(moved[name])]
    # LoRA's A has a gradient only once B has left zero, and UniEnt's are tiny. Of the whole network, words that no
    # prompt has and the biases of keys, which attention does not notice, have none.
    assert len(still) <= {"full": len(fresh) // 3, "lora": len(fresh) // 2}.get(group, 0), still
    assert not any("lora_B" in name for name in still)
    assert all(value.equal(weights[name]) for name, value in backbone(kind).vision.state_dict().items())
    assert outcomes[-1].class_scores == one.predict_views(random_views(14)).class_scores
    one.reset()
    assert same(one.state.overlay.stored(), fresh)


@pytest.mark.parametrize("group", ["prompts", "full", "lora"])
def test_a_group_survives_a_restart(group: str, tmp_path: Any) -> None:
    options: dict[str, Any] = {"group": group, "lr": 0.01, "confidence": 0.2, "optimiser": "adamw", "rank": 2}
    whole, first = (adapter("entropy", "all", "embedded", **options) for _ in range(2))
    expected = [p.index for p in whole.stream(images(10))]
    half = [p.index for p in first.stream(images(10)[:5])]
    first.save(tmp_path / "state.ostta")
    second = ostta.Adapter.restore(tmp_path / "state.ostta", backbone("embedded"))
    assert half + [p.index for p in second.stream(images(10)[5:])] == expected
    assert same(whole.pipeline.tensors(), second.pipeline.tensors())


def test_lora_starts_as_the_tower_itself_and_leaves_it_alone() -> None:
    tower = backbone("embedded").vision
    names = [name for name, _ in tower.named_parameters()]
    copied = with_lora(tower, 4)
    x = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        assert copied(x).equal(tower(x))
    assert [name for name, _ in tower.named_parameters()] == names
    shared = {tensor.data_ptr() for tensor in tower.parameters()}
    extra = [tensor for tensor in copied.parameters() if tensor.data_ptr() not in shared]
    assert len(extra) == 2 * 3 * 4
    assert sum(int(tensor.abs().sum() == 0) for tensor in extra) == 3 * 4


def test_what_cannot_be_reached_is_refused_in_one_sentence() -> None:
    for losses in (("re", "d", "u"), ("d",), ("re", "u")):
        with raises(
            "option-conflict", match=r'^L_D and L_U act on image features, and the group "prompts" leaves .*\.$'
        ):
            adapter("rosita", kind="embedded", group="prompts", losses=losses)
    adapter("rosita", kind="embedded+maple", group="prompts")
    with raises("backbone-unsupported"):
        adapter("unient", kind="wrapped", group="prompts")
    with raises("backbone-unsupported"):
        adapter("unient", kind="wrapped", group="lora")
    with raises("option-invalid", match="`rank` must be from 1 to 1,024, not 0"):
        adapter("unient", kind="embedded", group="lora", rank=0)
    with raises("option-invalid", match="`group` must be one of layernorm, prompts, full"):
        adapter("unient", kind="embedded", group="everything")
    with raises("option-conflict", match="leave out `templates`"):
        adapter("unient", kind="embedded", group="prompts", templates=("a drawing of a {}.",))


# --- method `entropy` -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("loss", ["pseudo_label", "entropy"])
def test_both_objectives_of_the_closed_set_study(loss: str) -> None:
    one = adapter("entropy", "all", "embedded", loss=loss, confidence=0.0, class_scores=True, lr=0.01)
    image = images(1)[0]
    cosines = class_scores(one.predict(image))
    scale = backbone("embedded").logit_scale
    expected = entropy(scale * cosines) if loss == "entropy" else -torch.log_softmax(cosines, 0).max()
    found = one.step(image)
    assert found.loss == pytest.approx(float(expected), abs=1e-5)
    after = class_scores(one.predict(image))
    torch.testing.assert_close(class_scores(found), after, atol=1e-6, rtol=0)
    assert one.resolved.method.loss == loss
    assert adapter("entropy", kind="embedded", profile="paper").resolved.method.loss == "entropy"


def test_only_confident_images_are_learned_from() -> None:
    one = adapter("entropy", "all", "embedded", class_scores=True)
    scale = backbone("embedded").logit_scale
    for image in images(16):
        confident = float(torch.softmax(scale * class_scores(one.predict(image)), 0).max()) > 0.7
        assert one.step(image).adapted == confident


def test_the_slip_of_the_development_code_comes_back() -> None:
    """Image side: the answer is from before the update. Text side: from after it."""
    image = images(1)[0]
    for group, moved in (("layernorm", False), ("prompts", True)):
        one = adapter(
            "entropy",
            "all",
            "embedded",
            named_from="reference",
            loss="entropy",
            confidence=0.0,
            class_scores=True,
            lr=0.5,
            group=group,
        )
        before = class_scores(one.predict(image))
        answer = class_scores(one.step(image))
        after = class_scores(one.predict(image))
        assert (answer - (after if moved else before)).abs().max() < 1e-6
        assert (after - before).abs().max() > 1e-4


@pytest.mark.parametrize("kind", ["sgd", "momentum", "adamw"])
def test_optimisers_against_pytorch(kind: str) -> None:
    generator = torch.Generator().manual_seed(0)
    ours = [torch.randn(3, 4, generator=generator), torch.randn(5, generator=generator)]
    theirs = [tensor.clone().requires_grad_() for tensor in ours]
    momentum = 0.9 if kind == "momentum" else 0.0
    reference: Any = (
        torch.optim.AdamW(theirs, lr=0.1) if kind == "adamw" else torch.optim.SGD(theirs, lr=0.1, momentum=momentum)
    )
    optimiser = Optimiser("adamw" if kind == "adamw" else "sgd", 0.1, momentum)
    for step in range(6):
        if step == 3:
            optimiser = Optimiser(optimiser.kind, 0.1, momentum).restored(optimiser.stored(), ours)
        gradients = [torch.randn(tensor.shape, generator=generator) for tensor in ours]
        for tensor, gradient in zip(theirs, gradients, strict=True):
            tensor.grad = gradient.clone()
        reference.step()
        ours, optimiser = optimiser.step(ours, gradients)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other.detach(), atol=1e-6, rtol=1e-6)


def test_bad_options_of_entropy() -> None:
    for name, value, words in (
        ("lr", 0.0, "above 0"),
        ("confidence", 1.0, "from 0 to below 1"),
        ("confidence", -0.1, "from 0 to below 1"),
    ):
        with raises("option-invalid", match=f"`{name}` must be {words}, not {value}"):
            adapter("entropy", kind="embedded", **{name: value})
    assert math.isclose(adapter("entropy", kind="embedded").resolved.method.confidence, 0.7)
    assert len(CLASSES) == 10
