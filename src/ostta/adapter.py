"""One image in, one Prediction out: the adapter owns the method's state, the identifier and the step count."""

from __future__ import annotations

import math
import platform
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib import metadata
from itertools import pairwise
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

NOT_SEEN = "the features of this image are not finite"


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


@dataclass(frozen=True, slots=True)
class Turn:
    """One image on its way through a step: what was seen, the decision (None where the score is not finite), and the clock."""

    look: Look
    score: float
    decision: Decision | None
    began: float
    encoded: float
    decided: float


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
                yield nothing(str(problem))

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
        turn = self.decide(look, began)
        if turn.decision is None:
            return nothing(NOT_SEEN)
        outcome = self.method.learn(self.state, look, turn.decision)
        logits = None
        if self.wants_answer(turn, outcome) and outcome.answer is not None:
            with self._precision(True):
                logits = outcome.answer()
        return self.conclude(turn, outcome, logits)

    @torch.no_grad()
    def _predict(self, views: Views) -> Prediction:
        began = perf_counter()
        with self._precision(self.method.scores_in_half):
            look = self.method.look(self.state, views)
        turn = self.decide(look, began)
        if turn.decision is None:
            return nothing(NOT_SEEN)
        return self._prediction(turn, turn.decision, Outcome(reason="predict never adapts"), None, turn.decided)

    # --- a step in its parts, for a pool, which runs the image tower for many adapters at once ---------------------------
    def views_of(self, image: Any) -> Views:
        """The views of the next step's image: of whatever `step` takes, or of a tensor, as `step_views` takes it."""
        return self._views_of_tensor(image) if isinstance(image, torch.Tensor) else self._views_of_image(image)

    def decide(self, look: Look, began: float) -> Turn:
        """The identifier's decision on a look that was begun at `began`; changes nothing."""
        score = self._score(look)
        encoded = perf_counter()
        decision = self.identifier.peek(score) if math.isfinite(score) else None
        return Turn(look, score, decision, began, encoded, perf_counter())

    def wants_answer(self, turn: Turn, outcome: Outcome) -> bool:
        """Whether the class is to be named after the update."""
        desired = turn.decision is not None and turn.decision.desired
        return desired and outcome.answer is not None and self.resolved.adapter.answer_from == "after"

    def conclude(self, turn: Turn, outcome: Outcome, logits: torch.Tensor | None) -> Prediction:
        """Remember the score and count the step; `logits` are those after the update where they were wanted."""
        if turn.decision is None:
            return nothing(NOT_SEEN)
        if not outcome.failed:
            self.identifier.take(turn.score)
            self.steps += 1
        return self._prediction(turn, turn.decision, outcome, logits, perf_counter())

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
        self, turn: Turn, decision: Decision, outcome: Outcome, after: torch.Tensor | None, now: float
    ) -> Prediction:
        look, wanted = turn.look, self.resolved.adapter
        logits = look.logits if after is None else after
        pseudo_label = int(look.logits.argmax())
        index = pseudo_label if after is None else int(after.argmax())
        instants = (turn.began, turn.encoded, turn.decided, now)
        ms = Timing(*(1e3 * (end - start) for start, end in pairwise(instants)))
        return Prediction(
            label=self.classes[index] if decision.desired else None,
            index=index,
            known=decision.desired,
            score=turn.score,
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
        picture = read_image(image, self.resolved.adapter.max_megapixels)
        return Views.of_image(picture, self.backbone.preprocessing, self.seed, self.steps)

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


def nothing(reason: str) -> Prediction:
    """The answer for an image that could not be seen."""
    return Prediction(None, -1, False, math.nan, None, None, None, None, False, None, reason)


def _listed(names: list[str], most: int = 5) -> str:
    shown = ", ".join(repr(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
