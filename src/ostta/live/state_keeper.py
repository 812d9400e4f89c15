"""An adapter with a state file that is saved regularly and resumed at the next start."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from .. import backbones
from ..adapter import Adapter, load
from ..config.registry import ComponentKind, find_component
from ..config.resolve import Resolved, UserOptions, resolve
from ..core.errors import error_context
from ..core.overlay import learning
from ..core.types import Error
from ..data.class_names import Classes, described
from ..state import ComponentClasses, open_state, stored_hash
from .journal import Examples, Journal, Progress
from .outputs import OutputFolder

# A state is saved after this number of images or seconds, whichever comes first.
IMAGES = 100
SECONDS = 60.0
# Maximum share of time spent on saving. The interval in seconds is increased if necessary.
SHARE = 0.05


class Keeper:
    """Saves the state of `adapter` to `path`, consistent with the journal and the output.

    Without a path, no state is saved. A process that is killed loses the images since the last save: at most `images`
    images, and at most those of the last minute or of twenty times the duration of a save, if that is longer. The first
    image is saved immediately.
    """

    def __init__(
        self,
        adapter: Adapter,
        path: Path | None,
        journal: Journal | None = None,
        output: OutputFolder | None = None,
        *,
        images: int = IMAGES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.adapter, self._path, self._output = adapter, path, output
        self._journal = Journal.temporary() if journal is None else journal
        self._images, self._clock = images, clock
        self._kept = adapter.steps
        self._settled = output is None or not output.behind
        self._due_at = clock()

    def stepped(self) -> None:
        """Save if a save is due. Call this after every image."""
        new = max(self.adapter.steps - self._kept, self._journal.waiting)
        if new >= self._images or self._clock() >= self._due_at:
            self.save()

    def save(self) -> None:
        """Save everything that is not saved yet."""
        steps = self.adapter.steps
        if steps == self._kept and not self._journal.waiting and self._settled:
            return
        began = self._clock()
        self._settled = False
        self._journal.write(steps)
        if self._path is not None and steps != self._kept:
            self.adapter.save(self._path)
        self._kept = steps
        self._settle(steps)
        ended = self._clock()
        self._due_at = ended + max(SECONDS, (ended - began) / SHARE)

    def _settle(self, steps: int) -> None:
        name, progress, examples = None, Progress(), Examples()
        if self._output is not None:
            name, progress, examples = self._output.name, self._output.write_rows(), self._output.new_examples()
        state_hash = stored_hash(self._path) if self._path is not None and self._journal.path is not None else ""
        self._journal.settle(steps, state_hash, name, progress, examples)
        self._settled = True


@dataclass(frozen=True, kw_only=True)
class AdapterSettings:
    """Arguments of `ostta.load` for a new adapter, or to compare with a stored adapter. Unset values are None."""

    classes: Classes | None
    backbone: backbones.BackboneSource | None = None
    method: str | type[Any] | None = None
    score: str | type[Any] | None = None
    identifier: str | type[Any] | None = None
    profile: str | None = None
    seed: int | None = None
    guard: bool | None = None
    options: UserOptions = field(default_factory=dict)


def open_adapter(
    settings: AdapterSettings,
    path: Path | None = None,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
) -> Adapter:
    """Return the adapter in the state file `path`, or a new one if there is no file or no path.

    Values that are None in `settings` are taken from the file. The others must be the same as in the file.
    """
    if path is not None and path.exists():
        return _resumed(settings, path, device, dtype)
    if settings.classes is None:
        place = "" if path is None else f" There is no state file {path} to take them from."
        raise Error(
            f"There are no classes: give --classes a,b,c or a file of names.{place}",
            code="classes-missing",
        )
    fresh = load(
        "embedded" if settings.backbone is None else settings.backbone,
        settings.classes,
        method=settings.method,
        score=settings.score,
        identifier=settings.identifier,
        profile=settings.profile,
        seed=0 if settings.seed is None else settings.seed,
        device=device,
        dtype=dtype,
        options=settings.options,
        # On by default, because the answers of a stream are usually not reviewed.
        guard=settings.guard is not False,
    )
    if path is not None:
        # Save now, so that an unwritable path is reported before the first image.
        fresh.save(path)
    return fresh


def _resumed(
    settings: AdapterSettings, path: Path, device: str | torch.device | None, dtype: str | torch.dtype | None
) -> Adapter:
    given: dict[ComponentKind, str | type[Any] | None] = {
        "method": settings.method, "score": settings.score, "identifier": settings.identifier,
    }  # fmt: skip
    parts = {kind: find_component(kind, part) for kind, part in given.items() if part is not None}
    unregistered: dict[str, Any] = {kind: part.given for kind, part in parts.items()}
    tensors, stored, model = open_state(path, settings.backbone, device, dtype, ComponentClasses(**unregistered))
    requested = resolve(
        stored.choice, stored.profile, settings.options, model.defaults, guard=stored.options.guard is not None
    )
    with error_context(f"{path} cannot be restored"), learning():
        options = _with_requested_accept(stored.options, requested)
        kept = Adapter(model, stored.classes, stored.choice, stored.profile, stored.seed, options)
        kept.pipeline.load(tensors, stored.step)
    names, descriptions = (None, ()) if settings.classes is None else described(settings.classes)
    for name, old, new in (
        ("classes", kept.classes, names),
        ("descriptions", kept.resolved.adapter.descriptions, descriptions or None),
        *((kind, part.name, parts[kind].name if kind in parts else None) for kind, part in kept.choice.parts().items()),
        ("profile", kept.profile, settings.profile),
        ("seed", kept.seed, settings.seed),
        ("guard", *(_on_off(on) for on in (kept.resolved.guard is not None, settings.guard))),
        *_options(kept.resolved, requested),
    ):
        if new is not None and old != new:
            raise Error(
                f"{path} was made with other {name} ({_short(old)}, now {_short(new)}); give the same, or another "
                "state file.",
                code="state-mismatch",
            )
    return kept


def _with_requested_accept(stored: Resolved, requested: Resolved) -> Resolved:
    """Return the stored options with a requested `accept`, which may change because the state does not depend on it."""
    if requested.sources["adapter"]["accept"] != "explicit":
        return stored
    sources = {**stored.sources, "adapter": {**stored.sources["adapter"], "accept": "explicit"}}
    return replace(stored, adapter=replace(stored.adapter, accept=requested.adapter.accept), sources=sources)


def _options(stored: Resolved, requested: Resolved) -> Iterator[tuple[str, str, str]]:
    """Yield each option set by the user, with its stored value and the requested value."""
    for owner, names in requested.sources.items():
        for name, source in names.items():
            if source == "explicit":
                old, new = stored.values()[owner][name], requested.values()[owner][name]
                yield "options", f"{name} {old!r}", f"{name} {new!r}"


def _on_off(value: bool | None) -> str | None:
    return None if value is None else "on" if value else "off"


def _short(value: object) -> str:
    return str(list(value) if isinstance(value, tuple) else value)[:60]
