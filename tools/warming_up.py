"""How soon verdicts can be trusted: how often known and unknown are told apart at the first, second, ... image of a
stream.

    python tools/warming_up.py --work WORK --mnist DIR --caltech caltech101/dev.parquet

Streams of held-out training images under defocus blur, under contrast and clean, half of them unknown (see choose.py),
in twelve random orders each. `ostta.core.banks.TRUSTED` was chosen by this table.
"""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path

import numpy as np
import torch

from choose import CIFAR10, UNKNOWNS, HeldOut
from ostta import backbones, load

PLACES = (0, 16, 32, 64, 128, 256, 512)
CHOICES: dict[str, dict[str, str]] = {"zero_shot, max, lda": {"method": "zero_shot"}, "field": {"profile": "field"}}
ORDERS, IMAGES, SIDE = 12, 300, 256


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--mnist", type=Path, required=True)
    parser.add_argument("--caltech", type=Path, required=True)
    given = parser.parse_args()
    held_out, backbone = HeldOut(given.work, given.mnist, given.caltech), backbones.load("embedded")
    frozen = load(backbone, CIFAR10, "zero_shot", features=True)

    def features(name: str, corruption: str) -> torch.Tensor:
        source = held_out.source(name, corruption)
        return torch.tensor([frozen.predict(source.image(number)).features for number in range(IMAGES)])

    streams = [
        (features("cifar10", corruption), features(unknown, corruption))
        for corruption in ("defocus_blur", "contrast", "clean")
        for unknown in UNKNOWNS
    ]
    print(f"{'images':<24}" + "".join(f"{f'{a + 1}-{b}':>10}" for a, b in itertools.pairwise(PLACES)))
    for name, choice in CHOICES.items():
        right = []
        for number, sides in enumerate(streams):
            for seed in range(ORDERS):
                rng = np.random.default_rng([seed, number])
                order = [(side, int(place)) for side in (0, 1) for place in rng.permutation(IMAGES)[:SIDE]]
                rng.shuffle(order)
                adapter = load(backbone, CIFAR10, **choice)  # type: ignore[arg-type]
                right.append([adapter.step_features(sides[side][place]).known == (side == 0) for side, place in order])
        shares = 100 * np.array(right, float)
        means = [shares[:, a:b].mean() for a, b in itertools.pairwise(PLACES)]
        print(f"{name:<24}" + "".join(f"{mean:10.1f}" for mean in means), flush=True)


if __name__ == "__main__":
    main()
