"""One image in, one Prediction out: the adapter owns the method's state, the identifier and the step count."""

from __future__ import annotations

import math
import platform
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib import metadata
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from . import backbones
from .backbones.protocol import Backbone
from .core.memory import named, parts
from .core.scores import max_score, max_softmax_score
from .core.types import Decision, Error, Look, Outcome, Prediction, Timing
from .data.class_names import checked_classes
from .data.images import read_image
from .data.views import Views
from .identifiers import IDENTIFIERS, Identifier
from .methods import METHODS, Method
from .options import Resolved, rebuild, resolve
from .state import read_state, write_state


def load(
    backbone: str | Path | Backbone,
    classes: Sequence[str],
    method: str = "rosita",
    identifier: str = "lda",
    profile: str = "reference",
    seed: int = 0,
    **options: Any,
) -> Adapter:
    """A classifier over `classes` that adapts itself to the stream it sees.

    `backbone` is "embedded", a hub id, a local folder, or what `ostta.backbones.wrap` returned. `options` are those of the method,
    the identifier and the adapter; `ostta ls profiles` shows them.

    >>> from PIL import Image
    >>> adapter = load("embedded", ["cat", "dog", "ship"])
    >>> adapter.step(Image.new("RGB", (64, 48))).verdict.value
    'unreliable_desired'
    """
    if isinstance(backbone, str | Path):
        backbone = backbones.load(backbone)
    resolved = resolve(method, identifier, profile, options, backbone.defaults)
    return Adapter(backbone, classes, method, identifier, profile, seed, resolved)


