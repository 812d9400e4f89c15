"""`python -m benchmarks.scale`: cost of 8 to 256 sessions in one process, and the gain from a second replica.

The sessions have the profile `field` on the embedded model with full banks. In a round, each session processes one PNG
of 32 x 32 pixels, without HTTP. The numbers of sessions take turns within a round, and medians count, so that other
load affects all of them; on a busy machine, processor time says more than the clock. Memory is the growth of the
process. Snapshots go to a SQLite file in the folder `--folder`, and to the PostgreSQL database `--store`. Replicas are
processes of one thread. The output is the figures of docs/experiments/server.md.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psutil
import torch
from rich.console import Console
from rich.table import Table

import ostta
from ostta.data import open_dataset
from ostta.io import write_atomically
from ostta.live import StreamPool
from ostta.server.cluster.engine import RayEngine
from ostta.server.cluster.replica import ReplicaConfig
from ostta.server.sessions.snapshot import compact, pack
from ostta.server.sessions.store import SessionStore, Stored, new_id
from ostta.server.settings import Settings

from .timing import settled_memory

COUNTS = (8, 32, 64, 128, 256)
# Steps after which the banks of `field` are full, right before the guard replaces its oldest snapshot.
FULL = 1279
# Numbers in a feature of ViT-B/16.
WIDTH = 512


def pngs(count: int) -> list[bytes]:
    """Known and unknown images in turn, as a camera would send them."""
    known, unknown = open_dataset("sample:cifar10c"), open_dataset("sample:mnist")
    made = []
    for number in range(count):
        buffer = io.BytesIO()
        (unknown if number % 4 == 3 else known).image(number).convert("RGB").save(buffer, "PNG")
        made.append(buffer.getvalue())
    return made


def full_state(folder: Path, images: list[bytes]) -> Path:
    """A session that has lived for a while."""
    adapter = ostta.load("embedded", open_dataset("sample:cifar10c").classes)
    for number in range(FULL):
        adapter.step(images[number % len(images)])
    adapter.save(folder / "full.ostta")
    return folder / "full.ostta"


def wide(width: int, folder: Path, count: int = 32) -> tuple[int, float, ostta.Adapter]:
    """Return the bytes of a full state of `field` with ten classes and features of `width`, and kB per session."""
    torch.manual_seed(0)
    texts = torch.nn.functional.normalize(torch.randn(10, width), dim=-1)
    backbone = ostta.backbones.wrap(None, texts, image_size=224)
    adapter = ostta.load(backbone, [f"class {number}" for number in range(10)])
    for number in range(FULL):
        # Three of four lie near a class, so that the guard stays calm and keeps its snapshots.
        known = 0.35 * texts[number % 10] if number % 4 != 3 else torch.zeros(width)
        adapter.step_features(torch.randn(width) / width**0.5 + known)
    adapter.save(folder / "wide.ostta")
    before = settled_memory()
    kept = [ostta.Adapter.restore(folder / "wide.ostta", backbone) for _ in range(count)]
    grown = (settled_memory() - before) / len(kept)
    return os.path.getsize(folder / "wide.ostta"), grown / 1e3, adapter


def sessions(counts: tuple[int, ...], rounds: int, folder: Path, images: list[bytes]) -> list[dict[str, float]]:
    """Images a second, memory a session and milliseconds of a snapshot, by how many sessions there are."""
    state = full_state(folder, images)
    pool = StreamPool("embedded")
    pool.restore("0", state)
    pool.step({"0": images[0]})
    before, memory = settled_memory(), {}
    for number in range(1, max(counts)):
        pool.restore(str(number), state)
        if number + 1 in counts:
            memory[number + 1] = (settled_memory() - before) / number
    speeds: dict[int, list[float]] = {count: [] for count in counts}
    costs: dict[int, list[float]] = {count: [] for count in counts}
    for turn in range(rounds + 1):
        for count in counts[:: -1 if turn % 2 else 1]:
            # As many images for each count, so that all of them are measured for as long.
            repeats = max(1, max(counts) // count // 4)
            began, busy = time.perf_counter(), time.process_time()
            for repeat in range(repeats):
                pool.step({str(number): images[(number + repeat) % len(images)] for number in range(count)})
            if turn:
                speeds[count].append(count * repeats / (time.perf_counter() - began))
                costs[count].append(1e3 * (time.process_time() - busy) / (count * repeats))
    return [
        {
            "sessions": count,
            "images a second": statistics.median(speeds[count]),
            "processor ms an image": statistics.median(costs[count]),
            "lowest": min(speeds[count]),
            "highest": max(speeds[count]),
            "kB a session": memory.get(count, 0.0) / 1e3,
        }
        for count in counts
    ]


def snapshots(adapter: ostta.Adapter, place: Path | str, count: int, rounds: int) -> dict[str, float]:
    """Snapshots a second of `count` sessions in a store: copied, packed, written and synced, one after the other."""
    store, ids = SessionStore(place, exclusive=True), [new_id() for _ in range(count)]
    for id in ids:
        store.create(Stored(id, b"", {}))
    times, size = [], 0
    began, busy = time.perf_counter(), time.process_time()
    for _ in range(rounds):
        for id in ids:
            start = time.perf_counter()
            content = pack(compact(adapter.copy_state()).to_bytes())
            store.save(Stored(id, content, {"name": "camera"}))
            times.append(time.perf_counter() - start)
            size = len(content)
    took, used = time.perf_counter() - began, time.process_time() - busy
    for id in ids:
        store.delete(id)
    store.close()
    return {
        "sessions": count,
        "snapshots a second": len(times) / took,
        "median ms": 1e3 * statistics.median(times),
        "processor ms": 1e3 * used / len(times),
        "bytes": size,
    }


def replica(link: Connection, state: Path, images: list[bytes], count: int) -> None:
    """A process of one thread: at each word, so many rounds of its sessions."""
    torch.set_num_threads(1)
    pool = StreamPool("embedded")
    for number in range(count):
        pool.restore(str(number), state)
    pool.step({str(number): images[0] for number in range(count)})
    link.send(psutil.Process().memory_info().rss)
    while (asked := link.recv()) is not None:
        own, repeats = asked
        for repeat in range(repeats):
            pool.step({str(number): images[(number + repeat) % len(images)] for number in range(own)})
        link.send(None)


def two_replicas(count: int, rounds: int, folder: Path, images: list[bytes]) -> dict[str, Any]:
    """Images a second of `count` sessions on one replica and on two, and the ratio in each round."""
    context, state = multiprocessing.get_context("spawn"), folder / "full.ostta"
    links, processes = [], []
    for _ in range(2):
        ours, theirs = context.Pipe()
        processes.append(context.Process(target=replica, args=(theirs, state, images, count), daemon=True))
        processes[-1].start()
        links.append(ours)
    memory = [link.recv() for link in links]
    speeds: dict[int, list[float]] = {1: [], 2: []}
    for turn in range(rounds + 1):
        for many in (1, 2) if turn % 2 else (2, 1):
            began = time.perf_counter()
            for link in links[:many]:
                link.send((count // many, 4))
            for link in links[:many]:
                link.recv()
            if turn:
                speeds[many].append(4 * count / (time.perf_counter() - began))
    for link, process in zip(links, processes, strict=True):
        link.send(None)
        process.join()
    ratios = [two / one for one, two in zip(speeds[1], speeds[2], strict=True)]
    return {
        "sessions": count,
        "one replica, images a second": statistics.median(speeds[1]),
        "two replicas, images a second": statistics.median(speeds[2]),
        "ratio": statistics.median(ratios),
        "lowest": min(ratios),
        "highest": max(ratios),
        "MB a replica": max(memory) / 1e6,
    }


async def routed(count: int, rounds: int, folder: Path, images: list[bytes]) -> dict[str, float]:
    """Return images per second of the Ray engine with two replicas and one image in flight per session."""
    made = ReplicaConfig("embedded", folder, Settings(), threads=1)
    engine = RayEngine(made, replicas=2)
    await engine.start()
    try:
        state = (folder / "full.ostta").read_bytes()
        ids = [(await engine.create_from(state, None))["id"] for _ in range(count)]

        async def camera(id: str, many: int) -> None:
            for number in range(many):
                await engine.images(id, [images[number % len(images)]], True, False)

        await asyncio.gather(*(camera(id, 2) for id in ids))
        began, busy = time.perf_counter(), time.process_time()
        await asyncio.gather(*(camera(id, 4 * rounds) for id in ids))
        took, used = time.perf_counter() - began, time.process_time() - busy
        done = 4 * rounds * count
        return {
            "sessions": count,
            "images a second": done / took,
            "ms of the router's processor an image": 1e3 * used / done,
        }
    finally:
        await engine.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, nargs="+", default=COUNTS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1, help="of the process with all sessions")
    parser.add_argument("--folder", type=Path, help="where snapshots are written; a temporary folder if not given")
    parser.add_argument("--store", help="address of a PostgreSQL database, whose sessions are deleted afterwards")
    parser.add_argument("--ray", action="store_true", help="two replicas on Ray too")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/scale.json"))
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder, images = Path(name), pngs(64)
        rows = sessions(tuple(sorted(given.sessions)), given.rounds, folder, images)
        pair = two_replicas(32, given.rounds, folder, images)
        through = asyncio.run(routed(16, given.rounds, folder, images)) if given.ray else None
        answer = ostta.Adapter.restore(folder / "full.ostta").predict(images[0]).to_json()
        size, memory, adapter = wide(WIDTH, folder)
        places = {"SQLite": folder / "store", **({} if given.store is None else {"PostgreSQL": given.store})}
        stores = {name: [snapshots(adapter, place, many, 3) for many in (8, 64)] for name, place in places.items()}
        sizes = {
            "state, embedded": os.path.getsize(folder / "full.ostta"),
            f"state, features of {WIDTH}": size,
            f"memory of a session, features of {WIDTH}": 1e3 * memory,
            "PNG, 32 x 32": statistics.mean(map(len, images)),
            "answer": len(answer),
        }
    busy = os.getloadavg()[0]
    write_atomically(
        given.out,
        json.dumps(
            {
                "threads": given.threads,
                "load": busy,
                "sessions": rows,
                "replicas": pair,
                "ray": through,
                "bytes": sizes,
                "stores": stores,
            },
            indent=1,
        ).encode(),
    )
    table = Table(*rows[0])
    for row in rows:
        table.add_row(*(f"{value:,.1f}" for value in row.values()))
    console = Console(width=140)
    console.print(table)
    console.print(pair, through, sizes, stores, f"threads {given.threads}, load average of the machine {busy:.1f}")


if __name__ == "__main__":
    main()
