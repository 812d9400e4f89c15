"""The versions of the libraries that can change a number."""

from __future__ import annotations

import platform
from functools import cache
from importlib import metadata


def versions() -> dict[str, str]:
    """Return the versions of Python and of the installed libraries."""
    return dict(_versions())


@cache
def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in ("ostta", "torch", "numpy", "transformers", "pillow", "onnxruntime"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
