"""`load` and the verbs of an adapter: one image in, one prediction out."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from . import backbones
from .assembly import build_pipeline
from .backbones.protocol import Backbone
from .backbones.wrapped import Numbers, Texts, words_by_name
from .config.profiles import apply_profile
from .config.registry import Components, find_components
from .config.resolve import Resolved, UserOptions, resolve
from .core.checks import checked_seed
from .core.modes import answering, learning
from .core.one_caller import OneCaller
from .core.types import Error, Event, ImageError, Prediction, ViewSource
from .core.words import counted, first_few
from .data.class_names import Classes, checked_classes, described, prompts_of
from .data.images import ImageFeatures, ImageSource, read_image
from .data.views import FeaturesOnly, Views
from .field.words import WordSource, word_names
from .guard import Guard
from .identifiers import Identifier
from .lookahead import batch_size, image_of, look_ahead
from .memory import Memory
from .methods import Method
from .scores import Score
from .sources import Item
from .state import ComponentClasses, StateCopy, not_restorable, open_state, versions, write_state
from .step import unseen_prediction

__all__ = ["Adapter", "load", "versions"]


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
    """Return a classifier over `classes` that adapts to the stream of images it sees.

    classes:   names, or a dictionary from names to descriptions, which are prompts and are averaged: {"cat": ["a photo of a house
               cat", "a kitten"], "dog": []}. A class without descriptions is prompted by its name, in the `templates`.
    backbone:  "embedded", a hub id, a local folder, the result of `ostta.backbones.wrap`, a class or function that makes a
               backbone, or a loaded model: (model, processor) of transformers or (model, tokenizer, transform) of open_clip. A
               named one is loaded onto `device`, "auto" (a GPU if there is one; the default), "cpu", "cuda", "cuda:1" or "mps",
               in `dtype`, "float32", "bfloat16" or "float16". A given one stays where it is.
    method, score, identifier:  names, as `ostta ls` shows them, or classes of your own (docs/plugins.md).
    profile:   chooses those of the three that are not named. The default is `field`, the recommended rule (docs/deciding.md), if
               none of them is named, else `reference`, the published code.
    options:   options of method, score, identifier and adapter (`ostta ls options`), by name or as objects, of which all fields
               count as given: `options=ostta.options.RositaOptions(lr=1e-4)`. Keywords are options too. `accept=0.8` answers
               "unknown" below that probability, `accept={"person": 0.9}` for one class.
    guard:     watch the method without labels and undo updates that do harm (docs/guard.md). The default is on in the profile
               `field` only.
    words:     names of things that are not classes, which the score `field` compares images with (docs/words.md): a list, a text
               file with one name per line, "everyday" for the list that ships, or a dictionary from names to text embeddings. A
               backbone that can encode none of them works without words.

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
        raise Error("`descriptions` is given twice: `classes` has them too.", code="option-conflict")
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


class Adapter:
    """The result of `ostta.load`. One thread at a time: a second caller is refused. Adapters may share a backbone.

    In the examples, `adapter` is a new one, and `image` is a photograph of a cat.

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
        self.classes, self.backbone, self.choice = checked_classes(classes), backbone, choice
        self.profile, self.seed, self.resolved = profile, checked_seed(seed), resolved
        prompts = prompts_of(resolved.adapter.descriptions, self.classes)
        self.pipeline = build_pipeline(backbone, self.classes, prompts, choice, resolved, words)
        self.memory: Memory = self.pipeline.memory
        self.method: Method = self.pipeline.method
        self.classifier, self.acceptance = self.pipeline.classifier, self.pipeline.acceptance
        self.guard: Guard | None = self.pipeline.guard
        self._in_use = OneCaller()
        # A class with descriptions need not be known by its name.
        self.unfamiliar = backbone.unfamiliar([name for name in self.classes if name not in prompts])

    def __repr__(self) -> str:
        # The score is shown only if it is not the default of the identifier.
        score = "" if self.score_name == (self.identifier.needs or "max") else f"score {self.score_name}, "
        return (
            f"Adapter({self.backbone.id}, {first_few(self.classes, 'class', 'classes')}, method {self.method_name}, "
            f"{score}identifier {self.identifier_name}, profile {self.profile}, {counted(self.steps, 'step')})"
        )

    @property
    def method_name(self) -> str:
        """The registered name of the method; `package.module:Name` or `file.py:Name` if it has none."""
        return self.choice.method.name

    @property
    def score_name(self) -> str:
        """The name of the score, as `method_name`."""
        return self.choice.score.name

    @property
    def identifier_name(self) -> str:
        """The name of the identifier, as `method_name`."""
        return self.choice.identifier.name

    @property
    def device(self) -> torch.device:
        """The device of the classifier, the banks and the trained values."""
        return self.classifier.device

    @property
    def state(self) -> Any:
        """The state of the method."""
        return self.memory.state

    @property
    def score(self) -> Score:
        return self.memory.score

    @property
    def identifier(self) -> Identifier:
        return self.memory.identifier

    @identifier.setter
    def identifier(self, identifier: Identifier) -> None:
        self.memory.identifier = identifier

    @property
    def steps(self) -> int:
        """Images processed so far."""
        return self.memory.steps

    @property
    def features_suffice(self) -> bool:
        """Whether a step needs only the features of an image under the frozen tower, as `step_features` takes them.

        >>> adapter.features_suffice, ostta.load(adapter.backbone, adapter.classes, "zero_shot").features_suffice
        (False, True)
        """
        return self.method.views == 1 and self.method.overlay(self.state) is None

    # --- one image ----------------------------------------------------------------------------------------------------
    def step(self, image: ImageSource) -> Prediction:
        """Decide, adapt and answer. Takes a PIL image, a path, bytes, or an HxWx3 uint8 array.

        >>> adapter.step(image)
        Prediction(cat, score 0.45 > 0.00, unreliable)
        """
        return self._step(self._views_or_features(image))

    def step_views(self, views: torch.Tensor) -> Prediction:
        """`step` for a preprocessed float tensor [V, 3, H, W]; view 0 is the canonical one.

        >>> from ostta.data import canonical
        >>> views = canonical(image, adapter.backbone.preprocessing)[None]  # followed by random views for methods that train
        >>> ostta.load(adapter.backbone, adapter.classes, "zero_shot").step_views(views)
        Prediction(cat, score 0.45 > 0.00, unreliable)
        """
        return self._step(self.views_of(views))

    def step_features(self, features: torch.Tensor | Sequence[float]) -> Prediction:
        """`step` for the features [D] of an image, for methods that need nothing else of it: zero_shot, tda, dpe, oga, onzeta.

        >>> texts = torch.tensor([[1.0, 0.0], [0.0, 1.0]])  # one row per class, from any encoder
        >>> ostta.load(ostta.backbones.wrap(None, texts), ["cat", "dog"], "tda").step_features([0.6, 0.8]).label
        'dog'
        """
        return self._step(self._features_only(features))

    def predict(self, image: ImageSource) -> Prediction:
        """Return the answer of the present state. Changes nothing.

        >>> adapter.predict(image)
        Prediction(cat, score 0.45 > 0.00, unreliable)
        >>> adapter.steps
        0
        """
        return self._predict(self._views_or_features(image))

    def predict_views(self, views: torch.Tensor) -> Prediction:
        """`predict` for a preprocessed float tensor [V, 3, H, W].

        >>> from ostta.data import canonical
        >>> frozen = ostta.load(adapter.backbone, adapter.classes, "zero_shot")
        >>> frozen.predict_views(canonical(image, frozen.backbone.preprocessing)[None]).label
        'cat'
        """
        return self._predict(self.views_of(views))

    def predict_features(self, features: torch.Tensor | Sequence[float]) -> Prediction:
        """`predict` for the features [D] of an image.

        >>> frozen = ostta.load(adapter.backbone, adapter.classes, "zero_shot")
        >>> frozen.predict_features(frozen.classifier[2])
        Prediction(ship, score 1.00 > 0.00, unreliable)
        """
        return self._predict(self._features_only(features))

    def stream(self, images: Iterable[ImageSource | Item], ahead: int | None = None) -> Iterator[Prediction]:
        """`step` over any iterable. An image that cannot be read gives a prediction with the `reason` and changes nothing.

        Other problems are raised, such as an `ostta.InUseError` while another thread uses the adapter. The items of a source,
        `ostta.sources.open(...)`, give predictions with their `name`, `time` and `frame`.

        If the method trains nothing in the image tower, the next `ahead` images are encoded in one batch. They are still decided in
        order, and scores stay within 1e-5 of those of `step`. The default is 16 for collections with a length and for recorded
        sources, and 1, which is no look-ahead, for other iterators, because they may read from a camera. Live sources and methods
        that train the image tower ignore `ahead`.

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
                prediction = unseen_prediction(str(problem))
            yield prediction if item is None else replace(prediction, name=item.name, time=item.time, frame=item.frame)

    def _step(self, views: ViewSource, seconds: float = 0.0) -> Prediction:
        with self.in_use(), learning():
            turn = self.pipeline.look(views, seconds)
            self.pipeline.decide(turn)
            self.pipeline.propose(turn)
            self.pipeline.train(turn)
            return self.pipeline.conclude(turn)

    def _predict(self, views: ViewSource) -> Prediction:
        with self.in_use(), answering():
            turn = self.pipeline.look(views, keep=False)
            self.pipeline.decide(turn)
            return self.pipeline.predict(turn)

    # --- learning or not ----------------------------------------------------------------------------------------------
    @property
    def frozen(self) -> bool:
        """Whether it learns nothing at present, paused by hand or by the guard: it decides, but neither updates nor stores images.

        >>> adapter.frozen
        False
        """
        return self.pipeline.paused or (self.guard is not None and self.guard.resting)

    def freeze(self) -> Event:
        """Pause learning until `thaw`. The identifier goes on, because a threshold must follow the scores.

        The guard does not act while the adapter is paused by hand: it neither rolls back nor resets the state.

        >>> adapter.freeze()
        Event(kind='freeze', sentence='Frozen by hand.', evidence=mappingproxy({}))
        >>> adapter.step(image).reason
        'the adapter is frozen'
        """
        with self.in_use():
            self.pipeline.paused = True
            return Event("freeze", "Frozen by hand.")

    def thaw(self) -> Event:
        """Learn again from the present state, also after a freeze by the guard.

        >>> _ = adapter.freeze()
        >>> adapter.thaw().kind, adapter.frozen
        ('thaw', False)
        """
        with self.in_use():
            self.pipeline.paused = False
            if self.guard is not None:
                self.guard.thaw()
            return Event("thaw", "Thawed by hand.")

    def roll_back(self) -> Event:
        """Restore the newest snapshot of the guard; called again, the one before it.

        >>> try:
        ...     adapter.roll_back()
        ... except ostta.Error as problem:
        ...     print(problem)
        There is no earlier state to go back to: only a guard keeps some, and this adapter was loaded without `guard=True`.
        """
        with self.in_use(), learning():
            if self.guard is None:
                raise Error(
                    "There is no earlier state to go back to: only a guard keeps some, and this adapter was loaded without "
                    "`guard=True`.",
                    code="snapshot-missing",
                )
            return self.guard.roll_back(self.memory)

    # --- the whole state ----------------------------------------------------------------------------------------------
    def reset(self) -> None:
        """Return to the start: no adaptation, empty banks, step 0.

        >>> _ = adapter.step(image)
        >>> adapter.reset()
        >>> adapter.steps
        0
        """
        with self.in_use(), learning():
            self.memory.reset()
            self.pipeline.paused = False
            if self.guard is not None:
                self.guard.reset()

    def save(self, path: str | Path) -> None:
        """Write everything needed to continue later, atomically.

        >>> _ = adapter.step(image)
        >>> adapter.save("camera.ostta")
        >>> ostta.Adapter.restore("camera.ostta").steps
        1
        """
        with self.in_use(), answering():
            write_state(Path(path), self._state_file())

    def copy_state(self) -> StateCopy:
        """Return what `save` would write now; its `to_bytes` can be called while the adapter continues.

        >>> copied = adapter.copy_state()
        >>> _ = adapter.step(image)
        >>> _ = open("camera.ostta", "wb").write(copied.to_bytes())
        >>> ostta.Adapter.restore("camera.ostta").steps
        0
        """
        with self.in_use(), answering():
            return self._state_file().detached()

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
        """Return the adapter that `save` wrote, on any device.

        A backbone that does not ship with ostta must be given again, or named; a method, a score or an identifier that is not
        registered must be given as a class, and `words` that were a dictionary again. Nothing in a state file causes a download, runs
        code, or reads a place that the caller did not name.

        >>> adapter.save("camera.ostta")
        >>> again = ostta.Adapter.restore("camera.ostta", backbone=adapter.backbone)  # "embedded" need not be given
        >>> again.predict(image).score == adapter.predict(image).score
        True
        """
        given = ComponentClasses(method, score, identifier)
        tensors, stored, model = open_state(Path(path), backbone, device, dtype, given)
        texts = words_by_name(words)
        try:
            adapter = cls(model, stored.classes, stored.choice, stored.profile, stored.seed, stored.options, texts)
            with learning():
                adapter.pipeline.load(tensors)
        except Error as problem:
            raise not_restorable(Path(path), problem) from None
        adapter.memory.steps = stored.step
        return adapter

    def describe(self) -> dict[str, Any]:
        """Return what identifies this adapter, for state and result files.

        >>> described = adapter.describe()
        >>> described["method"], described["options"]["method"]["lr"], described["option_sources"]["method"]["lr"]
        ('rosita', 0.03, 'backbone')
        """
        backbone = self.backbone
        return {
            "backbone": {
                "id": backbone.id,
                "weight_hash": backbone.weight_hash,
                "restorable": backbone.restorable,
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

    def _state_file(self) -> StateCopy:
        self.pipeline.try_last_step()
        given = ComponentClasses(*(part.of for part in self.choice.parts().values()))
        return StateCopy(self.pipeline.tensors(), self.describe(), given)

    # --- for the stream pool and look-ahead -----------------------------------------------------------------------------
    def in_use(self) -> AbstractContextManager[None]:
        """Return a block in which every other call of the adapter is refused."""
        return self._in_use

    def views_of(self, image: ImageSource | torch.Tensor) -> Views:
        """Return the views of the next image, from what `step` or `step_views` takes."""
        preprocessing = self.backbone.preprocessing
        if isinstance(image, torch.Tensor):
            views = Views.of_tensor(image, preprocessing, self.device)
            views.require(self.method.views)
            return views
        picture = read_image(image, self.resolved.adapter.max_megapixels)
        return Views.of_image(picture, preprocessing, self.seed, self.steps, self.device)

    def step_encoded(self, canonical: torch.Tensor, features: torch.Tensor, seconds: float) -> Prediction:
        """`step` for a canonical view [1, 3, H, W] and its features under the frozen tower, which took `seconds` to compute."""
        views = self.views_of(canonical)
        views.features = features
        return self._step(views, seconds)

    def _views_or_features(self, image: ImageSource) -> ViewSource:
        if isinstance(image, ImageFeatures):
            return self._features_only(torch.from_numpy(image.values))
        return self.views_of(image)

    def _features_only(self, features: torch.Tensor | Sequence[float]) -> FeaturesOnly:
        if not self.features_suffice:
            raise Error(
                f"{self.method_name} looks at the image itself, not only at its features: use `step`, or a method that trains "
                "nothing in the image tower, such as zero_shot, tda or dpe.",
                code="image-needed",
            )
        return FeaturesOnly.of(features, self.classifier)


def _listed(names: list[str], most: int = 5) -> str:
    shown = ", ".join(repr(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
