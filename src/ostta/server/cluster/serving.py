"""From settings to a server with a cluster behind it: the same web application, over another engine."""

from __future__ import annotations

from pathlib import Path

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
    folder: Path,
    device: str | None = None,
    dtype: str | None = None,
    replicas: int = 2,
    threads: int = 1,
    sessions: int = 256,
    term: float = 10.0,
) -> None:
    """Serve until SIGTERM or Ctrl-C. This process authenticates, checks and routes; replicas on Ray hold the sessions."""
    require_ray()
    require_free_port(host, port)
    made = Replicated(backbone, folder.absolute(), settings, device, dtype, threads, term)
    engine = RayEngine(made, replicas=replicas, sessions=sessions)
    listen(create_app(engine, settings, tokens), settings, host=host, port=port)
