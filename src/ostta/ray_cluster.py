"""Import Ray and connect to a Ray cluster."""

from __future__ import annotations

import os
from typing import Any

from .core.errors import import_extra, translate_errors

ADDRESS = "RAY_ADDRESS"
# Only small objects are stored; Ray's default would be a third of the memory of the machine.
_STORE_BYTES = 256_000_000


def require_ray() -> Any:
    """Return the module `ray`, with its usage statistics disabled."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    return import_extra("ray", "The engine ray", "ray")


def connect(ray: Any, cpus: int) -> None:
    """Join the cluster at RAY_ADDRESS, or start one on this machine that uses at most `cpus` cores."""
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if not os.environ.get(ADDRESS):
        options |= {"num_cpus": cpus, "include_dashboard": False, "object_store_memory": _STORE_BYTES}
    message = "Ray cannot be started or reached ({reason})."
    with translate_errors("ray-unavailable", message, ConnectionError, RuntimeError, ValueError):
        ray.init(None if os.environ.get(ADDRESS) else "local", **options)
