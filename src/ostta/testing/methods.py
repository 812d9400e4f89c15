"""Requirements of a method: one function per requirement, and `check_method` for all."""

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
from ..core.overlay import learning
from ..core.types import Decision, Error, Look, Prediction, Verdict
from ..live import StreamPool
from ..methods.base import MethodSummary, Proposal
from .subject import (
    STEPS,
    Subject,
    content,
    differing,
    full_trace,
    images,
    refuses,
    require,
    require_bounded,
    require_declared,
    small_backbone,
    trace,
)

# Functions of a method; `answer` is optional for a class that inherits neither `FrozenMethod` nor `GradientMethod`.
FUNCTIONS = ("start", "overlay", "look", "propose", "commit")
# Tolerance for computations in batches of different sizes, which differ only in the last bits.
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
    """Check all requirements of a method; raise a `Violation` for the first that is not met.

    The method runs on `backbone`, or by default on the first of these that it accepts: a small tower and the two
    backbones that ship with ostta. `options` should make the method adapt within a few images. The banks must be full
    after `warm` images: until then a restored state must give equal answers, and the next `steps` images may use no
    additional memory.

    >>> from ostta.methods.zero_shot import ZeroShot
    >>> check_method(ZeroShot)
    """
    declared(method)
    subject = Subject(method, identifier, backbone or _accepted(method, identifier, options or {}), options or {})
    for check in CHECKS:
        check(subject)
    restorable_when_warm(subject, warm)
    keeps_nothing_more(subject, warm, steps)


def declared(method: type[Any]) -> None:
    """Check the options, the functions, and the line `summary` of `ostta ls methods`."""
    require_declared(method, "method", FUNCTIONS)
    summary = isinstance(getattr(method, "summary", None), MethodSummary)
    require(
        summary,
        f"The method {method.__qualname__} must have its line of `ostta ls methods` as `summary`, a MethodSummary.",
    )


def made_as_declared(subject: Subject) -> None:
    """Check the declared number of views, scale of scores, and need of a graph."""
    method, name = subject.adapter().method, subject.name
    views, scale = getattr(method, "views", None), getattr(method, "largest_score", None)
    require(
        type(views) is int and views >= 1, f"`views` of {name} must be a whole number of at least 1, not {views!r}."
    )
    require(
        isinstance(scale, float | int) and math.isfinite(scale) and scale > 0,
        f"`largest_score` of {name} must be the largest score, such as 1.0 for cosines, not {scale!r}.",
    )
    graph = getattr(method, "looks_with_graph", None)
    require(isinstance(graph, bool), f"`looks_with_graph` of {name} must be True or False, not {graph!r}.")


def looks_without_a_trace(subject: Subject) -> None:
    """Check that `overlay`, `look` and `propose` change nothing for any verdict; only `commit` does."""
    one = subject.adapter()
    for image in images(STEPS):
        before = content(one)
        with learning():
            look = one.pipeline.look_now(one.pipeline.views(image))
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
    """Check two runs of one stream: one predicts before every step, the other is saved and restored half-way."""
    one, other = subject.adapter(seed=3), subject.adapter(seed=3)
    first: list[Prediction] = []
    second: list[Prediction] = []
    for number, image in enumerate(images(STEPS)):
        before = content(one)
        predicted = one.predict(image)
        _same(before, content(one), f"`predict` with {subject.name} changed", "it must have no effect")
        first.append(one.step(image))
        require(
            abs(predicted.score - first[-1].score) <= 1e-5 * max(1.0, one.method.largest_score),
            f"With {subject.name}, `predict` gave an image the score {predicted.score}, and `step` {first[-1].score}: "
            "a look may depend only on the state and the image.",
        )
        require(
            not predicted.adapted and predicted.loss is None, f"`predict` with {subject.name} says that it adapted."
        )
        second.append(other.step(image))
        if number == STEPS // 2:
            other = _restarted(subject, other)
    _same_run(subject, (one, other), first, second, STEPS // 2)


def restorable_when_warm(subject: Subject, warm: int) -> None:
    """Check two runs of `warm` images, one of which is restored half-way.

    This covers behaviour that starts only after many images.
    """
    one, other = subject.adapter(seed=3), subject.adapter(seed=3)
    first, half = list(one.stream(images(warm), ahead=1)), warm // 2
    second = list(other.stream(images(warm)[: half + 1], ahead=1))
    other = _restarted(subject, other)
    second += other.stream(images(warm)[half + 1 :], ahead=1)
    _same_run(subject, (one, other), first, second, half)


def refuses_what_is_not_its_own(subject: Subject) -> None:
    """Check that `load` raises an Error for an additional tensor, a missing tensor or another shape."""
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
            refuses(subject.adapter().state.load, tensors),
            f"`load` of the state of {subject.name} must reject {what} with an ostta.Error.",
        )


