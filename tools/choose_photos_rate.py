"""Choose the learning rate of ROSITA on the backbone `photos` from results of `tools/photos_lr.toml`.

    ostta bench run tools/photos_lr.toml --data ROOT --out photos-lr
    python tools/choose_photos_rate.py photos-lr

The figure of a run is its HM less the HM of the frozen classifier on the same images in the same order. A rate has two
figures over all streams and orders: the mean, and the mean of the worst tenth. The rate with the highest sum is
chosen, because a rate that gains on the mean may still destroy a stream.
"""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from pathlib import Path

from ostta.bench.folder import ResultFolder


def gains(folder: Path) -> dict[float, dict[tuple[str, str, int], float]]:
    """Return the gain in HM of each rate by stream: a corruption, a set of unknown images and an order."""
    frozen: dict[tuple[str, str, int], float] = {}
    trained: dict[float, dict[tuple[str, str, int], float]] = defaultdict(dict)
    for stored in ResultFolder(folder).newest.values():
        spec, hm = stored.result.spec, stored.result.metrics.hm
        assert hm is not None
        stream = (spec.corruption, str(spec.undesired).rpartition(":")[2], spec.seed)
        if spec.method == "rosita":
            trained[float(spec.options["lr"])][stream] = hm
        else:
            frozen[stream] = hm
    return {
        rate: {stream: hm - frozen[stream] for stream, hm in found.items()} for rate, found in sorted(trained.items())
    }


def main() -> None:
    by_rate = gains(Path(sys.argv[1]))
    common = set.intersection(*(set(found) for found in by_rate.values()))
    print(f"{len(common)} streams, {len({order for _, _, order in common})} orders among them; HM less the frozen HM")
    sums = {}
    for rate, found in by_rate.items():
        values = sorted(found[stream] for stream in common)
        worst = values[: math.ceil(len(values) / 10)]
        mean, tenth = sum(values) / len(values), sum(worst) / len(worst)
        sums[rate] = mean + tenth
        print(f"{rate:8g}  mean {mean:+6.2f}  worst tenth {tenth:+6.2f}  sum {sums[rate]:+6.2f}")
    print(f"chosen: {max(sums, key=sums.__getitem__):g}")


if __name__ == "__main__":
    main()