class Adapter:
    """What `ostta.load` returns. Not safe to share between threads; two adapters may share a backbone."""

    def __init__(
        self,
        backbone: Backbone,
        classes: Sequence[str],
        method: str,
        identifier: str,
        profile: str,
        seed: int,
        resolved: Resolved,
    ) -> None:
        self.classes = checked_classes(classes)
        self.backbone = backbone
        self.method_name, self.identifier_name = method, identifier
        self.profile, self.seed, self.resolved = profile, seed, resolved
        self.classifier = backbone.classifier(self.classes, resolved.adapter.templates)
        self.method: Method = METHODS[method](backbone, self.classifier, self.classes, resolved.method)
        self.identifier: Identifier = IDENTIFIERS[identifier][0](resolved.identifier, scale=self.method.score_scale)
        self.state = self.method.start()
        self.steps = 0
        strange = backbone.unfamiliar(self.classes)
        if strange:
            warnings.warn(
                f"The {backbone.id} model was not trained on {_listed(strange)}: its answers for such classes mean little.",
                stacklevel=3,
            )

    # --- one image ----------------------------------------------------------------------------------------------------
    def step(self, image: Any) -> Prediction:
        """Decide, adapt, answer. Takes a PIL image, a path, bytes, or an HxWx3 uint8 array."""
        return self._step(self._views_of_image(image))

    def step_views(self, views: torch.Tensor) -> Prediction:
        """The same from a preprocessed float tensor [V, 3, H, W]; view 0 is the canonical one."""
        return self._step(self._views_of_tensor(views))

    def predict(self, image: Any) -> Prediction:
        """The answer of the state as it is, with no effect whatever."""
        return self._predict(self._views_of_image(image))

    def predict_views(self, views: torch.Tensor) -> Prediction:
        """`predict` from a preprocessed float tensor [V, 3, H, W]."""
        return self._predict(self._views_of_tensor(views))

    def stream(self, images: Iterable[Any]) -> Iterator[Prediction]:
        """`step` over any iterable. An image that cannot be read gives a prediction with the `reason` and changes nothing."""
        for image in images:
            try:
                yield self.step(image)
            except Error as problem:
                yield _nothing(str(problem))

    # --- the whole state ----------------------------------------------------------------------------------------------
    def reset(self) -> None:
        """Back to the start: no adaptation, empty banks, step 0."""
        self.state = self.method.start()
        self.identifier.reset()
        self.steps = 0

    def save(self, path: str | Path) -> None:
        """Write everything needed to go on later, atomically."""
        write_state(Path(path), self._tensors(), self.describe())

    @classmethod
    def restore(cls, path: str | Path, backbone: Backbone | None = None) -> Adapter:
        """The adapter that `save` wrote. A wrapped backbone must be given again."""
        tensors, stored = read_state(Path(path))
        named = stored["backbone"]
        if backbone is None:
            if not named["restorable"]:
                raise Error(f"{path} was saved on a wrapped backbone; pass it as `backbone=`.")
            backbone = backbones.load(named["id"])
        if backbone.weight_hash != named["weight_hash"]:
            raise Error(f"{path} belongs to a model with other weights ({named['id']}); this one is {backbone.id}.")
        resolved = rebuild(stored["method"], stored["identifier"], stored["options"], stored["option_sources"])
        with warnings.catch_warnings():  # said once already, when the adapter was made
            warnings.simplefilter("ignore")
            adapter = cls(
                backbone,
                stored["classes"],
                stored["method"],
                stored["identifier"],
                stored["profile"],
                stored["seed"],
                resolved,
            )
        adapter._load_tensors(tensors, path)
        adapter.steps = stored["step"]
        return adapter

    def describe(self) -> dict[str, Any]:
        """What identifies this adapter, for state and result files."""
        return {
            "backbone": {
                "id": self.backbone.id,
                "weight_hash": self.backbone.weight_hash,
                "restorable": self.backbone.restorable,
            },
            "classes": list(self.classes),
            "method": self.method_name,
            "identifier": self.identifier_name,
            "profile": self.profile,
            "options": self.resolved.values(),
            "option_sources": self.resolved.sources,
            "seed": self.seed,
            "step": self.steps,
            "versions": versions(),
        }

    # --- inside -------------------------------------------------------------------------------------------------------
    def _step(self, views: Views) -> Prediction:
        began = perf_counter()
        with self._precision(self.method.scores_in_half):
            look = self.method.look(self.state, views)
        score = self._score(look)
        encoded = perf_counter()
        if not math.isfinite(score):
            return _nothing("the features of this image are not finite")
        decision = self.identifier.peek(score)
        decided = perf_counter()
        outcome = self.method.learn(self.state, look, decision)
        logits = look.logits
        wanted = outcome.answer is not None and decision.desired and self.resolved.adapter.answer_from == "after"
        if wanted and outcome.answer is not None:
            with self._precision(True):
                logits = outcome.answer()
        if not outcome.failed:
            self.identifier.take(score)
            self.steps += 1
        now = perf_counter()
        ms = Timing(1e3 * (encoded - began), 1e3 * (decided - encoded), 1e3 * (now - decided))
        return self._prediction(look, logits, score, decision, outcome, ms)

    @torch.no_grad()
    def _predict(self, views: Views) -> Prediction:
        began = perf_counter()
        with self._precision(self.method.scores_in_half):
            look = self.method.look(self.state, views)
        score = self._score(look)
        encoded = perf_counter()
        if not math.isfinite(score):
            return _nothing("the features of this image are not finite")
        decision = self.identifier.peek(score)
        ms = Timing(1e3 * (encoded - began), 1e3 * (perf_counter() - encoded), 0.0)
        return self._prediction(look, look.logits, score, decision, Outcome(reason="predict never adapts"), ms)

    def _precision(self, in_half: bool) -> AbstractContextManager[object]:
        """Half precision where the published code has it on a GPU, if the options ask for it (D32)."""
        if in_half and self.resolved.adapter.precision == "mixed":
            return torch.autocast(self.classifier.device.type, dtype=torch.float16)
        return nullcontext()

    def _score(self, look: Look) -> float:
        if self.identifier.statistic == "msp":
            return max_softmax_score(look.cosines, self.backbone.logit_scale)
        return max_score(look.logits if look.scores is None else look.scores)

    def _prediction(
        self, look: Look, logits: torch.Tensor, score: float, decision: Decision, outcome: Outcome, ms: Timing
    ) -> Prediction:
        pseudo_label = int(look.logits.argmax())
        index = pseudo_label if logits is look.logits else int(logits.argmax())
        wanted = self.resolved.adapter
        return Prediction(
            label=self.classes[index] if decision.desired else None,
            index=index,
            known=decision.desired,
            score=score,
            threshold=decision.threshold,
            mu_desired=decision.mu_desired,
            mu_undesired=decision.mu_undesired,
            verdict=decision.verdict,
            adapted=outcome.adapted,
            loss=outcome.loss,
            reason=outcome.reason,
            ms=ms,
            class_scores=tuple(logits.tolist()) if wanted.class_scores else None,
            pseudo_label=pseudo_label,
            matches=outcome.matches,
            features=tuple(look.features.tolist()) if wanted.features else None,
        )

    def _views_of_image(self, image: Any) -> Views:
        return Views.of_image(read_image(image), self.backbone.preprocessing, self.seed, self.steps)

    def _views_of_tensor(self, views: torch.Tensor) -> Views:
        made = Views.of_tensor(views, self.backbone.preprocessing)
        made.require(self.method.views)
        return made

    def _tensors(self) -> dict[str, torch.Tensor]:
        return named(method=self.state.tensors(), identifier=self.identifier.tensors())

    def _load_tensors(self, tensors: dict[str, torch.Tensor], path: str | Path) -> None:
        try:
            self.state.load(parts(tensors, "method/"))
            self.identifier.load(parts(tensors, "identifier/"))
        except KeyError as missing:
            raise Error(f"{path} is incomplete: {missing} is not in it.") from None


def versions() -> dict[str, str]:
    """The libraries whose versions can change a number."""
    found = {"python": platform.python_version()}
    for name in ("ostta", "torch", "numpy", "transformers", "pillow"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _nothing(reason: str) -> Prediction:
    return Prediction(None, -1, False, math.nan, None, None, None, None, False, None, reason)


def _listed(names: list[str], most: int = 5) -> str:
    shown = ", ".join(repr(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
