"""Start a server with replicas on Ray behind it."""

from __future__ import annotations

from pathlib import Path

from ...core.types import Error
from ...ray_cluster import require_ray
from ..app import create_app
from ..security import Tokens
from ..serving import listen, require_free_port
from ..settings import Settings
from .engine import RayEngine
from .replica import Replicated


def serve_on_ray(
    backbone: str,
    settings: Settings,
    tokens: Tokens,
    *,
    host: str,
    port: int,
    folder: Path | None,
    store: str | None = None,
    device: str | None = None,
    dtype: str | None = None,
    replicas: int = 2,
    threads: int = 1,
    sessions: int = 256,
    lease_seconds: float = 10.0,
) -> None:
    """Serve until SIGTERM or Ctrl-C. This process authenticates, checks and routes; replicas on Ray have the sessions."""
    if store is None and folder is None:
        raise Error(
            "The engine ray needs a store through which sessions move: give --store postgresql://..., or --state-dir on one machine.",
            code="store-missing",
        )
    require_ray()
    require_free_port(host, port)
    place = store or (folder or Path()).absolute()
    made = Replicated(backbone, place, settings, device, dtype, threads, lease_seconds)
    engine = RayEngine(made, replicas=replicas, sessions=sessions, folder=folder)
    listen(create_app(engine, settings, tokens), settings, host=host, port=port)
