"""The guard watches the predictions of a method without labels and undoes harmful updates.

options.py  options
shadow.py   decisions of the frozen model, for comparison
signals.py  label-free signals and their bands
guard.py    the escalation: warn, skip, roll back, freeze, thaw
"""

from __future__ import annotations

from .guard import Guard, Rung, Snapshot
from .options import GuardOptions

__all__ = ["Guard", "GuardOptions", "Rung", "Snapshot"]
