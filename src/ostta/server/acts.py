"""What a person can do with a session's adapter, by the verb of the address."""

from __future__ import annotations

from collections.abc import Callable

from ..adapter import Adapter
from ..core.types import Event


def reset(adapter: Adapter) -> Event:
    """Back to the start."""
    adapter.reset()
    return Event("reset", "Reset by hand.")


ACTS: dict[str, Callable[[Adapter], Event]] = {
    "freeze": lambda adapter: adapter.freeze(),
    "thaw": lambda adapter: adapter.thaw(),
    "roll-back": lambda adapter: adapter.roll_back(),
    "reset": reset,
}
