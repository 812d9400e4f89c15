"""One image in, one Prediction out: the adapter owns the method's state, the identifier and the step count."""

from __future__ import annotations

import math
import platform
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cache
from importlib import metadata
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from . import backbones
from .acceptance import Acceptance
from .backbones.prompts import classifier_of, words_of
from .backbones.protocol import Backbone
from .backbones.wrapped import Numbers, Texts, words_by_name
from .config.profiles import apply_profile
from .config.registry import Components, find_components
from .config.resolve import SCORES_IN_HALF, Resolved, UserOptions, resolve
from .core.banks import named
from .core.checks import checked_seed, require_names, shown, split, stored_count
from .core.devices import synchronise
from .core.levels import Levels
from .core.modes import answering, learning
from .core.overlay import Overlay, distance, encode, lock_of
from .core.types import Decision, Error, Event, ImageError, InUseError, Look, Prediction, Scored, Timing, ViewSource
from .core.words import counted, first_few
from .data.class_names import Classes, checked_classes, described, prompts_of
from .data.images import ImageFeatures, ImageSource, read_image
from .data.views import FeaturesOnly, Views
from .field.words import WordSource, word_names
from .guard import Guard, Judged, Snapshot
from .identifiers import Identifier
from .identifiers.protocol import is_warming_up
from .lookahead import batch_size, image_of, look_ahead
from .methods import Method
from .methods.protocol import Failure, Proposal, Restarts, Trained
from .methods.tuning import TunedState, answer, take
from .scores import Score, Setting
from .sources import Item
from .state import ComponentClasses, SavedBackbone, StateCopy, read_state, require_stored_shapes, write_state

NOT_FINITE = "the features of this image are not finite"
NO_DIRECTION = "the features of this image have length zero or overflow"
UNSCORED = Scored(math.nan)
SPOILED = Failure("the step would make the features of images not finite")
FROZEN = Proposal(reason="the adapter is frozen")
SKIPPED = Proposal(reason="the guard leaves out updates for now")


def load(
    backbone: backbones.BackboneSource,
    classes: Classes,
    method: str | type[Any] | None = None,
    identifier: str | type[Any] | None = None,
    profile: str | None = None,
    seed: int = 0,
    score: str | type[Any] | None = None,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
    options: UserOptions = (),
    guard: bool | None = None,
    words: WordSource | None = None,
    **keywords: Any,
) -> Adapter:
    """A classifier over `classes` that adapts itself to the stream it sees.

    `classes` are names, or a dictionary from names to descriptions, whole prompts that are averaged: {"cat": ["a photo of a house
    cat", "a kitten"], "dog": []}. A class without any is prompted by its name, in the `templates`.

    `backbone` is "embedded", a hub id, a local folder, what `ostta.backbones.wrap` returned, a class or function that makes one, or a
    model that is loaded already: (model, processor) of transformers or (model, tokenizer, transform) of open_clip. One that is
    named is loaded onto `device`, "auto" (a GPU where there is one; the default), "cpu", "cuda", "cuda:1" or "mps", with its
    numbers in `dtype`, "float32", "bfloat16" or "float16"; one that is given stays where it is. `method`, `score` and `identifier` are
    names, as `ostta ls` shows them, or classes of your own (docs/plugins.md). With none of them and no profile named, the profile is
    `field`, which is what we recommend (docs/deciding.md); with one of them named, `reference`, the published code. The profile chooses
    those of them that are not named; a named identifier that can judge one score only comes with that score. Keywords are
    options of the method, the score, the identifier and the adapter, which `ostta ls options` shows; `options` takes them too, by
    name or as objects: `options=ostta.options.RositaOptions(lr=1e-4)`, in which all fields count as given. `guard` watches the method
    without labels and takes back what harms (docs/guard.md); if not given, it is on in the profile `field` only. `accept=0.8` answers
    "unknown" below that probability, `accept={"person": 0.9}` for one class.

    `words` are names of things that are not classes, which the score `field` compares images with and names unknown images by
    (docs/words.md): a list, a text file with one name per line, "everyday" for the list that ships, or a dictionary from names to
    text embeddings. A backbone that can encode none of them works without words.

    >>> adapter = load("embedded", ["cat", "dog", "ship"])
    >>> adapter
    Adapter(embedded, 3 classes (cat, dog, ship), method zero_shot, identifier field, profile field, 0 steps)
    >>> adapter.step(image).label  # a PIL image, a path, bytes or an array
    'cat'
    >>> load("embedded", ["cat", "dog", "ship"], "rosita")
    Adapter(embedded, 3 classes (cat, dog, ship), method rosita, identifier lda, profile reference, 0 steps)
    """
    model = backbones.as_backbone(backbone, device, dtype)
    wanted = apply_profile(profile, method, score, identifier)
    choice = find_components(wanted.method, wanted.score, wanted.identifier)
    names, descriptions = described(classes)
    if descriptions and "descriptions" in keywords:
        raise Error("`descriptions` is given twice: `classes` has them too.")
    keywords |= {"descriptions": descriptions} if descriptions else {}
    if words is not None:
        keywords["words"] = word_names(words)
    guarded = wanted.profile == "field" if guard is None else guard
    resolved = resolve(choice, wanted.profile, options, model.defaults, keywords, guarded)
    adapter = Adapter(model, names, choice, wanted.profile, seed, resolved, words_by_name(words))
    if adapter.unfamiliar:
        warnings.warn(
            f"The {model.id} model was not trained on {_listed(adapter.unfamiliar)}: its answers for such classes mean little.",
            stacklevel=2,
        )
    return adapter


