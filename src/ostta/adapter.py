"""`load`, and the verbs of an adapter: one image in, one prediction out. `step.py` has the stages of a step."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from .core.errors import error_context
from .core.overlay import answering, learning
from .core.text import counted, first_few
from .core.types import Error, Event, Prediction
from .data.class_names import Classes, checked_classes, described, prompts_of
from .data.images import ImageSource
from .field.words import WordSource, word_names
from .lookahead import batch_size, image_of, look_ahead
from .sources import Item
from .state import ComponentClasses, StateCopy, describe_adapter, open_state, write_state


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

    backbone:  a name ("embedded", a hub id, a local folder) or an object: a loaded model, or `backbones.wrap(...)`
               (docs/backbones.md). A named one is loaded onto `device` ("auto", "cpu", "cuda:1", "mps") in `dtype`.
    classes:   names, or prompts by name, which are averaged: {"cat": ["a house cat", "a kitten"], "dog": []}.
    method, score, identifier:  names, as `ostta ls` shows them, or classes of your own (docs/plugins.md).
    profile:   chooses those of the three that are not named. If none is named, the default is `field`, the recommended
               rule (docs/deciding.md); otherwise it is `reference`, the published code.
    options:   options by name (`ostta ls options`), or objects such as `ostta.options.RositaOptions(lr=1e-4)`, which
               set all their fields. Keywords are options too: `accept=0.8` answers "unknown" below that probability.
    guard:     watch the method without labels and undo harmful updates (docs/guard.md); by default with `field` only.
    words:     names of things that are not classes (docs/words.md): a list, a file, "everyday", or embeddings.

    >>> adapter = load("embedded", ["cat", "dog", "ship"])
    >>> adapter.step(image).label, adapter.method_name, adapter.profile
    ('cat', 'zero_shot', 'field')
    """
    model = backbones.as_backbone(backbone, device, dtype)
    named = apply_profile(profile, method, score, identifier)
    components = find_components(named.method, named.score, named.identifier)
    names, descriptions = described(classes)
    if descriptions and "descriptions" in keywords:
        raise Error("`descriptions` is given twice: `classes` has them too.", code="option-conflict")
    if descriptions:
        keywords["descriptions"] = descriptions
    if words is not None:
        keywords["words"] = word_names(words)
    guarded = named.profile == "field" if guard is None else guard
    resolved = resolve(components, named.profile, options, model.defaults, keywords, guarded)
    adapter = Adapter(model, names, components, named.profile, seed, resolved, words_by_name(words))
    if adapter.unfamiliar:
        unknown = first_few(adapter.unfamiliar, "class", "classes", most=5)
        warnings.warn(f"The {model.id} model was not trained on {unknown}: expect wrong answers.", stacklevel=2)
    return adapter


