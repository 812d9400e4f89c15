"""Cost of HTTP: sessions behind the server compared with the pool without it, on the same bytes, in one process.

    python -m benchmarks.server [--sessions 32] [--seconds 300] [--round 10] [--out FILE]

Both sides are closed loops: every session has one image in flight, and sends the next image after the answer. They take
turns. The client is another process with plain sockets; its processor time is measured and subtracted. There are two
ratios of HTTP to no HTTP:

- images per second of processor time of the serving process, which a server reaches if nothing else runs on the
  machine, and which other programs disturb least;
- images per second on the clock, which is lower on a machine with few cores, because the client needs one.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import torch

CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def pictures(count: int = 500) -> list[bytes]:
    """Known and unknown images in turn, as PNG."""
    from ostta.data import open_dataset

    sets, made = [open_dataset("sample:cifar10"), open_dataset("sample:mnist")], []
    for number in range(count):
        some = sets[number % 2]
        buffer = io.BytesIO()
        some.image(number // 2 % len(some)).save(buffer, "PNG")
        made.append(buffer.getvalue())
    return made


@dataclass
class Side:
    """What one side did in all its rounds."""

    images: int = 0
    seconds: float = 0.0
    processor: float = 0.0
    client_processor: float = 0.0
    errors: int = 0
    latencies: list[float] = field(default_factory=list)
    rounds: list[dict[str, float]] = field(default_factory=list)

    def add(self, images: int, seconds: float, processor: float) -> None:
        self.images += images
        self.seconds += seconds
        self.processor += processor
        self.rounds.append({"a_second": images / seconds, "a_processor_second": images / processor})

    def figures(self) -> dict[str, float]:
        found = {
            "images_a_second": self.images / self.seconds,
            "images_a_processor_second": self.images / self.processor,
        }
        if self.latencies:
            ordered = sorted(self.latencies)
            for share in (50, 95, 99):
                found[f"p{share}_ms"] = 1e3 * ordered[min(len(ordered) - 1, len(ordered) * share // 100)]
        return {name: round(value, 2) for name, value in found.items()}


# --- without HTTP -----------------------------------------------------------------------------------------------------
def direct(pool: Any, names: list[str], images: list[bytes], places: dict[str, int], seconds: float) -> int:
    """Every stream sends its next image from the answer to the last; returns how many were answered."""
    until = time.perf_counter() + seconds
    answered, open_streams, done = 0, len(names), threading.Event()

    def send(name: str) -> None:
        places[name] += 1
        pool.submit(name, images[places[name] % len(images)]).add_done_callback(lambda future: seen(name, future))

    def seen(name: str, future: Future[Any]) -> None:
        nonlocal answered, open_streams
        future.result()
        answered += 1
        if time.perf_counter() < until:
            send(name)
        else:
            open_streams -= 1
            if not open_streams:
                done.set()

    for name in names:
        send(name)
    done.wait()
    return answered


# --- the client: a process of its own ---------------------------------------------------------------------------------
def client(port: int, sessions: list[str]) -> None:
    """Rounds of so many seconds, as lines on stdin ask for them; their figures as JSON lines on stdout."""
    images = pictures()
    places = {id: number * 7 for number, id in enumerate(sessions)}

    async def one(id: str, until: float, found: dict[str, Any]) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        request = f"POST /sessions/{id}/images HTTP/1.1\r\nhost: 127.0.0.1\r\n"
        head = f"{request}content-type: image/png\r\ncontent-length: ".encode()
        while time.perf_counter() < until:
            places[id] += 1
            body = images[places[id] % len(images)]
            began = time.perf_counter()
            writer.write(head + str(len(body)).encode() + b"\r\n\r\n" + body)
            answer = await reader.readuntil(b"\r\n\r\n")
            length = int(answer.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            found["latencies"].append(round(time.perf_counter() - began, 5))
            found["errors"] += not answer.startswith(b"HTTP/1.1 200")
        writer.close()

    async def all_of_them(seconds: float) -> dict[str, Any]:
        found: dict[str, Any] = {"latencies": [], "errors": 0}
        until = time.perf_counter() + seconds
        await asyncio.gather(*(one(id, until, found) for id in sessions))
        return found

    for line in sys.stdin:
        began = time.process_time()
        found = asyncio.run(all_of_them(float(line)))
        print(json.dumps({**found, "processor": time.process_time() - began}), flush=True)


# --- the server -------------------------------------------------------------------------------------------------------
@contextmanager
def serving(pool: Any, folder: Path | str | None, count: int) -> Iterator[tuple[int, list[str]]]:
    """A server in a thread of this process, with so many sessions; its port and their ids."""
    import httpx
    import uvicorn

    from ostta.server import LocalEngine, SessionStore, Settings, create_app
    from ostta.server.logs import log_to
    from ostta.server.serving import config

    settings = Settings()
    app = create_app(
        LocalEngine(pool, settings, None if folder is None else SessionStore(folder, exclusive=True)), settings
    )
    log_to(io.StringIO())
    server = uvicorn.Server(config(app, settings, host="127.0.0.1", port=0))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    port = server.servers[0].sockets[0].getsockname()[1]
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as http:
        ids = [http.post("/sessions", json={"classes": CLASSES, "seed": n}).json()["id"] for n in range(count)]
    try:
        yield port, ids
    finally:
        server.should_exit = True
        thread.join()


def measure(sessions: int, seconds: float, one_round: float, folder: Path | str | None) -> dict[str, Any]:
    from ostta import StreamPool
    from ostta.backbones import as_backbone

    backbone, images = as_backbone("embedded"), pictures()
    alone = StreamPool(backbone).start()
    names = [f"s{number}" for number in range(sessions)]
    for number, name in enumerate(names):
        alone.add(name, CLASSES, seed=number, guard=True, class_scores=True)
    places = {name: number * 7 for number, name in enumerate(names)}
    plain, http, memory, process = Side(), Side(), {}, psutil.Process()
    with serving(StreamPool(backbone), folder, sessions) as (port, ids):
        command = [sys.executable, "-m", "benchmarks.server", "--client", str(port), *ids]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
            assert other.stdin is not None
            assert other.stdout is not None
            began = time.perf_counter()
            while time.perf_counter() - began < seconds:
                start, processor = time.perf_counter(), time.process_time()
                count = direct(alone, names, images, places, one_round)
                plain.add(count, time.perf_counter() - start, time.process_time() - processor)
                start, processor = time.perf_counter(), time.process_time()
                print(one_round, file=other.stdin, flush=True)
                found = json.loads(other.stdout.readline())
                http.add(len(found["latencies"]), time.perf_counter() - start, time.process_time() - processor)
                http.client_processor += found["processor"]
                http.errors += found["errors"]
                http.latencies += found["latencies"]
                memory[f"second {time.perf_counter() - began:.0f}"] = process.memory_info().rss / 1e6
            other.stdin.close()
    alone.close()
    pairs = list(zip(http.rounds, plain.rounds, strict=True))
    ratios = {
        name: [round(one[name] / two[name], 3) for one, two in pairs] for name in ("a_processor_second", "a_second")
    }
    return {
        "sessions": sessions,
        "seconds": seconds,
        "round_seconds": one_round,
        "torch_threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "saved_to_disk": folder is not None,
        "pool": plain.figures(),
        "http": {
            **http.figures(),
            "images": http.images,
            "errors": http.errors,
            "client_processor_seconds": round(http.client_processor, 2),
            "server_processor_seconds": round(http.processor, 2),
        },
        **{
            f"ratio_{unit}": {
                "all": round(http.figures()[f"images_{unit}"] / plain.figures()[f"images_{unit}"], 3),
                "rounds": ratios[unit],
            }
            for unit in ("a_processor_second", "a_second")
        },
        "resident_mb": {name: round(value, 1) for name, value in memory.items()},
    }


def main() -> None:
    if sys.argv[1:2] == ["--client"]:
        client(int(sys.argv[2]), sys.argv[3:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--round", type=float, default=10.0, help="seconds of one side at a time")
    parser.add_argument(
        "--threads", type=int, default=1, help="threads of torch; the embedded model is quickest with one"
    )
    parser.add_argument("--state-dir", type=Path, help="store sessions in a SQLite file in this folder")
    parser.add_argument("--store", help="store sessions in the PostgreSQL database at this address")
    parser.add_argument("--out", type=Path)
    wanted = parser.parse_args()
    torch.set_num_threads(wanted.threads)
    found = json.dumps(
        measure(wanted.sessions, wanted.seconds, wanted.round, wanted.store or wanted.state_dir), indent=2
    )
    print(found)
    if wanted.out is not None:
        wanted.out.write_text(found + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
