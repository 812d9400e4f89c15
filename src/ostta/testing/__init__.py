"""Whether a method, a score, an identifier or a backbone of your own keeps the promises that ostta builds on.

    import ostta
    ostta.testing.check_method(MyMethod)

Each function returns nothing, or raises a `Violation` whose sentence says which promise was broken. The same functions test what
ships with ostta. They need what `pip install 'ostta[all]'` brings, as they use the sample images.
"""

from __future__ import annotations

from .backbones import check_backbone
from .identifiers import check_identifier
from .methods import check_method
from .scores import check_score
from .subject import Violation

__all__ = ["Violation", "check_backbone", "check_identifier", "check_method", "check_score"]
