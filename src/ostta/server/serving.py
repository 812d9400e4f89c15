"""Start a server from its settings, in one process or with replicas on Ray."""

from __future__ import annotations

import errno
import socket
import warnings
from contextlib import closing, nullcontext, suppress
from pathlib import Path
from typing import Any

import torch
import uvicorn
from starlette.types import ASGIApp

from ..core.text import counted
from ..core.types import Error
from ..live.pool import StreamPool
from ..ray_cluster import require_ray
from .app import create_app
from .local import LocalEngine
from .logs import log
from .protocol import limited
from .security import Tokens, hosts_of, is_loopback, proxies_of, read_tokens
from .sessions.store import SessionStore
from .settings import Settings

__all__ = [
    "config", "hosts_of", "listen", "proxies_of", "require_free_port", "serve_locally", "serve_on_ray", "tokens_for",
]  # fmt: skip
# Seconds to wait for requests in progress at the end.
SHUTDOWN_SECONDS = 10


def tokens_for(host: str, token_file: Path | None) -> Tokens:
    """Return the tokens of the file. Without a file, only loopback addresses are allowed."""
    if token_file is not None:
        return read_tokens(token_file)
    if not is_loopback(host):
        raise Error(
            f"A server at {host} can be reached from other machines: give it a --token-file, or listen at 127.0.0.1.",
            code="token-file-missing",
        )
    return Tokens()


def require_free_port(host: str, port: int) -> None:
    """Refuse an address that cannot be used, before the model is loaded."""
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in addresses:
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind(address)
    except OSError as problem:
        if problem.errno == errno.EADDRINUSE:
            raise Error(
                f"Port {port} at {host} is in use by another program: stop that program, or choose another port with "
                "--port (0 takes a free one).",
                code="address-in-use",
            ) from None
        raise Error(
            f"The server cannot listen at {host}, port {port} ({problem.strerror}): choose others with --host and "
            "--port.",
            code="address-unusable",
        ) from None


def serve_locally(
    backbone: Any,
    settings: Settings,
    tokens: Tokens,
    *,
    host: str,
    port: int,
    folder: Path | None = None,
    store: str | None = None,
    device: str | None = None,
    dtype: str | None = None,
    threads: int | None = None,
) -> None:
    """Serve until SIGTERM or Ctrl-C, with the sessions of `store` or of the SQLite file in `folder`."""
    require_free_port(host, port)
    if threads is not None:
        torch.set_num_threads(threads)
    place = store or folder
    opened = None if place is None else SessionStore(place, exclusive=True)
    with nullcontext() if opened is None else closing(opened):
        pool = StreamPool(backbone, queue=settings.limits.waiting, device=device, dtype=dtype)
        log("model loaded", backbone=pool.backbone.id)
        engine = LocalEngine(pool, settings, opened)
        listen(create_app(engine, settings, tokens), settings, host=host, port=port)
    if engine.unsaved:
        raise Error(
            f"{counted(len(engine.unsaved), 'session')} could not be stored at the end: the log says why.",
            code="store-failed",
        )


def serve_on_ray(
    backbone: str,
    settings: Settings,
    tokens: Tokens,
    *,
    host: str,
    port: int,
    folder: Path | None = None,
    store: str | None = None,
    device: str | None = None,
    dtype: str | None = None,
    replicas: int = 2,
    threads: int = 1,
    sessions: int = 256,
    lease_seconds: float = 10.0,
) -> None:
    """Serve until SIGTERM or Ctrl-C. This process authenticates and routes; replicas on Ray have the sessions."""
    from .cluster.engine import RayEngine
    from .cluster.replica import ReplicaConfig

    if store is None and folder is None:
        raise Error(
            "The engine ray needs a store through which sessions move: give --store postgresql://..., or --state-dir "
            "on one machine.",
            code="store-missing",
        )
    require_ray()
    require_free_port(host, port)
    place = store or (folder or Path()).absolute()
    config = ReplicaConfig(backbone, place, settings, device, dtype, threads, lease_seconds)
    engine = RayEngine(config, replicas=replicas, sessions=sessions)
    listen(create_app(engine, settings, tokens), settings, host=host, port=port)


def config(app: ASGIApp, settings: Settings, *, host: str, port: int) -> uvicorn.Config:
    """Return the configuration of uvicorn."""
    return uvicorn.Config(
        app,
        host=host,
        port=port,
        http=limited(settings.limits),
        access_log=False,
        log_level="warning",
        server_header=False,
        # Any client can send these headers, so only those of the named proxies are used.
        proxy_headers=bool(settings.proxies),
        forwarded_allow_ips=list(settings.proxies),
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
    )


def listen(app: ASGIApp, settings: Settings, *, host: str, port: int) -> None:
    """Listen at an address until a signal ends the process."""
    # Warnings of Pillow about unusual tags of images are of no use here.
    warnings.filterwarnings("ignore", category=UserWarning, module=r"PIL\.")
    _allow_descriptors(4 * settings.limits.requests)
    server = _Server(config(app, settings, host=host, port=port))
    server.run()
    if not server.started:
        raise Error(
            f"The server could not be started at {host}:{port}; the log lines above say why.", code="server-not-started"
        )


def _allow_descriptors(count: int) -> None:
    """Raise the soft limit of open files to `count` if the hard limit permits; each connection is an open file."""
    with suppress(ImportError, ValueError, OSError):  # `resource` is missing on Windows
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        allowed = count if hard == resource.RLIM_INFINITY else min(count, hard)
        if soft != resource.RLIM_INFINITY and soft < allowed:
            resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))


class _Server(uvicorn.Server):
    """Logs its address, and ends without an error after a signal."""

    async def shutdown(self, sockets: Any = None) -> None:
        await super().shutdown(sockets)
        # Otherwise uvicorn raises the signal again at the end.
        self._captured_signals.clear()

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        for server in getattr(self, "servers", ()):
            for listening in server.sockets:
                host, port = listening.getsockname()[:2]
                log("listening", url=f"http://{f'[{host}]' if ':' in host else host}:{port}")
