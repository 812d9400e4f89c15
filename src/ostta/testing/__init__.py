"""Checks that a custom method, score, identifier or backbone meets the requirements of ostta.

    import ostta
    ostta.testing.check_method(MyMethod)

Each function returns None, or raises a `Violation` that names the requirement that is not met. The same functions test
the built-in components. They use the sample images and need the packages of `pip install 'ostta[all]'`.
"""

from __future__ import annotations

from .backbones import check_backbone
from .identifiers import check_identifier
from .methods import check_method
from .scores import check_score
from .subject import Violation

__all__ = ["Violation", "check_backbone", "check_identifier", "check_method", "check_score"]
