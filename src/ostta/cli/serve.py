"""`ostta serve`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from .options import Device, Dtype, load_code


class EngineName(StrEnum):
    """Where sessions run."""

    local = "local"
    ray = "ray"


def serve(
    backbone: Annotated[
        str,
        typer.Option(
            help="A name of `ostta ls backbones`, a local folder, onnx:FOLDER, file.py:Name, or auto, which is photos."
        ),
    ] = "auto",
    host: Annotated[
        str, typer.Option(help="Address to listen on. All addresses except loopback require --token-file.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 chooses a free port.")] = 8000,
    state_dir: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the SQLite file that stores the sessions. Without it and --store, sessions end with the "
            "process."
        ),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            envvar="OSTTA_STORE",
            help="PostgreSQL database that stores the sessions, such as postgresql://user@host/database.",
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="File with one token per line, optionally followed by the ids or name patterns of the sessions that "
            "the token may use, or by /metrics for a token that only reads the metrics."
        ),
    ] = None,
    device: Device = "auto",
    dtype: Dtype = "float32",
    save_every: Annotated[
        int,
        typer.Option(
            min=1, max=100_000, help="Maximum number of steps of a session that are lost if the process is killed."
        ),
    ] = 100,
    save_seconds: Annotated[
        float, typer.Option(min=1.0, help="Seconds after which a session with unsaved steps is saved.")
    ] = 30.0,
    keep_images: Annotated[
        bool,
        typer.Option(
            "--keep-images", help="Keep thumbnails of the last images of each session in memory, for the dashboard."
        ),
    ] = False,
    cors: Annotated[
        list[str] | None,
        typer.Option(help="Origin of web pages that may use this server, such as https://example.org."),
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option(help="Host name of this server, as browsers send it in the Host header."),
    ] = None,
    proxy_headers: Annotated[
        list[str] | None,
        typer.Option(
            help="Address or network of a proxy in front of this server, whose X-Forwarded-For and X-Forwarded-Proto "
            "headers are used."
        ),
    ] = None,
    max_sessions: Annotated[int, typer.Option(min=1, help="Maximum number of sessions.")] = 256,
    max_session_mb: Annotated[
        int, typer.Option(min=1, help="Maximum memory of one session in megabytes, with the snapshots of its guard.")
    ] = 128,
    max_waiting: Annotated[int, typer.Option(min=1, help="Maximum number of waiting images of one session.")] = 64,
    max_body_mb: Annotated[int, typer.Option(min=1, help="Maximum size of one request with images in megabytes.")] = 16,
    max_megapixels: Annotated[float, typer.Option(min=0.01, help="Maximum size of one image in megapixels.")] = 64.0,
    engine: Annotated[
        EngineName,
        typer.Option(
            help="local: this process. ray: replicas on the cluster at RAY_ADDRESS, or on a new one on this machine."
        ),
    ] = EngineName.local,
    replicas: Annotated[int, typer.Option(min=1, help="With --engine ray: number of processes with sessions.")] = 2,
    threads: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Threads of the model. Default: chosen by torch. With --engine ray: cores per replica, by default 1.",
        ),
    ] = None,
    sessions_per_replica: Annotated[
        int,
        typer.Option(
            min=1,
            help="With --engine ray: maximum number of sessions per replica; the least recently used is evicted.",
        ),
    ] = 256,
    lease_seconds: Annotated[
        float,
        typer.Option(
            min=1.0, help="With --engine ray: seconds after which a replica that does not respond loses its sessions."
        ),
    ] = 10.0,
) -> None:
    """Serve sessions over HTTP.

    Each session has its own classes. All sessions share one backbone.

    Example: ostta serve --backbone photos --state-dir sessions
    """
    from ..backbones.choice import AUTO, suggest
    from ..server import Limits, Settings
    from ..server.serving import hosts_of, proxies_of, serve_locally, serve_on_ray, tokens_for

    tokens = tokens_for(host, token_file)
    limits = Limits(
        sessions=max_sessions,
        session_bytes=max_session_mb * 2**20,
        state=max_session_mb * 3 * 2**19,
        waiting=max_waiting,
        body=max_body_mb * 2**20,
        megapixels=max_megapixels,
    )
    settings = Settings(
        limits=limits,
        save_every=save_every,
        save_seconds=save_seconds,
        keep_images=keep_images,
        hosts=hosts_of(host, name or []),
        cors=tuple(cors or ()),
        proxies=proxies_of(proxy_headers or []),
    )
    if backbone == AUTO:
        backbone = suggest(()).backbone
        reason = "it is made for photographs and refuses class names that it does not know"
        typer.echo(f"Backbone {backbone}: {reason}.", err=True)
    if engine is EngineName.ray:
        serve_on_ray(
            backbone, settings, tokens, host=host, port=port, folder=state_dir, store=store, device=device, dtype=dtype,
            replicas=replicas, threads=threads or 1, sessions=sessions_per_replica, lease_seconds=lease_seconds,
        )  # fmt: skip
        return
    serve_locally(
        load_code(backbone), settings, tokens, host=host, port=port, folder=state_dir, store=store, device=device,
        dtype=dtype, threads=threads,
    )  # fmt: skip
