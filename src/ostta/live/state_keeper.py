"""An adapter whose state lives in a file: resumed where it was left, saved often enough that little is lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch

from .. import backbones
from ..adapter import Adapter, load
from ..config.registry import ComponentKind, find_component
from ..config.resolve import UserOptions, resolve
from ..core.types import Error
from ..data.class_names import Classes, described
from ..state import stored_hash
from .journal import Examples, Journal, Progress

PARTS: tuple[ComponentKind, ...] = ("method", "score", "identifier")

# A state is saved after so many images, or after so many seconds, whichever comes first;
IMAGES = 100
SECONDS = 60.0
# where saving would take more than this share of the time, the seconds are more.
SHARE = 0.05


class Output(Protocol):
    """Where the rows of a journal go on."""

    name: str

    @property
    def behind(self) -> bool:
        """Whether the journal has rows that were not taken over, as after a crash in the middle of a save."""

    def take(self, journal: Journal) -> Progress:
        """Take over the new rows for good; says how far it has come."""

    def new_examples(self) -> Examples:
        """The example pictures that were chosen since this was last asked."""


class Keeper:
    """Saves the state of `adapter` to `path` on the way, with the journal and the output in agreement; without a path, no state.

    A process that is killed loses what came since the last save: at most `images` images, and of those only the last minute's, or
    twenty times as long as a save takes where that is longer. The first image is saved at once.
    """

    def __init__(
        self,
        adapter: Adapter,
        path: Path | None,
        journal: Journal | None = None,
        output: Output | None = None,
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
        """Save where it is time to; to be called after every image."""
        new = max(self.adapter.steps - self._kept, self._journal.waiting)
        if new >= self._images or self._clock() >= self._due_at:
            self.save()

    def save(self) -> None:
        """Save what has not been saved yet."""
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
            progress, examples, name = self._output.take(self._journal), self._output.new_examples(), self._output.name
        known = stored_hash(self._path) if self._path is not None and self._journal.path is not None else ""
        self._journal.settle(steps, known, name, progress, examples)
        self._settled = True


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a person asks of an adapter; None where nothing was said. The rest is as in `ostta.load`."""

    classes: Classes | None
    backbone: backbones.BackboneSource | None = None
    method: str | type[Any] | None = None
    score: str | type[Any] | None = None
    identifier: str | type[Any] | None = None
    profile: str | None = None
    seed: int | None = None
    guard: bool | None = None
    options: UserOptions = field(default_factory=dict)


def opened(
    wanted: Wanted,
    path: Path | None = None,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
) -> Adapter:
    """The adapter in the state file `path`; a new one where there is no such file, or no path.

    What `wanted` does not name comes from the file; what it does name must be the same there.
    """
    if path is not None and path.exists():
        return _resumed(wanted, path, device, dtype)
    if wanted.classes is None:
        place = "" if path is None else f" There is no state file {path} to take them from."
        raise Error(
            f"The classes must be named: --classes a,b,c, or a file with one a line.{place}", code="classes-missing"
        )
    fresh = load(
        "embedded" if wanted.backbone is None else wanted.backbone,
        wanted.classes,
        method=wanted.method,
        score=wanted.score,
        identifier=wanted.identifier,
        profile=wanted.profile,
        seed=0 if wanted.seed is None else wanted.seed,
        device=device,
        dtype=dtype,
        options=wanted.options,
        # Nobody looks at these answers one by one.
        guard=wanted.guard is not False,
    )
    if path is not None:
        # Where it cannot be written, that is known now and not after the last image.
        fresh.save(path)
    return fresh


def _resumed(wanted: Wanted, path: Path, device: str | torch.device | None, dtype: str | torch.dtype | None) -> Adapter:
    method, score, identifier = (
        None if named is None else find_component(kind, named)
        for kind, named in zip(PARTS, (wanted.method, wanted.score, wanted.identifier), strict=True)
    )
    kept = Adapter.restore(
        path,
        wanted.backbone,
        device,
        dtype,
        method=None if method is None else method.given,
        score=None if score is None else score.given,
        identifier=None if identifier is None else identifier.given,
    )
    names, descriptions = (None, ()) if wanted.classes is None else described(wanted.classes)
    for name, old, new in (
        ("classes", kept.classes, names),
        ("descriptions", kept.resolved.adapter.descriptions, descriptions or None),
        ("method", kept.method_name, None if method is None else method.name),
        ("score", kept.score_name, None if score is None else score.name),
        ("identifier", kept.identifier_name, None if identifier is None else identifier.name),
        ("profile", kept.profile, wanted.profile),
        ("seed", kept.seed, wanted.seed),
        ("guard", *(_on_off(on) for on in (kept.resolved.guard is not None, wanted.guard))),
        *_options(kept, wanted.options),
    ):
        if new is not None and old != new:
            raise Error(
                f"{path} was made with other {name} ({_short(old)}, now {_short(new)}); give the same, or another state file.",
                code="state-mismatch",
            )
    return kept


def _options(kept: Adapter, given: UserOptions) -> Iterator[tuple[str, str, str]]:
    """Every option that was given, with its value in the state and the one that was given."""
    asked = resolve(kept.choice, kept.profile, given, kept.backbone.defaults, guard=kept.resolved.guard is not None)
    for owner, names in asked.sources.items():
        for name, source in names.items():
            if source == "explicit":
                old, new = kept.resolved.values()[owner][name], asked.values()[owner][name]
                yield "options", f"{name} {old!r}", f"{name} {new!r}"


def _on_off(value: bool | None) -> str | None:
    return None if value is None else "on" if value else "off"


def _short(value: object) -> str:
    return str(list(value) if isinstance(value, tuple) else value)[:60]
