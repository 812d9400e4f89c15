"""`python -m benchmarks.corruptions`: images per second of each corruption, at 32 and at 224 pixels.

Two processes of one thread work at the same time, on images of the sample (enlarged for 224 pixels). The figure is the
sum over the processes of the median over their rounds, for the slowest of the five severities. Other load on the
machine lowers the figures, so the measurement is repeated and the best result is kept.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import time
from collections.abc import Iterator
from multiprocessing.synchronize import Barrier

import numpy as np
from PIL import Image

from ostta.data.by_name import open_dataset
from ostta.data.corruptions import corrupt, corruption_names

SEVERITIES = (1, 2, 3, 4, 5)
# Images in a round: enough that a round takes some hundredths of a second.
IMAGES = {32: 40, 224: 3}

Rates = dict[tuple[int, str, int], float]


def cases(sides: list[int]) -> Iterator[tuple[int, str, int]]:
    return ((side, name, severity) for side in sides for name in corruption_names() for severity in SEVERITIES)


def measure(sides: list[int], rounds: int, start: Barrier) -> Rates:
    """What one process does; `start` makes them begin each case together."""
    dataset = open_dataset("sample:cifar10")
    images = {
        side: [np.asarray(dataset.image(i).resize((side, side), Image.Resampling.BICUBIC)) for i in range(IMAGES[side])]
        for side in sides
    }
    found: Rates = {}
    for side, name, severity in cases(sides):
        # Tables are made once; so are textures, of which each draws one.
        for i in range(40 if name == "frost" else 2):
            corrupt(images[side][0], name, severity, seed=0, index=i)
        start.wait()
        seconds = []
        for turn in range(rounds):
            began = time.perf_counter()
            for i, image in enumerate(images[side]):
                corrupt(image, name, severity, seed=turn, index=i)
            seconds.append(time.perf_counter() - began)
        found[side, name, severity] = IMAGES[side] / statistics.median(seconds)
    return found


def _work(sides: list[int], rounds: int, start: Barrier, answers: multiprocessing.Queue[Rates]) -> None:
    answers.put(measure(sides, rounds, start))


def together(processes: int, sides: list[int], rounds: int) -> Rates:
    """Images a second of all processes."""
    context = multiprocessing.get_context("spawn")
    start, answers = context.Barrier(processes), context.Queue()
    workers = [context.Process(target=_work, args=(sides, rounds, start, answers)) for _ in range(processes)]
    for worker in workers:
        worker.start()
    rates = [answers.get() for _ in workers]
    for worker in workers:
        worker.join()
    return {case: sum(rate[case] for rate in rates) for case in rates[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--sides", type=int, nargs="+", choices=sorted(IMAGES), default=sorted(IMAGES))
    options = parser.parse_args()
    # The processes have a core each; a library's own threads would only be in the way.
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    runs = [together(options.processes, options.sides, options.rounds) for _ in range(options.repeats)]
    best = {case: max(run[case] for run in runs) for case in cases(options.sides)}
    print("| corruption | " + " | ".join(f"{side} px" for side in options.sides) + " |")
    print("|---|" + "---:|" * len(options.sides))
    for name in corruption_names():
        slowest = (min(best[side, name, severity] for severity in SEVERITIES) for side in options.sides)
        print(f"| {name} | " + " | ".join(f"{rate:,.0f}" for rate in slowest) + " |")


if __name__ == "__main__":
    main()
