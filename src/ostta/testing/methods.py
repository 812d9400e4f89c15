"""The promises of a method, each a function over a `Subject`, and all of them as `check_method`."""

from __future__ import annotations

import dataclasses
import itertools
import math
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from .. import backbones
from ..adapter import Adapter
from ..backbones.protocol import Backbone
from ..config.registry import find_component
from ..core.modes import learning
from ..core.types import Decision, Error, Look, Prediction, Verdict
from ..live import StreamPool
from ..methods.base import Facts, Proposal
from .leaks import leak
from .subject import (
    STEPS,
    Subject,
    content,
    differing,
    full_trace,
    images,
    refused,
    require,
    require_options,
    small_backbone,
    trace,
)

# Two passes that compute the same in batches of different sizes differ in their last bits, and no more.
CLOSE = 1e-3


def check_method(
    method: type[Any],
    *,
    backbone: Backbone | None = None,
    identifier: str | type[Any] = "lda",
    options: Mapping[str, Any] | None = None,
    warm: int = 100,
    steps: int = 200,
) -> None:
    """Check all that a method promises; a `Violation` says which promise it breaks.

    It is run on `backbone`, or else on the first that it accepts of a small tower and the two that ship. `options` should let it
    act within a few images. After `warm` images its banks must be full: a restored state must answer alike up to there, and the
    `steps` after that may keep nothing more.

    >>> from ostta.methods.zero_shot import ZeroShot
    >>> check_method(ZeroShot)
    """
    declared(method)
    subject = Subject(method, identifier, backbone or _accepted(method, identifier, options or {}), options or {})
    for promise in PROMISES:
        promise(subject)
    restorable_when_warm(subject, warm)
    keeps_nothing_more(subject, warm, steps)


def declared(method: type[Any]) -> None:
    """What `ostta ls` and the options read is there, and has the right types."""
    require_options(method, "method")
    name = method.__qualname__
    facts = getattr(method, "facts", None)
    require(
        isinstance(facts, Facts), f"The method {name} must have its line of `ostta ls methods` as `facts`, a Facts."
    )
    for part in ("start", "overlay", "look", "propose", "commit"):
        require(callable(getattr(method, part, None)), f"The method {name} must have a function `{part}`.")


def made_as_declared(subject: Subject) -> None:
    """An object says how many views it needs, how large its scores are, and whether its looks need a graph."""
    method, name = subject.adapter().method, subject.name
    views, scale = getattr(method, "views", None), getattr(method, "score_scale", None)
    require(
        type(views) is int and views >= 1, f"`views` of {name} must be a whole number of at least 1, not {views!r}."
    )
    require(
        isinstance(scale, float | int) and math.isfinite(scale) and scale > 0,
        f"`score_scale` of {name} must be the largest score, such as 1.0 for cosines, not {scale!r}.",
    )
    graph = getattr(method, "looks_with_graph", None)
    require(isinstance(graph, bool), f"`looks_with_graph` of {name} must be True or False, not {graph!r}.")


def looks_without_a_trace(subject: Subject) -> None:
    """`overlay`, `look` and `propose` change nothing, whatever the verdict; only `commit` does."""
    one = subject.adapter()
    for image in images(STEPS):
        before = content(one)
        with learning():
            look = one.pipeline.look_now(one.views_of(image))
            require(
                isinstance(look, Look) and look.logits.shape == (len(subject.classes),),
                f"`look` of {subject.name} must give a Look with one logit a class.",
            )
            for verdict in Verdict:
                proposal = one.method.propose(one.state, look, Decision(verdict, None, None, None))
                require(isinstance(proposal, Proposal), f"`propose` of {subject.name} must give a Proposal.")
        _same(
            before, content(one), f"`look` or `propose` of {subject.name} changed", "only `commit` may change the state"
        )
        one.step(image)