def resets(subject: Subject) -> None:
    """Check that a reset restores the initial state."""
    one = subject.adapter()
    fresh, expected = content(one), full_trace(one.stream(images(STEPS), ahead=1))
    one.reset()
    _same(fresh, content(one), f"After a reset, {subject.name} still differs in", "`start` must give a fresh state")
    require(
        full_trace(one.stream(images(STEPS), ahead=1)) == expected,
        f"After a reset, {subject.name} answers differently: its memory belongs in the state of `start`.",
    )


def leaves_others_alone(subject: Subject) -> None:
    """Check that two adapters on one backbone are independent and that the backbone does not change."""
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
        f"Two adapters with {subject.name} on one backbone change each other's answers: share only the backbone.",
    )
    _same(before, tower.state_dict(), f"{subject.name} changed the backbone's", "what adapts belongs in an overlay")
    require(subject.backbone.weight_hash == weights, f"{subject.name} changed the backbone's weight hash.")


def survives_bad_input(subject: Subject) -> None:
    """Check that invalid input gives an Error, or a prediction with a reason, and changes nothing."""
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
            require(refuses(step, given), f"With {subject.name}, bad input raised no ostta.Error.")
        streamed = list(one.stream([broken]))
        require(
            streamed[0].label is None and "broken.png" in str(streamed[0].reason),
            f"With {subject.name}, `stream` does not report an image that cannot be read.",
        )
    spoiled = one.step_views(torch.full((enough, 3, size, size), float("nan")))
    require(
        (spoiled.label, spoiled.adapted, spoiled.reason) == (None, False, "the features of this image are not finite")
        and "NaN" not in spoiled.to_json(),
        f"With {subject.name}, an image whose features are not finite is answered: {spoiled.to_json()}.",
    )
    _same(before, content(one), f"Bad input to {subject.name} changed", "an image without features must have no effect")


def takes_any_image(subject: Subject) -> None:
    """Check that small, narrow and grey images give predictions, and so does a single class."""
    one = subject.adapter()
    for image in (Image.new("RGB", (1, 1), "red"), Image.new("L", (7, 300))):
        index = one.step(image).index
        require(
            index in range(len(subject.classes)),
            f"{subject.name} answers an image with class {index}, which does not exist.",
        )
    try:
        subject.backbone.classifier(["cat"])
    except Error:
        return  # the classes of a wrapped backbone are fixed
    alone = subject.adapter(classes=["cat"])
    answers = {alone.step(image).index for image in images(STEPS)}
    require(answers == {0}, f"{subject.name} answers {answers} where there is one class.")


def counts_views(subject: Subject) -> None:
    """Check that too few views are rejected before anything changes, and that additional views have no effect."""
    one, size = subject.adapter(), subject.backbone.preprocessing.image_size
    needed = one.method.views
    if needed > 1:
        require(
            refuses(one.step_views, torch.zeros(needed - 1, 3, size, size), "views") and one.steps == 0,
            f"{subject.name} must refuse {needed - 1} views, as it needs {needed}.",
        )
    many = torch.rand(needed + 3, 3, size, size, generator=torch.Generator().manual_seed(0))
    extra, exact = subject.adapter(), subject.adapter()
    require(
        trace([extra.step_views(many)]) == trace([exact.step_views(many[:-3])]),
        f"{subject.name} uses more views than the {needed} that it declares.",
    )


