"""CLIP models of the common shapes with random weights: they cost as much as real ones, without a download."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional

import ostta
from ostta.backbones.clip import Clip
from ostta.backbones.preprocessing import clip_preprocessing
from ostta.backbones.protocol import DEFAULT_TEMPLATES
from ostta.backbones.towers import ImageTower
from ostta.core.types import NO_EVIDENCE, Decision, Evidence, Verdict

START, END = 49_406, 49_407
SHAPES = {"ViT-B/32": 32, "ViT-B/16": 16}


class Words:
    """One token a word, as CLIP's own tokenizer gives for common ones."""

    all_special_tokens = ("<|startoftext|>", "<|endoftext|>")

    def __call__(self, prompts: list[str], **_: Any) -> dict[str, list[list[int]]]:
        return {"input_ids": [[START, *map(self._token, self._words(prompt)), END] for prompt in prompts]}

    @staticmethod
    def _words(prompt: str) -> list[str]:
        return prompt.replace(".", " .").split()

    @staticmethod
    def _token(word: str) -> int:
        return sum(31**place * ord(letter) for place, letter in enumerate(word)) % START


class Remembering(Clip):
    """Encodes a list of classes once, however many adapters ask for it."""

    def classifier(self, classes: Sequence[str], templates: Sequence[str] = DEFAULT_TEMPLATES) -> torch.Tensor:
        known: dict[Any, torch.Tensor] = self.__dict__.setdefault("known", {})
        key = (tuple(classes), tuple(templates))
        if key not in known:
            known[key] = super().classifier(classes, templates)
        return known[key]


def random_clip(shape: str, blocks: int | None = None) -> Clip:
    """A CLIP of the shape; with fewer `blocks` in its text tower where a comparison would not fit into memory."""
    from transformers import CLIPConfig, CLIPModel

    config = CLIPConfig(
        vision_config={
            "hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12, "num_hidden_layers": 12,
            "patch_size": SHAPES[shape], "image_size": 224,
        },
        text_config={
            "hidden_size": 512, "intermediate_size": 2048, "num_attention_heads": 8,
            "num_hidden_layers": blocks or 12, "eos_token_id": END, "bos_token_id": START,
        },
        projection_dim=512,
        attn_implementation="sdpa",
    )  # fmt: skip
    torch.manual_seed(0)
    model = CLIPModel(config)
    with torch.no_grad():
        model.logit_scale.fill_(4.6052)
    return Remembering(shape, model, Words(), clip_preprocessing(224))


def public_tower(backbone: Any) -> ImageTower:
    """The image tower as `transformers` runs it, with all tokens in all layers: the unit F of these benchmarks."""
    return ImageTower(backbone.vision.vision_model, backbone.vision.visual_projection).eval()


def class_names(count: int) -> list[str]:
    """Names of one, two and three words."""
    return [" ".join(f"word{number}x{place}" for place in range(1 + number % 3)) for number in range(count)]


class Scripted:
    """An identifier whose verdicts are given and go round, so that the kinds of steps and their shares are known."""

    needs = None

    def __init__(self, *verdicts: Verdict, start: int = 0) -> None:
        self.verdicts, self.step = verdicts, start

    def peek(self, score: float, evidence: Evidence = NO_EVIDENCE) -> Decision:
        return Decision(self.verdicts[self.step % len(self.verdicts)], 0.5, 0.6, 0.4)

    def remember(self, score: float, evidence: Evidence = NO_EVIDENCE) -> None:
        self.step += 1

    def reset(self) -> None:
        pass

    def tensors(self) -> dict[str, torch.Tensor]:
        return {}


def scripted(adapter: ostta.Adapter, verdict: Verdict) -> ostta.Adapter:
    """The same adapter with a verdict that is given."""
    adapter.memory.identifier = Scripted(verdict)  # type: ignore[assignment]
    return adapter


def filled(made: ostta.Adapter) -> ostta.Adapter:
    """With every bank and cache full, so that a step has as much to do as it ever will."""
    tensors = made.state.tensors()
    for name, tensor in tensors.items():
        group, _, what = name.rpartition("/")
        if what == "features":
            tensor.copy_(functional.normalize(torch.randn_like(tensor), dim=-1))
        elif what == "labels":
            # Only the bank of known images has classes to tell apart.
            tensor.random_(len(made.classes) if group == "desired" else 1)
        elif what == "entropies":
            tensor.zero_()  # surer than any image that may come, so that they stay what they are
        elif what == "seen":
            tensor.fill_(1_000_000)  # more than any method waits for
        elif what == "count":
            tensor.fill_(len(tensors[f"{group}/features"]) // len(tensor))
    made.state.load(tensors)
    return made