def repeatable_and_restorable(subject: Subject) -> None:
    """Two runs of one stream: one asks for a prediction before every step, the other stops half-way and is restored."""
    one, other = subject.adapter(seed=3), subject.adapter(seed=3)
    first: list[Prediction] = []
    second: list[Prediction] = []
    for number, image in enumerate(images(STEPS)):
        before = content(one)
        predicted = one.predict(image)
        _same(before, content(one), f"`predict` with {subject.name} changed", "it must have no effect")
        first.append(one.step(image))
        require(
            abs(predicted.score - first[-1].score) <= 1e-5 * max(1.0, one.method.score_scale),
            f"With {subject.name}, `predict` scored an image {predicted.score} that `step` then scored {first[-1].score}: "
            "a look may depend on nothing but state and image.",
        )
        require(
            not predicted.adapted and predicted.loss is None, f"`predict` with {subject.name} says that it adapted."
        )
        second.append(other.step(image))
        if number == STEPS // 2:
            other = _restarted(subject, other)
    _same_run(subject, first, second, STEPS // 2)
    _same(
        content(one), content(other), f"After a restored run, {subject.name} differs in", "`load` must bring all back"
    )


def restorable_when_warm(subject: Subject, warm: int) -> None:
    """Two runs of `warm` images, one of them restored half-way: what a method does only after many images is covered too."""
    one, other = subject.adapter(seed=3), subject.adapter(seed=3)
    first, half = list(one.stream(images(warm), ahead=1)), warm // 2
    second = list(other.stream(images(warm)[: half + 1], ahead=1))
    other = _restarted(subject, other)
    second += other.stream(images(warm)[half + 1 :], ahead=1)
    _same_run(subject, first, second, half)
    _same(
        content(one), content(other), f"After a restored run, {subject.name} differs in", "`load` must bring all back"
    )


def refuses_what_is_not_its_own(subject: Subject) -> None:
    """`load` answers a tensor too many, too few or of another shape with an Error."""
    one = subject.adapter()
    for image in images(STEPS):
        one.step(image)
    own = one.state.tensors()
    forged: list[tuple[str, dict[str, torch.Tensor]]] = [("one more tensor", {**own, "strange": torch.zeros(1)})]
    for name in list(own)[:1]:
        forged.append((f"no tensor {name!r}", {key: value for key, value in own.items() if key != name}))
        forged.append((f"another shape of {name!r}", {**own, name: torch.zeros(3, 1, 5, dtype=own[name].dtype)}))
    for what, tensors in forged:
        require(
            refused(subject.adapter().state, tensors),
            f"The state of {subject.name} must answer {what} with an ostta.Error in `load`: a file may hold anything.",
        )


def resets(subject: Subject) -> None:
    """A reset is a fresh start."""
    one = subject.adapter()
    fresh, expected = content(one), full_trace(one.stream(images(STEPS), ahead=1))
    one.reset()
    _same(fresh, content(one), f"After a reset, {subject.name} still differs in", "`start` must give a fresh state")
    require(
        full_trace(one.stream(images(STEPS), ahead=1)) == expected,
        f"After a reset, {subject.name} answers otherwise than at first: what is remembered belongs in the state of `start`.",
    )


def leaves_others_alone(subject: Subject) -> None:
    """Two adapters on one backbone never touch, and the backbone stays as it is."""
    alone = full_trace(subject.adapter().stream(images(STEPS), ahead=1))
    tower, weights = subject.backbone.vision, subject.backbone.weight_hash
    before = {name: value.clone() for name, value in tower.state_dict().items()}
    one, other = subject.adapter(), subject.adapter(seed=9)
    mixed = []
    for number, image in enumerate(images(STEPS)):
        mixed.append(one.step(image))
        other.step(images(STEPS)[-1 - number])
    require(
        full_trace(mixed) == alone,
        f"Two adapters with {subject.name} on one backbone change each other's answers: nothing may be shared but the backbone.",
    )
    _same(before, tower.state_dict(), f"{subject.name} changed the backbone's", "what adapts belongs in an overlay")
    require(subject.backbone.weight_hash == weights, f"{subject.name} changed the backbone's weight hash.")


def survives_bad_input(subject: Subject) -> None:
    """What cannot be read or seen is an Error, or a prediction with a reason, and changes nothing."""
    one, size = subject.adapter(), subject.backbone.preprocessing.image_size
    for image in images(STEPS):
        one.step(image)
    before = content(one)
    enough = max(64, one.method.views)
    with tempfile.TemporaryDirectory(prefix="ostta-check-") as folder:
        broken = Path(folder) / "broken.png"
        broken.write_bytes(b"\x89PNG\r\n\x1a\n nothing of the kind")
        bad: list[tuple[Callable[[Any], Prediction], Any]] = [
            (one.step, broken),
            (one.step, Path(folder) / "absent.jpg"),
            (one.step, b""),
            (one.step, np.zeros((4, 4), np.uint8)),
            (one.step_views, torch.zeros(3, size, size)),
            (one.step_views, torch.zeros(enough, 3, size // 2, size // 2)),
        ]
        for step, given in bad:
            require(
                _is_error(step, given), f"With {subject.name}, bad input ended in something else than an ostta.Error."
            )
        streamed = list(one.stream([broken]))
        require(
            streamed[0].label is None and "broken.png" in str(streamed[0].reason),
            f"With {subject.name}, `stream` says nothing of an image that cannot be read.",
        )
    spoiled = one.step_views(torch.full((enough, 3, size, size), float("nan")))
    require(
        (spoiled.label, spoiled.adapted, spoiled.reason) == (None, False, "the features of this image are not finite")
        and "NaN" not in spoiled.to_json(),
        f"With {subject.name}, an image whose features are not finite is answered: {spoiled.to_json()}.",
    )
    _same(before, content(one), f"Bad input to {subject.name} changed", "what cannot be seen must leave no trace")


def takes_any_image(subject: Subject) -> None:
    """Small, narrow and grey images are answered, and so is a single class."""
    one = subject.adapter()
    for image in (Image.new("RGB", (1, 1), "red"), Image.new("L", (7, 300))):
        index = one.step(image).index
        require(
            index in range(len(subject.classes)), f"{subject.name} answers an image with class {index}, which is none."
        )
    try:
        subject.backbone.classifier(["cat"])
    except Error:
        return  # a wrapped one has its classes already
    alone = subject.adapter(classes=["cat"])
    answers = {alone.step(image).index for image in images(STEPS)}
    require(answers == {0}, f"{subject.name} answers {answers} where there is one class.")


def counts_views(subject: Subject) -> None:
    """Too few views are refused before anything changes, and more than enough change nothing."""
    one, size = subject.adapter(), subject.backbone.preprocessing.image_size
    needed = one.method.views
    if needed > 1:
        require(
            _is_error(one.step_views, torch.zeros(needed - 1, 3, size, size), "views") and one.steps == 0,
            f"{subject.name} must refuse {needed - 1} views, as it needs {needed}.",
        )
    many = torch.rand(needed + 3, 3, size, size, generator=torch.Generator().manual_seed(0))
    extra, exact = subject.adapter(), subject.adapter()
    require(
        trace([extra.step_views(many)]) == trace([exact.step_views(many[:-3])]),
        f"{subject.name} looks at more views than the {needed} that it says.",
    )


def works_in_a_pool(subject: Subject) -> None:
    """Streams of a pool answer as adapters do on their own."""
    pool, alone = StreamPool(subject.backbone), [subject.adapter(seed=seed) for seed in (3, 4)]
    for name, seed in (("one", 3), ("other", 4)):
        pool.add(name, subject.adapter(seed=seed))
    for number, image in enumerate(images(STEPS)):
        together = pool.step({"one": image, "other": images(STEPS)[-1 - number]})
        apart = [alone[0].step(image), alone[1].step(images(STEPS)[-1 - number])]
        for found, expected in zip(together.values(), apart, strict=True):
            near = abs(found.score - expected.score) <= CLOSE * max(1.0, alone[0].method.score_scale)
            require(
                near and (found.verdict, found.adapted) == (expected.verdict, expected.adapted),
                f"In a pool, {subject.name} answers image {number} otherwise than on its own ({found} and {expected}).",
            )


def keeps_nothing_more(subject: Subject, warm: int = 100, steps: int = 200) -> None:
    """With the banks full, no step leaves an object, a tensor or a graph behind."""
    small: dict[str, Any] = {"window": 64} if "window" in _fields(subject) else {}
    one, size = subject.adapter(**small, class_scores=False), subject.backbone.preprocessing.image_size
    views = torch.rand(97, one.method.views, 3, size, size, generator=torch.Generator().manual_seed(0))
    number = itertools.count()
    found = leak(lambda: one.step_views(views[next(number) % 97]), warm=warm, steps=steps)
    require(
        found is None,
        f"{subject.name} keeps more with every step, in {steps} steps after {warm}: {found}. "
        "What it remembers must be bounded, and tensors it keeps must be detached.",
    )


PROMISES: tuple[Callable[[Subject], None], ...] = (
    made_as_declared,
    looks_without_a_trace,
    repeatable_and_restorable,
    refuses_what_is_not_its_own,
    resets,
    leaves_others_alone,
    survives_bad_input,
    takes_any_image,
    counts_views,
    works_in_a_pool,
)


def _accepted(method: type[Any], identifier: str | type[Any], options: Mapping[str, Any]) -> Backbone:
    """The first backbone that the method can be made with."""
    said = ""
    for name in ("small", *backbones.SHIPPED):
        backbone = small_backbone() if name == "small" else backbones.load(name)
        try:
            Subject(method, identifier, backbone, options).adapter()
        except Error as problem:
            said = said or str(problem)
        else:
            return backbone
    raise Error(f"{method.__qualname__} takes none of the backbones to check it on; give one as `backbone=`: {said}")


def _restarted(subject: Subject, adapter: Adapter) -> Adapter:
    with tempfile.TemporaryDirectory(prefix="ostta-check-") as folder:
        path = Path(folder) / "state.ostta"
        adapter.save(path)
        method, score, identifier = (part.given for part in adapter.choice.parts().values())
        again = Adapter.restore(path, subject.backbone, method=method, score=score, identifier=identifier)
    require(again.resolved == adapter.resolved, f"The options of {subject.name} come back otherwise from a state file.")
    return again


def _same_run(subject: Subject, first: list[Prediction], second: list[Prediction], restored: int) -> None:
    """Require equal answers and diagnostics of two runs, the second one restored after an image."""
    pairs = zip(full_trace(first), full_trace(second), strict=True)
    odd = next((number for number, pair in enumerate(pairs) if pair[0] != pair[1]), None)
    require(
        odd is None,
        f"Two runs of {subject.name} on one stream, one of them restored after image {restored}, differ from image {odd} on: "
        "the answer may depend on nothing but the seed, the images and what `tensors` has.",
    )


def _same(
    before: Mapping[str, torch.Tensor], after: Mapping[str, torch.Tensor], what_changed: str, instead: str
) -> None:
    odd = differing(before, after)
    require(not odd, f"{what_changed} {', '.join(odd[:3])}: {instead}.")


def _is_error(step: Callable[[Any], object], given: Any, word: str = "") -> bool:
    try:
        step(given)
    except Error as problem:
        return word in str(problem)
    except Exception:  # anything else is what must not come
        return False
    return False


def _fields(subject: Subject) -> set[str]:
    return {each.name for each in dataclasses.fields(find_component("identifier", subject.identifier).options)}
