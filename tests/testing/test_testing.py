"""The public checks find what they are there to find: each broken promise ends in a sentence of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import nn

import ostta
from helpers.cases import CLASSES, SmallTower, images
from helpers.errors import raises
from helpers.paths import TESTS
from ostta.config import plugins
from ostta.core.types import NO_EVIDENCE, Error
from ostta.identifiers import LDA
from ostta.methods import Proposal
from ostta.scores import MaxSoftmax
from ostta.testing import Violation, check_backbone, check_identifier, check_method, check_score

OUTSIDE = TESTS / "outside" / "class_means.py"
ClassMeans = plugins.from_file(f"{OUTSIDE}:ClassMeans")


@pytest.mark.parametrize(
    ("example", "most", "check"),
    [
        ("class_means.py:ClassMeans", 20, check_method),
        ("sharpen.py:Sharpen", 40, check_method),
        ("margin.py:Margin", 15, check_score),
        ("line.py:Line", 12, check_identifier),
    ],
)
def test_the_examples_of_the_docs_conform_and_are_the_files(example: str, most: int, check: Any) -> None:
    path = OUTSIDE.parent / example.partition(":")[0]
    text, page = path.read_text(), OUTSIDE.parents[2] / "docs" / "plugins.md"
    assert f"```python\n{text}```" in page.read_text()
    assert len([line for line in text.splitlines() if line]) <= most
    check(plugins.from_file(f"{path.parent / example}"), steps=50)


def test_a_score_is_checked_on_the_given_backbone() -> None:
    class OfEight(MaxSoftmax):
        def __init__(self, options: Any, setting: Any) -> None:
            if setting.classifier.shape[1] != 8:
                raise Error("This score needs features of 8 numbers.")
            super().__init__(options, setting)

    narrow = ostta.backbones.wrap(SmallTower(8), torch.randn(len(CLASSES), 8), image_size=32)
    check_score(OfEight, backbone=narrow, steps=50)
    with raises("error"):
        check_score(OfEight, steps=50)


def test_the_example_learns_in_a_pool() -> None:
    pool = ostta.StreamPool("embedded")
    pool.add("one", CLASSES, method=ClassMeans)
    pool.add("other", CLASSES, method="rosita")
    answers = [pool.step({"one": image, "other": image})["one"] for image in images(24)]
    alone = list(ostta.load(pool.backbone, CLASSES, method=ClassMeans).stream(images(24)))
    assert any(answer.adapted for answer in answers)
    assert [answer.label for answer in answers] == [answer.label for answer in alone]


class Thawed(ClassMeans):
    @dataclass
    class Options:
        weight: float = 0.3


class Demanding(ClassMeans):
    @dataclass(frozen=True)
    class Options:
        weight: float


class Nameless(ClassMeans):
    summary = "a line"


class Scaleless(ClassMeans):
    largest_score = 0.0


class Peeping(ClassMeans):
    """Stores in `look`."""

    def look(self, state, features, views):
        state.sums = state.sums + 1
        return super().look(state, features, views)


class Eager(ClassMeans):
    """Stores in `propose`."""

    def propose(self, state, look, decision):
        self.commit(state, look, decision, None)
        return super().propose(state, look, decision)


class Moody(ClassMeans):
    """Answers by chance."""

    def look(self, state, features, views):
        seen = super().look(state, features, views)
        return type(seen)(views, seen.features, seen.cosines, seen.logits + 0.1 * torch.rand(1), None)


class Counting(ClassMeans):
    """Counts images in an attribute that no state file has."""

    def start(self):
        state = super().start()
        state.seen = 0
        return state

    def commit(self, state, look, decision, trained):
        super().commit(state, look, decision, trained)
        state.seen += 1


class Forgetful(Counting):
    """Remembers something that no state file has."""

    def look(self, state, features, views):
        seen = super().look(state, features, views)
        return type(seen)(views, seen.features, seen.cosines, seen.logits + state.seen / 100, None)

    def commit(self, state, look, decision, trained):
        state.seen += 1


class Talkative(Counting):
    """Reports a number that no state file has."""

    def propose(self, state, look, decision):
        return replace(super().propose(state, look, decision), diagnostics={"seen": float(state.seen)})


class LateForgetful(Counting):
    """Uses a number that no state file has, but only after 20 images."""

    def look(self, state, features, views):
        seen = super().look(state, features, views)
        late = max(0, state.seen - 20)
        return type(seen)(views, seen.features, seen.cosines, seen.logits + late / 100, None)


class Trusting(ClassMeans):
    """Loads whatever a file holds."""

    def start(self):
        state = super().start()
        state.load = lambda tensors: vars(state).update(tensors)
        return state


class Sharing(ClassMeans):
    """Has one memory for all streams."""

    seen: list[int] = [0]  # noqa: RUF012 - that is the mistake

    def look(self, state, features, views):
        seen = super().look(state, features, views)
        return type(seen)(views, seen.features, seen.cosines, seen.logits + len(self.seen) / 1e3, None)

    def start(self):
        return super().start()

    def commit(self, state, look, decision, trained):
        self.seen.append(1)


class Hoarding(ClassMeans):
    """Keeps every feature."""

    kept: list[torch.Tensor] = []  # noqa: RUF012 - that is the mistake

    def commit(self, state, look, decision, trained):
        self.kept.append(look.features)


class Wordless(ClassMeans):
    def propose(self, state, look, decision):
        return None if decision.desired else Proposal()


@pytest.mark.parametrize(
    ("method", "sentence"),
    [
        (Thawed, r"^The options of Thawed must be frozen: @dataclass\(frozen=True\)\.$"),
        (Demanding, r"^All options of Demanding must have defaults, and weight has none\.$"),
        (Nameless, r"^The method Nameless must have its line of `ostta ls methods` as `summary`, a MethodSummary\.$"),
        (Scaleless, r"^`largest_score` of Scaleless must be the largest score"),
        (Wordless, r"^`propose` of Wordless must give a Proposal\.$"),
        (Peeping, r"^`look` or `propose` of Peeping changed method/sums: only `commit` may change the state\.$"),
        (Eager, r"^`look` or `propose` of Eager changed method/.*: only `commit` may change the state\.$"),
        (Moody, r"^With Moody, `predict` gave an image .* a look may depend only on the state and the image\.$"),
        (
            Forgetful,
            r"^Two runs of Forgetful on one stream, one restored after image 6, differ from image 7 on",
        ),
        (
            Talkative,
            r"^Two runs of Talkative on one stream, one restored after image 6, differ from image 7 on",
        ),
        (LateForgetful, r"^Two runs of LateForgetful on one stream, one restored after image 15, differ from"),
        (Trusting, r"^`load` of the state of Trusting must reject one more tensor with an ostta.Error"),
        (Sharing, r"^(Two runs|After a reset|Two adapters|With) .*Sharing"),
        (Hoarding, r"^Hoarding keeps more with every step, in 24 steps after 30"),
    ],
)
def test_a_broken_promise_of_a_method_is_one_sentence(method: type, sentence: str) -> None:
    with pytest.raises(Violation, match=sentence):
        check_method(method, warm=30, steps=24)


def test_a_method_that_no_backbone_suits_says_why() -> None:
    class Picky(ClassMeans):
        def __init__(self, *given) -> None:
            raise Error("Only the moon will do.")

    with raises("backbone-missing", match=r"give one as `backbone=`: Only the moon will do\.$"):
        check_method(Picky)


class Tracking(LDA):
    """Takes what it is only shown."""

    def peek(self, score: float, evidence=NO_EVIDENCE):
        decision = super().peek(score)
        self.remember(score)
        return decision


class Wavering(LDA):
    def observe(self, score: float, evidence=NO_EVIDENCE):
        self.remember(score)
        return super().peek(score + 0.1)


class Silent(LDA):
    about = ""


class Stubborn(LDA):
    def reset(self) -> None:
        pass


@pytest.mark.parametrize(
    ("identifier", "sentence"),
    [
        (Silent, r"^The identifier Silent must have its line of `ostta ls identifiers` as `about`, not ''\.$"),
        (Tracking, r"^`peek` of Tracking (gives another decision|changes its memory)"),
        (Wavering, r"^`observe` and `peek` of Wavering give different decisions for the same scores\.$"),
        (Stubborn, r"^After `reset`, the memory of Stubborn is not empty\.$"),
    ],
)
def test_a_broken_promise_of_an_identifier_is_one_sentence(identifier: type, sentence: str) -> None:
    with pytest.raises(Violation, match=sentence):
        check_identifier(identifier)


def wrapped(tower: nn.Module):
    return ostta.backbones.wrap(tower, torch.randn(len(CLASSES), 16), image_size=32)


def training():
    made = wrapped(SmallTower())
    made.vision.train()
    return made


def thawed():
    made = wrapped(SmallTower())
    made.vision.requires_grad_(True)
    return made


class Batchy(SmallTower):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features = super().forward(x)
        return features - features.mean(0) + 1


def lent():
    made = wrapped(SmallTower())
    own = made.classifier(CLASSES)
    made.classifier = lambda classes, templates=(): own
    return made


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (training, r"^The image tower of wrapped must be in eval mode\.$"),
        (thawed, r"^The parameters of wrapped must be frozen"),
        (lambda: wrapped(Batchy()), r"^The features of wrapped for an image depend on the others in its batch\.$"),
        (lent, r"^`classifier` of wrapped must give a copy that callers may change\.$"),
    ],
)
def test_a_broken_promise_of_a_backbone_is_one_sentence(make, sentence: str) -> None:
    with pytest.raises(Violation, match=sentence):
        check_backbone(make)
