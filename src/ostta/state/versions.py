"""Versions of the libraries that can affect results."""

from __future__ import annotations

import platform
from functools import cache
from importlib import metadata


def versions() -> dict[str, str]:
    """Return the versions of Python and of the installed libraries."""
    return dict(_versions())


@cache
def _versions() -> dict[str, str]:
    installed = {"python": platform.python_version()}
    for name in ("ostta", "torch", "numpy", "transformers", "pillow", "onnxruntime"):
        try:
            installed[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return installed
