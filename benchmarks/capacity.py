"""`python -m benchmarks.capacity`: machines for a number of cameras, from the figures of `benchmarks.scale`.

This is a model: it multiplies measured costs and adds nothing for waiting, so real systems need more. Nothing was
measured above 256 sessions and two replicas. Of ViT-B/16, only its pass and the size of its sessions were measured. The
output is the tables of docs/experiments/server.md.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results" / "scale.json"
# docs/speed.md: milliseconds of zero_shot on ViT-B/16 with two threads, and what two threads take of the time of one.
VIT_MS, TWO_OF_ONE = 302, 0.67
# Megabytes of the weights of both towers of ViT-B/16 in single precision.
VIT_WEIGHTS = 598
# Model of a GPU in docs/pool.md: operations of one pass of ViT-B/16 (a fifth of the 156 in docs/speed.md), and an
# assumed rate.
VIT_GIGAFLOPS, GPU_TERAFLOPS = 31.2, 20
# Assumed: kB of a camera's picture as it is sent, a JPEG of about 224 x 224 pixels.
PICTURE_KB = 15


@dataclass(frozen=True)
class Costs:
    """Of one backbone: of a core, of a session, of a snapshot, of a replica."""

    name: str
    images_a_second: float
    session_mb: float
    snapshot_mb: float
    snapshot_ms: float
    replica_mb: float


def measured(found: dict[str, Any]) -> list[Costs]:
    """The embedded model as it was measured, and ViT-B/16 from its pass and the size of its sessions."""
    row, sizes, stored = found["sessions"][-1], found["bytes"], found["stores"]["SQLite"][-1]
    share = sizes["state, embedded"] / sizes["state, features of 512"]
    small = Costs(
        "embedded",
        1e3 / row["processor ms an image"],
        row["kB a session"] / 1e3,
        # In proportion to its state: the images of the benchmark repeat, which makes its own snapshots too small.
        stored["bytes"] * share / 1e6,
        stored["processor ms"] * share,
        found["replicas"]["MB a replica"] - 32 * row["kB a session"] / 1e3,
    )
    large = Costs(
        "ViT-B/16",
        1e3 * TWO_OF_ONE / VIT_MS,
        sizes["memory of a session, features of 512"] / 1e6,
        stored["bytes"] / 1e6,
        stored["processor ms"],
        small.replica_mb + VIT_WEIGHTS,
    )
    return [small, large]


def needs(
    costs: Costs, cameras: int, rate: float, save_every: int, save_seconds: float, router_ms: float
) -> dict[str, str]:
    """What `cameras` that send `rate` images a second need."""
    images = cameras * rate
    # A snapshot is begun when three quarters of `save_every` steps are not stored.
    snapshots = cameras / min(save_seconds, 0.75 * save_every / rate)
    return {
        "backbone": costs.name,
        "images/s": f"{images:,.0f}",
        "cores, images": f"{images / costs.images_a_second:,.0f}",
        "cores, snapshots": f"{snapshots * costs.snapshot_ms / 1e3:,.1f}",
        "cores, routers": f"{images * router_ms / 1e3:,.0f}",
        "GB, sessions": f"{cameras * costs.session_mb / 1e3:,.1f}",
        "snapshots/s": f"{snapshots:,.0f}",
        "MB/s, store": f"{snapshots * costs.snapshot_mb:,.0f}",
        "MB/s, pictures": f"{images * PICTURE_KB / 1e3:,.0f}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cameras", type=int, default=10_000)
    parser.add_argument("--rates", type=float, nargs="+", default=(1.0, 5.0))
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args()
    found = json.loads(given.results.read_text(encoding="utf-8"))
    router = (found["ray"] or {}).get("ms of the router's processor an image", 0.0)
    for costs in measured(found):
        print(costs)
    for save_every, save_seconds in ((100, 30.0), (1000, 600.0)):
        rows = [
            needs(costs, given.cameras, rate, save_every, save_seconds, router)
            for costs in measured(found)
            for rate in given.rates
        ]
        print(f"\n{given.cameras:,} cameras, --save-every {save_every} --save-seconds {save_seconds:g}\n")
        for cells in (list(rows[0]), ["---"] * len(rows[0]), *(list(row.values()) for row in rows)):
            print(f"| {' | '.join(cells)} |")
    print()
    a_gpu = GPU_TERAFLOPS * 1e3 / VIT_GIGAFLOPS
    for rate in given.rates:
        gpus = given.cameras * rate / a_gpu
        print(f"ViT-B/16 at {rate:g} images/s, if a GPU reaches {GPU_TERAFLOPS} TFLOP/s: {gpus:,.0f} GPUs")


if __name__ == "__main__":
    main()