def works_in_a_pool(subject: Subject) -> None:
    """Check that streams of a pool give the same answers as separate adapters."""
    pool, alone = StreamPool(subject.backbone), [subject.adapter(seed=seed) for seed in (3, 4)]
    for name, seed in (("one", 3), ("other", 4)):
        pool.add(name, subject.adapter(seed=seed))
    for number, image in enumerate(images(STEPS)):
        together = pool.step({"one": image, "other": images(STEPS)[-1 - number]})
        apart = [alone[0].step(image), alone[1].step(images(STEPS)[-1 - number])]
        for joint, expected in zip(together.values(), apart, strict=True):
            near = abs(joint.score - expected.score) <= CLOSE * max(1.0, alone[0].method.largest_score)
            require(
                near and (joint.verdict, joint.adapted) == (expected.verdict, expected.adapted),
                f"In a pool, {subject.name} answers image {number} differently than alone ({joint} and {expected}).",
            )


def keeps_nothing_more(subject: Subject, warm: int = 100, steps: int = 200) -> None:
    """Check that steps leave no object, tensor or graph behind once the banks are full."""
    fields = dataclasses.fields(find_component("identifier", subject.identifier).options)
    small: dict[str, Any] = {"window": 64} if "window" in [each.name for each in fields] else {}
    one, size = subject.adapter(**small, class_scores=False), subject.backbone.preprocessing.image_size
    views = torch.rand(97, one.method.views, 3, size, size, generator=torch.Generator().manual_seed(0))
    number = itertools.count()
    require_bounded(lambda: one.step_views(views[next(number) % 97]), subject.name, "step", warm, steps)


CHECKS: tuple[Callable[[Subject], None], ...] = (
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
    """Return the first backbone that the method accepts."""
    reason = ""
    for name in ("small", *backbones.SHIPPED):
        backbone = small_backbone() if name == "small" else backbones.load(name)
        try:
            Subject(method, identifier, backbone, options).adapter()
        except Error as problem:
            reason = reason or str(problem)
        else:
            return backbone
    raise Error(
        f"{method.__qualname__} takes none of the backbones to check it on; give one as `backbone=`: {reason}",
        code="backbone-missing",
    )


def _restarted(subject: Subject, adapter: Adapter) -> Adapter:
    with tempfile.TemporaryDirectory(prefix="ostta-check-") as folder:
        path = Path(folder) / "state.ostta"
        adapter.save(path)
        method, score, identifier = (part.given for part in adapter.choice.parts().values())
        again = Adapter.restore(path, subject.backbone, method=method, score=score, identifier=identifier)
    require(again.resolved == adapter.resolved, f"The options of {subject.name} change in a state file.")
    return again


def _same_run(
    subject: Subject,
    adapters: tuple[Adapter, Adapter],
    first: list[Prediction],
    second: list[Prediction],
    restored: int,
) -> None:
    """Require equal answers, diagnostics and memories of two runs, the second of which was restored after an image."""
    pairs = zip(full_trace(first), full_trace(second), strict=True)
    odd = next((number for number, pair in enumerate(pairs) if pair[0] != pair[1]), None)
    require(
        odd is None,
        f"Two runs of {subject.name} on one stream, one restored after image {restored}, differ from image {odd} on: "
        "the answer may depend only on the seed, the images and the content of `tensors`.",
    )
    one, other = map(content, adapters)
    _same(one, other, f"After a restored run, {subject.name} differs in", "`load` must restore all content")


def _same(
    before: Mapping[str, torch.Tensor], after: Mapping[str, torch.Tensor], what_changed: str, instead: str
) -> None:
    odd = differing(before, after)
    require(not odd, f"{what_changed} {', '.join(odd[:3])}: {instead}.")
