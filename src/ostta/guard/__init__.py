"""The guard: watches a method without labels, and takes back what harms.

options.py    what can be chosen
shadow.py     the frozen model beside the one that adapts
signals.py    what can be seen without labels, and when it is out of its band
snapshots.py  a small ring of earlier states
guard.py      the ladder: warn, skip, roll back, freeze, thaw
"""

from __future__ import annotations

from .guard import Guard, Rung
from .options import GuardOptions
from .shadow import Judged
from .snapshots import Snapshot, Snapshots

__all__ = ["Guard", "GuardOptions", "Judged", "Rung", "Snapshot", "Snapshots"]
