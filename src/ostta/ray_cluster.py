"""Ray, where it is installed, and the cluster that it works on."""

from __future__ import annotations

import os
from typing import Any

from .core.types import Error

ADDRESS = "RAY_ADDRESS"
# What passes through it is small; Ray's own choice would be a third of the machine's memory.
_STORE_BYTES = 256_000_000


def require_ray() -> Any:
    """The module, or one sentence about how to get it."""
    try:
        # Ray would send statistics of its use.
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        import ray
    except ModuleNotFoundError:
        raise Error("The engine ray needs Ray, which is not installed: pip install 'ostta[ray]'.") from None
    return ray


def connect(ray: Any, cpus: int) -> None:
    """Join the cluster at RAY_ADDRESS, or start one on this machine that may use `cpus` cores."""
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        if os.environ.get(ADDRESS):
            ray.init(**quiet)
        else:
            ray.init("local", num_cpus=cpus, include_dashboard=False, object_store_memory=_STORE_BYTES, **quiet)
    except (ConnectionError, RuntimeError, ValueError) as problem:
        raise Error(f"Ray cannot be started or reached ({problem}).") from None
