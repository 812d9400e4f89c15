"""An adapter whose state lives in a file: resumed where it was left, saved often enough that little is lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from ..adapter import Adapter
from ..core.types import Error

# A state is saved after so many images, or after so many seconds, whichever comes first,
IMAGES = 200
SECONDS = 1.0
# but saving takes no more than this share of the time.
SHARE = 0.05


class Keeper:
    """Saves the state of `adapter` to `path` on the way; without a path, never.

    A process that is killed loses what came since the last save: at most 200 images, and of those only the last second's, or
    twenty times as long as a save takes where that is longer. The first image is saved at once.
    """

    def __init__(self, adapter: Adapter, path: Path | None, clock: Callable[[], float] = time.monotonic) -> None:
        self.adapter, self._path, self._clock = adapter, path, clock
        self._kept = adapter.steps
        self._due_at = clock()

    def stepped(self) -> None:
        """Save where it is time to; to be called after every image."""
        if self.adapter.steps - self._kept >= IMAGES or self._clock() >= self._due_at:
            self.save()

    def save(self) -> None:
        """Save what has not been saved yet."""
        if self._path is None or self.adapter.steps == self._kept:
            return
        began = self._clock()
        self.adapter.save(self._path)
        self._kept = self.adapter.steps
        ended = self._clock()
        self._due_at = ended + max(SECONDS, (ended - began) / SHARE)


def resumed(fresh: Adapter, path: Path | None) -> Adapter:
    """The adapter in the state file `path`; `fresh` where there is no such file or no path.

    Classes, method, score, identifier, options and seed in the file must be those of `fresh`.
    """
    if path is None:
        return fresh
    if not path.exists():
        # Where it cannot be written, that is known now and not after the last image.
        fresh.save(path)
        return fresh
    method, score, identifier = (part.given for part in fresh.choice.parts().values())
    kept = Adapter.restore(path, fresh.backbone, method=method, score=score, identifier=identifier)
    for name, old, new in (
        ("classes", list(kept.classes), list(fresh.classes)),
        ("method", kept.method_name, fresh.method_name),
        ("score", kept.score_name, fresh.score_name),
        ("identifier", kept.identifier_name, fresh.identifier_name),
        *(("options", options, fresh.resolved.values()[owner]) for owner, options in kept.resolved.values().items()),
        ("seed", kept.seed, fresh.seed),
    ):
        if old != new:
            raise Error(
                f"{path} was made with other {name} ({_short(old, new)}); give the same, or another state file."
            )
    return kept


def _short(old: object, new: object) -> str:
    if isinstance(old, dict) and isinstance(new, dict):
        name = next(key for key in old if old[key] != new.get(key))
        return f"{name} {old[name]!r}, now {new.get(name)!r}"
    first, second = str(old), str(new)
    return f"{first[:60]}, now {second[:60]}"