class Adapter:
    """The result of `ostta.load`. Only one thread can use it at a time; adapters can share a backbone.

    In the examples, `adapter` has the method `rosita`, `frozen` has `zero_shot`, and `image` is a photograph of a cat.

    >>> adapter
    Adapter(embedded, 3 classes (cat, dog, ship), method rosita, identifier lda, profile reference, 0 steps)
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
        self.method_name, self.score_name, self.identifier_name = (part.name for part in choice.parts().values())
        prompts = prompts_of(resolved.adapter.descriptions, self.classes)
        pipeline = self.pipeline = build_pipeline(backbone, self.classes, prompts, choice, resolved, words, self.seed)
        self.memory, self.guard, self.method = pipeline.memory, pipeline.guard, pipeline.method
        self.score, self.identifier = self.memory.score, self.memory.identifier
        self.classifier, self.acceptance = pipeline.classifier, pipeline.acceptance
        self.device, self.in_use = self.classifier.device, pipeline.in_use
        # The name of a class with descriptions is not used in a prompt.
        self.unfamiliar = backbone.unfamiliar([name for name in self.classes if name not in prompts])

    def __repr__(self) -> str:
        # The score is shown only if it is not the default of the identifier.
        score = "" if self.score_name == (self.identifier.needs or "max") else f"score {self.score_name}, "
        parts = f"method {self.method_name}, {score}identifier {self.identifier_name}, profile {self.profile}"
        classes, steps = first_few(self.classes, "class", "classes"), counted(self.steps, "step")
        return f"Adapter({self.backbone.id}, {classes}, {parts}, {steps})"

    @property
    def state(self) -> Any:
        """The state of the method."""
        return self.memory.state

    @property
    def steps(self) -> int:
        """Number of images processed so far."""
        return self.memory.steps

    @property
    def features_suffice(self) -> bool:
        """Whether a step needs only the features of an image under the frozen tower, as `step_features` takes them.

        >>> adapter.features_suffice, frozen.features_suffice
        (False, True)
        """
        return self.pipeline.features_suffice

    def step(self, image: ImageSource) -> Prediction:
        """Decide, adapt and answer. Takes a PIL image, a path, bytes, or an HxWx3 uint8 array.

        >>> adapter.step(image)
        Prediction(cat, score 0.45 > 0.00, unreliable)
        """
        return self.pipeline.step(self.pipeline.read(image))

    def step_views(self, views: torch.Tensor) -> Prediction:
        """`step` for preprocessed views [V, 3, H, W]: the canonical view, then random ones for methods that train.

        >>> frozen.step_views(ostta.data.canonical(image, frozen.backbone.preprocessing)[None])
        Prediction(cat, score 0.45 > 0.00, unreliable)
        """
        return self.pipeline.step(self.pipeline.views(views))

    def step_features(self, features: torch.Tensor | Sequence[float]) -> Prediction:
        """`step` for the features [D] of an image, if the method needs nothing else (`features_suffice`).

        >>> texts = torch.tensor([[1.0, 0.0], [0.0, 1.0]])  # one row per class, from any encoder
        >>> ostta.load(ostta.backbones.wrap(None, texts), ["cat", "dog"], "tda").step_features([0.6, 0.8]).label
        'dog'
        """
        return self.pipeline.step(self.pipeline.features_only(features))

    def predict(self, image: ImageSource) -> Prediction:
        """Answer from the present state. Changes nothing.

        >>> adapter.predict(image), adapter.steps
        (Prediction(cat, score 0.45 > 0.00, unreliable), 0)
        """
        return self.pipeline.predict(self.pipeline.read(image))

    def predict_views(self, views: torch.Tensor) -> Prediction:
        """`predict` for preprocessed views [V, 3, H, W].

        >>> frozen.predict_views(ostta.data.canonical(image, frozen.backbone.preprocessing)[None]).label
        'cat'
        """
        return self.pipeline.predict(self.pipeline.views(views))

    def predict_features(self, features: torch.Tensor | Sequence[float]) -> Prediction:
        """`predict` for the features [D] of an image.

        >>> frozen.predict_features(frozen.classifier[2])
        Prediction(ship, score 1.00 > 0.00, unreliable)
        """
        return self.pipeline.predict(self.pipeline.features_only(features))

    def stream(self, images: Iterable[ImageSource | Item], ahead: int | None = None) -> Iterator[Prediction]:
        """`step` over any iterable. An unreadable image gives a prediction with the `reason` and changes nothing.

        Items of a source (`ostta.sources.open`) give predictions with their `name`, `time` and `frame`. If the method
        trains nothing in the image tower, the next `ahead` images are encoded in one batch and decided in order, with
        scores within 1e-5 of those of `step`. The default is 16 for collections and recorded sources, else 1.

        >>> [prediction.label or prediction.reason for prediction in adapter.stream([image, "lost.jpg"])]
        ['cat', "There is no image file 'lost.jpg'."]
        """
        for image in look_ahead(self, images, image_of, batch_size(images, ahead)):
            yield image.answer()

    @property
    def frozen(self) -> bool:
        """Whether it is frozen, by hand or by the guard: it decides, but neither updates nor stores images.

        >>> adapter.frozen
        False
        """
        return self.pipeline.frozen

    def freeze(self) -> Event:
        """Stop learning until `thaw`. The identifier still follows the scores; the guard neither rolls back nor resets.

        >>> adapter.freeze().sentence, adapter.step(image).reason
        ('Frozen by hand.', 'the adapter is frozen')
        """
        with self.in_use():
            return self.pipeline.pause()

    def thaw(self) -> Event:
        """Learn again from the present state, also after a freeze by the guard.

        >>> adapter.freeze().kind, adapter.thaw().kind, adapter.frozen
        ('freeze', 'thaw', False)
        """
        with self.in_use():
            return self.pipeline.thaw()

    def roll_back(self) -> Event:
        """Restore the newest snapshot of the guard; called again, the one before it.

        >>> guarded = ostta.load("embedded", ["cat", "dog", "ship"], "rosita", guard=True, snapshot_every=1)
        >>> guarded.step(image).known, guarded.roll_back().sentence
        (True, 'Rolled back by hand, to the state after step 1.')
        """
        with self.in_use(), learning():
            return self.pipeline.roll_back()

    def reset(self) -> None:
        """Return to the start: no adaptation, empty banks, step 0.

        >>> adapter.step(image).known, adapter.reset(), adapter.steps
        (True, None, 0)
        """
        with self.in_use(), learning():
            self.pipeline.reset()

    def save(self, path: str | Path) -> None:
        """Write everything needed to continue later, atomically.

        >>> adapter.save("camera.ostta")
        >>> ostta.restore("camera.ostta").steps
        0
        """
        write_state(Path(path), self.copy_state())

    def copy_state(self) -> StateCopy:
        """Return what `save` would write now; its `to_bytes` can be called while the adapter continues.

        >>> copied = adapter.copy_state()
        >>> adapter.step(image).known, copied.steps
        (True, 0)
        """
        with self.in_use(), answering():
            return StateCopy.of(self).detached()

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

        Pass a backbone that does not ship with ostta, classes that are not registered, and `words` that were a
        dictionary. A state file causes no download, runs no code, and reads no file that the caller did not name.

        >>> adapter.save("camera.ostta")
        >>> ostta.Adapter.restore("camera.ostta", backbone=adapter.backbone).predict(image).label
        'cat'
        """
        classes, texts = ComponentClasses(method, score, identifier), words_by_name(words)
        tensors, stored, model = open_state(Path(path), backbone, device, dtype, classes)
        with error_context(f"{path} cannot be restored"), learning():
            adapter = cls(model, stored.classes, stored.choice, stored.profile, stored.seed, stored.options, texts)
            adapter.pipeline.load(tensors, stored.step)
        return adapter

    def describe(self) -> dict[str, Any]:
        """Return what identifies this adapter, for state and result files.

        >>> described = adapter.describe()
        >>> described["method"], described["options"]["method"]["lr"], described["option_sources"]["method"]["lr"]
        ('rosita', 0.03, 'backbone')
        """
        return describe_adapter(self)
