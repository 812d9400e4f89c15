"""What a step may cost: forwards of the image tower, and backwards through it, for every method and verdict.

A guard that needs no clock: a step that begins to pay for something it does not need fails here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch

from helpers.cases import FixedVerdict, adapter
from ostta import Verdict
from ostta.config.registry import ALL_METHODS as METHODS

D, UD, UU, U = Verdict
VIEWS = 16
AUGMENTED, SELECTED = VIEWS - 1, 1


class Cost(NamedTuple):
    """Images through the tower without graph, with graph, and back."""

    plain: int = 0
    graph: int = 0
    back: int = 0


LOOK = Cost(plain=1)
LEARNT, ACCEPTED = Cost(graph=1, back=1), Cost(plain=1, graph=1, back=1)
PAIR, WITH_ONE_MORE = Cost(graph=2, back=2), Cost(plain=1, graph=2, back=2)
TUNED = Cost(plain=1 + AUGMENTED)
ALIGNED = Cost(plain=1 + AUGMENTED + 1, graph=SELECTED, back=SELECTED)
COSTS: dict[tuple[str, str], dict[Verdict, Cost]] = {
    ("zero_shot", "embedded"): dict.fromkeys(Verdict, LOOK),
    ("tda", "embedded"): dict.fromkeys(Verdict, LOOK),
    ("dpe", "embedded"): dict.fromkeys(Verdict, LOOK),
    ("oga", "embedded"): dict.fromkeys(Verdict, LOOK),
    ("onzeta", "embedded"): dict.fromkeys(Verdict, LOOK),
    # The second view, the step and the second look, for a reliable desired image alone.
    ("rosita", "embedded"): {UD: Cost(graph=1), UU: Cost(graph=1), U: LEARNT, D: Cost(plain=1, graph=2, back=2)},
    ("prototypes", "embedded"): {UD: Cost(graph=1), UU: LEARNT, U: LEARNT, D: ACCEPTED},
    ("unient", "embedded"): {UD: ACCEPTED, UU: LEARNT, U: LEARNT, D: ACCEPTED},
    ("entropy", "embedded"): {UD: ACCEPTED, UU: LEARNT, U: LEARNT, D: ACCEPTED},
    # With a buffer of one: the image, and one from the memory.
    ("cliptta", "embedded"): {UD: WITH_ONE_MORE, UU: PAIR, U: PAIR, D: WITH_ONE_MORE},
    # Of a CLIP, no view ever has a graph; of MaPLe, only the selected ones.
    ("tpt", "embedded"): {UD: TUNED, UU: LOOK, U: LOOK, D: TUNED},
    ("tpt_c", "embedded"): {UD: TUNED, UU: LOOK, U: LOOK, D: TUNED},
    ("tpt", "embedded+maple"): {UD: ALIGNED, UU: LOOK, U: LOOK, D: ALIGNED},
    ("tpt_c", "embedded+maple"): {UD: ALIGNED, UU: LOOK, U: LOOK, D: ALIGNED},
    ("palign", "embedded+maple"): {UD: ALIGNED, UU: LOOK, U: LOOK, D: ALIGNED},
    ("palign_c", "embedded+maple"): {UD: ALIGNED, UU: LOOK, U: LOOK, D: ALIGNED},
}


class Counter:
    """Watches the last LayerNorm of the image tower, which every image passes once."""

    def __init__(self, vision: Any) -> None:
        self.plain = self.graph = self.back = 0
        self._handle = vision.vision_model.post_layernorm.register_forward_hook(self._note)

    def _note(self, module: torch.nn.Module, inputs: Any, output: torch.Tensor) -> None:
        if not output.requires_grad:
            self.plain += len(output)
            return
        self.graph += len(output)
        output.register_hook(self._noted_back)

    def _noted_back(self, gradient: torch.Tensor) -> None:
        self.back += len(gradient)

    def stop(self) -> Cost:
        self._handle.remove()
        return Cost(self.plain, self.graph, self.back)


@pytest.mark.parametrize(("method", "kind"), COSTS)
def test_a_step_costs_what_it_must(method: str, kind: str) -> None:
    options: dict[str, Any] = {
        "prototypes": {"wait": 0}, "entropy": {"confidence": 0.0}, "cliptta": {"buffer": 1},
    }.get(method, {})  # fmt: skip
    if METHODS[method].views > 2:
        options = {"views": VIEWS}
    one, given = adapter(method, kind=kind, **options), FixedVerdict()
    one.memory.identifier = given  # type: ignore[assignment]
    views = torch.randn(one.method.views, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    if one.method.views <= 2:
        for given.verdict in (U, D):  # fill the banks
            for _ in range(7):
                one.step_views(views)
    for given.verdict, expected in COSTS[method, kind].items():
        counter = Counter(one.backbone.vision)
        one.step_views(views)
        assert counter.stop() == expected, given.verdict


def test_the_answer_from_before_saves_the_second_look() -> None:
    one, given = adapter("rosita", kind="embedded", answer_from="before", losses=("re",)), FixedVerdict()
    one.memory.identifier, given.verdict = given, D  # type: ignore[assignment]
    counter = Counter(one.backbone.vision)
    one.step_views(torch.randn(2, 3, 32, 32))
    assert counter.stop() == Cost(graph=2, back=2)


def test_cliptta_pays_at_every_eighth_image() -> None:
    """Its own look has a graph already: 7 images of the buffer and 8 of the memory join it, and all 16 go back."""
    one, given = adapter("cliptta", kind="embedded"), FixedVerdict()
    one.memory.identifier, waiting = given, Cost(graph=1)  # type: ignore[assignment]
    chance = torch.Generator().manual_seed(0)
    for number in range(40):
        # Every class is answered, so that the memory has enough to draw from.
        one.state.images.put(number, torch.zeros(3, 32, 32, dtype=torch.uint8), number % 10, 1.0, 0)
    for given.verdict, last in ((D, Cost(plain=1, graph=16, back=16)), (U, Cost(graph=16, back=16))):
        for expected in 7 * [waiting] + [last]:
            counter = Counter(one.backbone.vision)
            one.step_views(torch.randn(1, 3, 32, 32, generator=chance))
            assert counter.stop() == expected


def test_every_method_is_here() -> None:
    assert {method for method, _ in COSTS} == set(METHODS)