@dataclass(frozen=True, slots=True)
class Turn:
    """One image on its way through a step: what was seen and decided, and the clock. `decision` is None where nothing can be.

    `unseen` says why not. `frozen` is what the frozen model says, where the guard lets it answer.
    """

    look: Look[Any]
    scored: Scored
    decision: Decision | None
    unseen: str | None
    began: float
    encoded: float
    decided: float
    warming_up: bool = False
    frozen: Judged | None = None


class Adapter:
    """What `ostta.load` returns. One thread at a time: a second caller is refused. Two adapters may share a backbone.

    In the examples of its methods, `adapter` is a new one, and `image` is a photograph of a cat.

    >>> adapter = ostta.load("embedded", ["cat", "dog", "ship"], method="tda")
    >>> for prediction in adapter.stream([image, image]):
    ...     print(prediction.label)
    cat
    cat
    >>> adapter
    Adapter(embedded, 3 classes (cat, dog, ship), method tda, identifier lda, profile reference, 2 steps)
    """

    def __init__(
        self,
        backbone: Backbone,
        classes: Sequence[str],
        choice: Components,
        profile: str,
        seed: int,
        resolved: Resolved,
        words: Texts | None = None,
    ) -> None:
        self.classes = checked_classes(classes)
        self.backbone, self._words = backbone, words
        self.choice = choice
        self.profile, self.seed, self.resolved = profile, checked_seed(seed), resolved
        if backbone.dtype != torch.float32 and resolved.adapter.precision == "mixed":
            raise Error(
                f"`precision=mixed` is half precision in some places of a step, and the backbone {backbone.id} is in {backbone.dtype} "
                "throughout: choose one of the two."
            )
        prompts = prompts_of(resolved.adapter.descriptions, self.classes)
        # Under the lock: both towers are read, and another thread may have its overlay in place of their values.
        with learning(), lock_of(backbone.vision):
            self.classifier = classifier_of(backbone, self.classes, resolved.adapter.templates, prompts)
            self.method: Method[Any, Any, Any] = choice.method.of(
                backbone, self.classifier, self.classes, resolved.method
            )
            self.state = self.method.start()
            self.score: Score = choice.score.of(resolved.score, self._setting())
        self.identifier: Identifier = choice.identifier.of(resolved.identifier, scale=self.score.scale)
        if resolved.adapter.accept and self.identifier.peek(0.0).probability is None:
            raise Error(
                f"`accept` needs probabilities, which the identifier {choice.identifier.name!r} does not give: use 'field'."
            )
        self.acceptance = Acceptance(resolved.adapter.accept, self.classes)
        self.levels = Levels(len(self.classes)) if resolved.adapter.answer == "levelled" else None
        if resolved.adapter.reset_every and not isinstance(self.state, Restarts):
            raise Error(
                f"{self.method_name} trains nothing that stays, so there is nothing for `reset_every` to take back."
            )
        self.guard = None if resolved.guard is None else Guard(resolved.guard, self.classifier)
        # What the guard measures drift from.
        self._initial = self._trained_overlay() if self.guard is not None else None
        self._frozen = False
        self.steps = 0
        # Updates since what was trained was last at its start; counted where `reset_every` asks for it.
        self.updates = 0
        # What was trained before the last gradient step, while no image has been seen through what it is now.
        self._before: Trained | None = None
        self._in_use = _OneCaller()
        # A class that is described need not be known by its name.
        self.unfamiliar = backbone.unfamiliar([name for name in self.classes if name not in prompts])

    def __repr__(self) -> str:
        # The score is named where it is not the one that goes without saying.
        score = "" if self.score_name == (self.identifier.needs or "max") else f"score {self.score_name}, "
        return (
            f"Adapter({self.backbone.id}, {first_few(self.classes, 'class', 'classes')}, method {self.method_name}, "
            f"{score}identifier {self.identifier_name}, profile {self.profile}, {counted(self.steps, 'step')})"
        )

    @property
    def method_name(self) -> str:
        """The method's registered name; `package.module:Name` or `file.py:Name` where it has none."""
        return self.choice.method.name

    @property
    def score_name(self) -> str:
        """As `method_name`."""
        return self.choice.score.name

    @property
    def identifier_name(self) -> str:
        """As `method_name`."""
        return self.choice.identifier.name

    @property
    def device(self) -> torch.device:
        """Where the classifier, the banks and what is trained are."""
        return self.classifier.device

    @property
    def features_suffice(self) -> bool:
        """Whether an image's features under the frozen tower are all that a step needs of it: `step_features` then does as `step`.

        >>> adapter.features_suffice, ostta.load(adapter.backbone, adapter.classes, "zero_shot").features_suffice
        (False, True)
        """
        return self.method.views == 1 and self.method.overlay(self.state) is None

    # --- one image ----------------------------------------------------------------------------------------------------
    def step(self, image: ImageSource) -> Prediction:
        """Decide, adapt, answer. Takes a PIL image, a path, bytes, or an HxWx3 uint8 array.

        >>> adapter.step(image)
        Prediction(cat, score 0.45 > 0.00, unreliable)
        """
        return self._step(self._seen(image))

    def step_views(self, views: torch.Tensor) -> Prediction:
        """The same from a preprocessed float tensor [V, 3, H, W]; view 0 is the canonical one.

        >>> from ostta.data import canonical
        >>> views = canonical(image, adapter.backbone.preprocessing)[None]  # and random ones behind it, for what trains
        >>> ostta.load(adapter.backbone, adapter.classes, "zero_shot").step_views(views)
        Prediction(cat, score 0.45 > 0.00, unreliable)
        """
        return self._step(self._views_of_tensor(views))

    def step_features(self, features: torch.Tensor | Sequence[float]) -> Prediction:
        """The same from an image's features [D], for methods that need nothing else of it: zero_shot, tda, dpe, oga, onzeta.

        >>> texts = torch.tensor([[1.0, 0.0], [0.0, 1.0]])  # one row a class, from any encoder
        >>> ostta.load(ostta.backbones.wrap(None, texts), ["cat", "dog"], "tda").step_features([0.6, 0.8]).label
        'dog'
        """
        return self._step(self._only(features))

    def predict_features(self, features: torch.Tensor | Sequence[float]) -> Prediction:
        """`predict` from an image's features [D].

        >>> frozen = ostta.load(adapter.backbone, adapter.classes, "zero_shot")
        >>> frozen.predict_features(frozen.classifier[2])
        Prediction(ship, score 1.00 > 0.00, unreliable)
        """
        return self._predict(self._only(features))

    def predict(self, image: ImageSource) -> Prediction:
        """The answer of the state as it is, with no effect whatever.

        >>> adapter.predict(image)
        Prediction(cat, score 0.45 > 0.00, unreliable)
        >>> adapter.steps
        0
        """
        return self._predict(self._seen(image))

    def predict_views(self, views: torch.Tensor) -> Prediction:
        """`predict` from a preprocessed float tensor [V, 3, H, W].

        >>> from ostta.data import canonical
        >>> frozen = ostta.load(adapter.backbone, adapter.classes, "zero_shot")
        >>> frozen.predict_views(canonical(image, frozen.backbone.preprocessing)[None]).label
        'cat'
        """
        return self._predict(self._views_of_tensor(views))

    def stream(self, images: Iterable[ImageSource | Item], ahead: int | None = None) -> Iterator[Prediction]:
        """`step` over any iterable. An image that cannot be read gives a prediction with the `reason` and changes nothing.

        Any other problem is raised, such as an `ostta.InUseError` where another thread is using the adapter.
        The items of a source, `ostta.sources.open(...)`, give predictions with their `name`, `time` and `frame`.

        Where the method trains nothing in the image tower, the next `ahead` images are encoded in one batch. The images are still
        decided in order, and scores stay within 1e-5 of those of `step`. The default is 16 for collections with a length and for
        recorded sources, and 1, which is no look-ahead, for other iterators, because they may read from a camera. Live sources and
        methods that train the image tower ignore `ahead`.

        >>> for prediction in adapter.stream([image, "lost.jpg"]):
        ...     print(prediction)
        Prediction(cat, score 0.45 > 0.00, unreliable)
        Prediction(nothing seen: There is no image file 'lost.jpg'.)
        """
        for image in look_ahead(self, images, image_of, batch_size(images, ahead)):
            item = image.item if isinstance(image.item, Item) else None
            try:
                prediction = image.step()
            except ImageError as problem:
                prediction = nothing(str(problem))
            yield prediction if item is None else replace(prediction, name=item.name, time=item.time, frame=item.frame)

    # --- learning or not --------------------------------------------------------------------------------------------------
    @property
    def frozen(self) -> bool:
        """Whether it learns nothing for now, by hand or by the guard: it decides and answers, takes no step and stores no image.

        >>> adapter.frozen
        False
        """
        return self._frozen or (self.guard is not None and self.guard.resting)

    def freeze(self) -> Event:
        """Learn nothing more until `thaw`. The identifier goes on, as a threshold must follow the scores.

        The guard does not act while the adapter is frozen by hand: it neither rolls back nor resets the state.

        >>> adapter.freeze()
        Event(kind='freeze', sentence='Frozen by hand.', evidence=mappingproxy({}))
        >>> adapter.step(image).reason
        'the adapter is frozen'
        """
        with self.in_use():
            self._frozen = True
            return Event("freeze", "Frozen by hand.")

    def thaw(self) -> Event:
        """Learn again, from the state as it is, whoever froze it.

        >>> _ = adapter.freeze()
        >>> adapter.thaw().kind, adapter.frozen
        ('thaw', False)
        """
        with self.in_use():
            self._frozen = False
            if self.guard is not None:
                self.guard.thaw()
            return Event("thaw", "Thawed by hand.")

    def roll_back(self) -> Event:
        """Go back to the last good state that the guard has kept; called again, to the one before it.

        >>> try:
        ...     adapter.roll_back()
        ... except ostta.Error as problem:
        ...     print(problem)
        There is no earlier state to go back to: only a guard keeps some, and this adapter was loaded without `guard=True`.
        """
        with self.in_use(), learning():
            if self.guard is None:
                raise Error(
                    "There is no earlier state to go back to: only a guard keeps some, and this adapter was loaded without `guard=True`."
                )
            snapshot = self.guard.snapshots.take_last()
            if snapshot is None:
                raise Error(
                    f"There is no earlier state to go back to: the guard keeps one after every {self.guard.options.snapshot_every} "
                    "good images, and has none yet."
                )
            self._return_to(snapshot)
            self.guard.returned(to_start=False)
            return Event("roll_back", f"Rolled back by hand, to the state after step {snapshot.step}.")

    # --- the whole state ----------------------------------------------------------------------------------------------
    def reset(self) -> None:
        """Back to the start: no adaptation, empty banks, step 0.

        >>> _ = adapter.step(image)
        >>> adapter.reset()
        >>> adapter.steps
        0
        """
        with self.in_use(), learning():
            self.state, self._before = self.method.start(), None
            self.score.reset()
            self.identifier.reset()
            if self.levels is not None:
                self.levels.reset()
            self.steps = self.updates = 0
            self._frozen = False
            if self.guard is not None:
                self.guard.reset()

    def save(self, path: str | Path) -> None:
        """Write everything needed to go on later, atomically.

        >>> _ = adapter.step(image)
        >>> adapter.save("camera.ostta")
        >>> ostta.Adapter.restore("camera.ostta").steps
        1
        """
        with self.in_use(), answering():
            self._try_last_step()
            write_state(Path(path), self._tensors(), self.describe(), self._given())

    def copy_state(self) -> StateCopy:
        """What `save` would write, as it is now; its `to_bytes` can be called while the adapter goes on.

        >>> copied = adapter.copy_state()
        >>> _ = adapter.step(image)
        >>> _ = open("camera.ostta", "wb").write(copied.to_bytes())
        >>> ostta.Adapter.restore("camera.ostta").steps
        0
        """
        with self.in_use(), answering():
            self._try_last_step()
            tensors = {name: tensor.detach().clone() for name, tensor in self._tensors().items()}
            return StateCopy(tensors, self.describe(), self._given())

    @classmethod
    def restore(
        cls,
        path: str | Path,
        backbone: backbones.BackboneSource | None = None,
        device: str | torch.device | None = None,
        dtype: str | torch.dtype | None = None,
        method: str | type[Any] | None = None,
        identifier: str | type[Any] | None = None,
        score: str | type[Any] | None = None,
        words: Mapping[str, Numbers] | None = None,
    ) -> Adapter:
        """The adapter that `save` wrote, on any device. A backbone that does not ship with ostta must be given again, or named.

        So must a method, a score or an identifier that is not registered, as a class, and `words` that were a dictionary. What a state file says never makes anything be
        downloaded, run, or read from a place that the caller did not name.

        >>> adapter.save("camera.ostta")
        >>> again = ostta.Adapter.restore("camera.ostta", backbone=adapter.backbone)  # "embedded" is found by itself
        >>> again.predict(image).score == adapter.predict(image).score
        True
        """
        tensors, stored = read_state(Path(path), ComponentClasses(method, score, identifier))
        model = backbones.as_backbone(_backbone_again(path, stored.backbone, backbone), device, dtype)
        if model.weight_hash != stored.backbone.weight_hash:
            raise Error(
                f"{path} belongs to a model with other weights ({shown(stored.backbone.id)}); this one is {model.id}."
            )
        try:
            require_stored_shapes(tensors, stored, model.feature_width)
            adapter = cls(
                model, stored.classes, stored.choice, stored.profile, stored.seed, stored.options, words_by_name(words)
            )
            with learning():
                adapter._load_tensors(tensors)
        except Error as problem:
            raise Error(f"{path} cannot be restored: {problem}") from None
        adapter.steps = stored.step
        return adapter

    def describe(self) -> dict[str, Any]:
        """What identifies this adapter, for state and result files.

        >>> described = adapter.describe()
        >>> described["method"], described["options"]["method"]["lr"], described["option_sources"]["method"]["lr"]
        ('rosita', 0.03, 'backbone')
        """
        return {
            "backbone": {
                "id": self.backbone.id,
                "weight_hash": self.backbone.weight_hash,
                "restorable": self.backbone.restorable,
            },
            "classes": list(self.classes),
            "method": self.method_name,
            "score": self.score_name,
            "identifier": self.identifier_name,
            "profile": self.profile,
            "options": self.resolved.values(),
            "option_sources": self.resolved.sources,
            "seed": self.seed,
            "step": self.steps,
            "versions": versions(),
        }

    # --- inside -------------------------------------------------------------------------------------------------------
    def _step(self, views: ViewSource, seconds: float = 0.0) -> Prediction:
        with self.in_use(), learning():
            began = self.clock() - seconds
            turn = self.decide(self._look(views), began)
            if turn.decision is None:
                return nothing(turn.unseen)
            proposal = self.propose(turn, turn.decision)
            outcome = None if proposal.gradient is None else take(proposal.gradient, turn.look)
            features = None
            if isinstance(outcome, Trained) and self.looks_again(turn, proposal):
                with torch.no_grad(), self._half(True):
                    features = self._encode(views, outcome.overlay)
            return self.conclude(turn, proposal, outcome, features)

    def _predict(self, views: ViewSource) -> Prediction:
        with self.in_use(), answering():
            began = self.clock()
            turn = self.decide(self._look(views, keep=False), began)
            if turn.decision is None:
                return nothing(turn.unseen)
            proposal = Proposal(reason="predict never adapts")
            return self._prediction(turn, proposal, None, self._answer(turn.look.logits))

    def in_use(self) -> AbstractContextManager[None]:
        """The adapter for one caller at a time."""
        return self._in_use

    # --- a step in its parts, for a pool, which runs the image tower for many adapters at once ---------------------------
    def views_of(self, image: ImageSource | torch.Tensor) -> Views:
        """The views of the next step's image: of whatever `step` takes, or of a tensor, as `step_views` takes it."""
        return self._views_of_tensor(image) if isinstance(image, torch.Tensor) else self._views_of_image(image)

    def step_encoded(self, canonical: torch.Tensor, features: torch.Tensor, seconds: float) -> Prediction:
        """`step` by a canonical view [1, 3, H, W] and its unit features under the frozen tower, which took `seconds` to compute."""
        views = self._views_of_tensor(canonical)
        views.features = features
        return self._step(views, seconds)

    def decide(self, look: Look[Any], began: float) -> Turn:
        """The identifier's decision on a look that was begun at `began`; changes nothing."""
        unseen = unseen_because(look)
        encoded = self.clock()
        scored = UNSCORED if unseen is not None else self.score.value(look)
        if unseen is None and not math.isfinite(scored.value):
            unseen = NOT_FINITE
        decision, frozen = None, None
        if unseen is None:
            decision = self.identifier.peek(scored.value, scored.evidence)
            # At the start, what was seen is what the frozen model sees.
            if self.guard is not None and self.guard.resting:
                frozen = self.guard.shadow.judge(look.features, self.steps + 1)
        young = is_warming_up(self.identifier) or bool(getattr(self.score, "warming_up", False))
        return Turn(look, scored, decision, unseen, began, encoded, self.clock(), young, frozen)

    def propose(self, turn: Turn, decision: Decision) -> Proposal:
        """What the image asks for; changes nothing."""
        if self.frozen:
            return FROZEN
        if self.guard is not None and self.guard.skipping:
            return SKIPPED
        return self.method.propose(self.state, turn.look, decision)

    def looks_again(self, turn: Turn, proposal: Proposal) -> bool:
        """Whether the class is to be named from the image's features under the values that its step led to."""
        return self._answers_after(turn) and proposal.gradient is not None and proposal.gradient.looks_again

    def conclude(
        self,
        turn: Turn,
        proposal: Proposal,
        outcome: Trained | Failure | None,
        features: torch.Tensor | None,
    ) -> Prediction:
        """Store what the image has taught, remember its score and count the step: all of it, or nothing.

        `outcome` is what became of the proposed gradient step; `features` are the image's under it, where `looks_again`.
        """
        if turn.decision is None:
            return nothing(turn.unseen)
        logits = None
        if isinstance(outcome, Trained) and proposal.gradient is not None and self._answers_after(turn):
            after = turn.look.features if features is None else features
            with torch.no_grad(), self._half(True):
                logits = answer(self.method, self.state, turn.look, proposal.gradient, outcome, after)
            if (logits is not None and not math.isfinite(float(logits.sum(dtype=torch.float32)))) or (
                features is not None and unseen_because(features)
            ):
                outcome = SPOILED
        if isinstance(outcome, Failure):
            logits = None
        answered = self._answer(turn.look.logits if logits is None else logits)
        events: tuple[Event, ...] = ()
        if not isinstance(outcome, Failure):
            if proposal is not FROZEN and proposal is not SKIPPED:
                self.method.commit(self.state, turn.look, turn.decision, outcome)
            if not self._frozen:
                self.score.take(turn.look, turn.scored, turn.decision)
            self.identifier.take(turn.scored.value, turn.scored.evidence)
            if self.levels is not None and not self._frozen:
                self.levels.take(turn.look.logits, turn.decision.desired)
            self.steps += 1
            # Until an image was seen through the new values, nobody knows whether one can be.
            gradient = proposal.gradient if logits is None and outcome is not None else None
            self._before = None if gradient is None else Trained(gradient.overlay, gradient.optimiser, 0.0)
            if isinstance(outcome, Trained) or proposal.adapted:
                proposal, events = self._count_update(proposal)
        if self.guard is not None and not events:  # after a reset there is nothing to watch yet
            events = self._watched(self.guard, turn, turn.decision, proposal, outcome, int(answered.argmax()))
        return self._prediction(turn, proposal, outcome, answered, events)

    def rescued(self, look: Look[Any], views: ViewSource, keep: bool = True) -> Look[Any]:
        """`look`, or, where only the last gradient step is to blame that nothing can be seen, a look without that step.

        With `keep` such a step is given up for good.
        """
        if self._before is None or unseen_because(look) is None or not isinstance(self.state, TunedState):
            return look
        last = Trained(self.state.overlay, self.state.optimiser, 0.0)
        self.state.keep(self._before)
        earlier = self._look_now(views)
        to_blame = unseen_because(earlier) is None
        if keep and to_blame:
            self._before = None
            if self.guard is not None:
                self.guard.signals.failed()
            warnings.warn(
                f"The update of step {self.steps} made the features of images not finite and was taken back: "
                "its learning rate is too high.",
                stacklevel=2,
            )
        else:
            self.state.keep(last)
        return earlier if to_blame else look

    def clock(self) -> float:
        """Seconds, read when the device has done what it was told so far."""
        synchronise(self.device)
        return perf_counter()

    # --- further inside -----------------------------------------------------------------------------------------------
    def _look(self, views: ViewSource, keep: bool = True) -> Look[Any]:
        return self.rescued(self._look_now(views), views, keep)

    def _look_now(self, views: ViewSource) -> Look[Any]:
        graph = torch.is_grad_enabled() and self.method.looks_with_graph
        with torch.set_grad_enabled(graph), self._half(self.method_name in SCORES_IN_HALF):
            features = self._encode(views, self.method.overlay(self.state))
            return self.method.look(self.state, features, views)

    def _encode(self, views: ViewSource, overlay: Overlay | None) -> torch.Tensor:
        """The unit features [D] of the canonical view."""
        if isinstance(views, FeaturesOnly):
            return views.features
        if overlay is None and isinstance(views, Views) and views.features is not None:
            return views.features
        return encode(self.backbone.vision, views.canonical, overlay)[0]

    def _try_last_step(self) -> None:
        """Find out on a grey image whether anything can be seen through the last gradient step, if no image has shown it yet."""
        if self._before is not None:
            size = self.backbone.preprocessing.image_size
            self._look(Views.of_tensor(torch.zeros(1, 3, size, size), device=self.device))

    def _answers_after(self, turn: Turn) -> bool:
        desired = turn.decision is not None and turn.decision.desired
        return desired and self.resolved.adapter.answer_from == "after"

    def _half(self, where: bool) -> AbstractContextManager[object]:
        """Half precision where the published code has it on a GPU, if the options ask for it (D32)."""
        if where and self.resolved.adapter.precision == "mixed":
            return torch.autocast(self.classifier.device.type, dtype=torch.float16)
        return nullcontext()

    def _watched(
        self,
        guard: Guard,
        turn: Turn,
        decision: Decision,
        proposal: Proposal,
        outcome: Trained | Failure | None,
        index: int,
    ) -> tuple[Event, ...]:
        """Show the guard what became of an image, and do what it says. `index` is the class that the image was given."""
        if isinstance(outcome, Failure):
            guard.signals.stepped(True, None)
        else:
            separation = None
            if decision.mu_desired is not None and decision.mu_undesired is not None:
                separation = decision.mu_desired - decision.mu_undesired
            guard.signals.stepped(False, separation)
            overlay, due = self._trained_overlay(), guard.wants_check(self.steps)
            if overlay is not None and decision.desired:
                guard.signals.trained_on(index)
            if overlay is not None and self._initial is not None and due and not guard.pristine:
                guard.signals.drifted(distance(overlay, self._initial))
            every, features = guard.pristine or self.method.overlay(self.state) is None, turn.look.features
            if every or due:
                # A pass of the tower only where what was seen is not what the frozen model sees.
                if not every:
                    with torch.no_grad():
                        features = self._encode(turn.look.views, None)
                judged = turn.frozen or guard.shadow.judge(features, self.steps)
                undecided = decision.probability is not None and turn.warming_up
                guard.check(decision, index, judged, self.steps, every, undecided)
            if isinstance(outcome, Trained) and overlay is outcome.overlay and proposal.gradient is not None:
                guard.pristine = False
                guard.signals.moved(distance(outcome.overlay, proposal.gradient.overlay))
        if self._frozen:  # frozen by hand: the guard observes, and neither warns nor changes the state
            return ()
        events = guard.climb(self.steps)
        for event in events:
            if event.kind == "roll_back" and (snapshot := guard.good_snapshot(self.steps)) is not None:
                self._return_to(snapshot)
                guard.returned(to_start=False)
            elif event.kind == "freeze":
                self._start_again(self.method.start())
                guard.froze()
        # A failed update leaves the step count as it was, so the snapshot of this step is stored already.
        if guard.keeps(self.steps) and not isinstance(outcome, Failure):
            guard.snapshots.keep(Snapshot.of(self.steps, self._memory()))
        return tuple(events)

    def _trained_overlay(self) -> Overlay | None:
        """What the method trains, also where it is in the text tower only, and images are seen through the frozen tower."""
        return self.state.overlay if isinstance(self.state, TunedState) else self.method.overlay(self.state)

    def _return_to(self, snapshot: Snapshot) -> None:
        """The state of a snapshot. The steps go on: which views an image has is a matter of its number."""
        self.state, self._before = self.method.start(), None
        self._load_memory(dict(snapshot.tensors))

    def _start_again(self, state: Any) -> None:
        """Go on with `state`, in which nothing is trained: what score and identifier remember is of the trained model."""
        self.state, self._before, self.updates = state, None, 0
        self.score.reset()
        self.identifier.reset()
        if self.levels is not None:
            self.levels.reset()

    def _count_update(self, proposal: Proposal) -> tuple[Proposal, tuple[Event, ...]]:
        """Take back what was trained where it is time to (`reset_every`); the proposal, with a word about it in its diagnostics."""
        every = self.resolved.adapter.reset_every
        self.updates += bool(every)
        if not every or self.updates < every or not isinstance(self.state, Restarts):
            return proposal, ()
        self._start_again(self.state.restarted(self.method.start()))
        if self.guard is not None:
            self.guard.returned(to_start=True)
        word = {"reset": float(every)}
        event = Event(
            "reset", f"What was trained went back to the start after {every} updates, as `reset_every` asks.", word
        )
        return replace(proposal, diagnostics={**proposal.diagnostics, **word}), (event,)

    def _answer(self, logits: torch.Tensor) -> torch.Tensor:
        """The logits that the class is named from."""
        return logits if self.levels is None else self.levels.without(logits)

    def _setting(self) -> Setting:
        """What the score may know."""
        backbone = self.backbone

        def frozen(images: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                return encode(backbone.vision, images.to(self.classifier.device), None)

        def encode_words(names: Sequence[str]) -> Mapping[str, torch.Tensor]:
            if self._words is None:
                return words_of(backbone, names, self.resolved.adapter.templates, self.classes)
            known = self._words.known(names)
            return dict(zip(known, self._words.rows(known), strict=True)) if known else {}

        return Setting(
            self.classifier,
            backbone.logit_scale,
            self.method.score_scale,
            backbone.preprocessing,
            frozen,
            encode_words,
        )

    def _prediction(
        self,
        turn: Turn,
        proposal: Proposal,
        outcome: Trained | Failure | None,
        logits: torch.Tensor,
        events: tuple[Event, ...] = (),
    ) -> Prediction:
        look, wanted, failed = turn.look, self.resolved.adapter, isinstance(outcome, Failure)
        scored, decision = turn.scored, turn.decision
        if turn.frozen is not None:
            scored, decision, logits = turn.frozen.scored, turn.frozen.decision, turn.frozen.logits
        assert decision is not None
        pseudo_label = int(look.logits.argmax())
        index = pseudo_label if logits is look.logits else int(logits.argmax())
        began, encoded, decided, now = turn.began, turn.encoded, turn.decided, self.clock()
        ms = Timing(1e3 * (encoded - began), 1e3 * (decided - encoded), 1e3 * (now - decided))
        trained = isinstance(outcome, Trained)
        probability, explain = decision.probability, getattr(self.score, "explain", None)
        known = decision.desired if probability is None else self.acceptance.accepts(probability, index)
        scored = replace(scored, most_like=None) if known else scored
        return Prediction(
            label=self.classes[index] if known else None,
            index=index,
            known=known,
            score=scored.value,
            threshold=decision.threshold if probability is None else self.acceptance.log_odds(index),
            mu_desired=decision.mu_desired,
            mu_undesired=decision.mu_undesired,
            verdict=decision.verdict,
            adapted=trained or (proposal.adapted and not failed),
            loss=outcome.loss if isinstance(outcome, Trained) else proposal.loss,
            reason=outcome.reason if isinstance(outcome, Failure) else proposal.reason,
            ms=ms,
            best=self.classes[index],
            class_scores=dict(zip(self.classes, logits.cpu().tolist(), strict=True)) if wanted.class_scores else None,
            pseudo_label=pseudo_label,
            diagnostics={} if failed else proposal.diagnostics,
            features=tuple(look.features.cpu().tolist()) if wanted.features else None,
            evidence=scored.evidence,
            events=events,
            warming_up=turn.warming_up,
            probability=probability,
            undecided=probability is not None and turn.warming_up,
            explanation=None if probability is None or explain is None else explain(scored, self.classes[index]),
            class_probabilities=self._class_probabilities(probability, logits) if wanted.class_probabilities else None,
            most_like=scored.most_like,
        )

    def _seen(self, image: ImageSource) -> ViewSource:
        """The views of an image, or the features that stand in for it."""
        return (
            self._only(torch.from_numpy(image.values))
            if isinstance(image, ImageFeatures)
            else self._views_of_image(image)
        )

    def _class_probabilities(self, probability: float | None, logits: torch.Tensor) -> dict[str, float] | None:
        """P(known) divided among the classes by the softmax of the scaled logits."""
        if probability is None:
            return None
        scale = self.backbone.logit_scale if self.method.score_scale == 1 else 1.0
        shares = torch.softmax(scale * logits.float(), dim=-1).cpu().tolist()
        return {name: probability * share for name, share in zip(self.classes, shares, strict=True)}

    def _views_of_image(self, image: ImageSource) -> Views:
        picture = read_image(image, self.resolved.adapter.max_megapixels)
        return Views.of_image(picture, self.backbone.preprocessing, self.seed, self.steps, self.device)

    def _views_of_tensor(self, views: torch.Tensor) -> Views:
        made = Views.of_tensor(views, self.backbone.preprocessing, self.device)
        made.require(self.method.views)
        return made

    def _only(self, features: torch.Tensor | Sequence[float]) -> FeaturesOnly:
        if not self.features_suffice:
            raise Error(
                f"{self.method_name} looks at the image itself, not only at its features: use `step`, or a method that trains "
                "nothing in the image tower, such as zero_shot, tda or dpe."
            )
        return FeaturesOnly.of(features, self.classifier)

    def _given(self) -> ComponentClasses:
        """The classes of what was chosen, which a state file is checked with before it is written."""
        return ComponentClasses(*(part.of for part in self.choice.parts().values()))

    def _tensors(self) -> dict[str, torch.Tensor]:
        """What a state file holds."""
        frozen = {"frozen": torch.tensor(1)} if self._frozen else {}
        guard = {} if self.guard is None else self.guard.tensors()
        return self._memory() | named(adapter=frozen, guard=guard)

    def _memory(self) -> dict[str, torch.Tensor]:
        """What a snapshot holds: all that images have taught."""
        # Each only where it is asked for: states without it are as they were before there was such an option.
        levels = {} if self.levels is None else self.levels.tensors()
        counted = {"updates": torch.tensor(self.updates)} if self.resolved.adapter.reset_every else {}
        return named(
            method=self.state.tensors(),
            score=self.score.tensors(),
            identifier=self.identifier.tensors(),
            levels=levels,
            adapter=counted,
        )

    def _load_tensors(self, tensors: dict[str, torch.Tensor]) -> None:
        """The opposite of `_tensors`."""
        memory = {name: tensor for name, tensor in tensors.items() if not name.startswith("guard/")}
        if self.guard is not None:
            (guard,) = split({name: tensor for name, tensor in tensors.items() if name not in memory}, "guard")
            self.guard.load(guard)
            for snapshot in self.guard.snapshots:  # each is tried: what cannot be gone back to is known now
                self._return_to(snapshot)
            self.state = self.method.start()
        elif len(memory) < len(tensors):
            raise Error("The state holds a guard, which its options do not ask for.")
        self._frozen = "adapter/frozen" in memory and bool(
            stored_count({"frozen": memory.pop("adapter/frozen")}, "frozen", 1)
        )
        self._load_memory(memory)

    def _load_memory(self, tensors: dict[str, torch.Tensor]) -> None:
        """The opposite of `_memory`."""
        groups = ("method", "score", "identifier", "levels", "adapter")
        method, score, identifier, levels, adapter = split(tensors, *groups)
        every = self.resolved.adapter.reset_every
        require_names(adapter, ("updates",) if every else ())
        self.updates = stored_count(adapter, "updates", every - 1) if every else 0
        if self.levels is not None:
            self.levels.load(levels)
        else:
            require_names(levels, ())
        self.state.load(method)
        self.score.load(score)
        self.identifier.load(identifier)


class _OneCaller:
    """A block for one caller at a time; a second one is refused."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            raise InUseError(
                "This adapter is in use by another call: give each thread an adapter of its own on the same backbone, or use "
                "`ostta.StreamPool`."
            )

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def locked(self) -> bool:
        return self._lock.locked()


def _backbone_again(
    path: str | Path, saved: SavedBackbone, given: backbones.BackboneSource | None
) -> backbones.BackboneSource:
    """The backbone that a state was saved on: the one given, or the name of one that ships with ostta."""
    if given is not None:
        return given
    if saved.id in backbones.SHIPPED and saved.restorable:
        return saved.id
    if not saved.restorable:
        raise Error(f"{path} was saved on a backbone that was handed over as an object; pass it as `backbone=`.")
    raise Error(
        f"{path} was saved on the backbone {shown(saved.id, 300)}, which does not ship with ostta: "
        "pass it as `backbone=`, or its name or folder."
    )


def versions() -> dict[str, str]:
    """The libraries whose versions can change a number."""
    return dict(_versions())


@cache
def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in ("ostta", "torch", "numpy", "transformers", "pillow", "onnxruntime"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def unseen_because(seen: Look[Any] | torch.Tensor) -> str | None:
    """Why nothing can be decided from a look, or from unit features: None where it can be."""
    features = seen if isinstance(seen, torch.Tensor) else seen.features
    length = float(torch.linalg.vector_norm(features.detach()))
    if not math.isfinite(length):
        return NOT_FINITE
    return None if length**2 > 0.5 else NO_DIRECTION


def nothing(reason: str | None) -> Prediction:
    """The answer for an image that could not be seen."""
    return Prediction(None, -1, False, math.nan, None, None, None, None, False, None, reason)


def _listed(names: list[str], most: int = 5) -> str:
    shown = ", ".join(repr(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
