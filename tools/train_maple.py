"""Train MaPLe's prompts for the embedded model, and take the token statistics that PromptAlign needs.

    python tools/train_maple.py --work WORK --out src/ostta/backbones/embedded/model

WORK is the folder that `train_embedded.py prepare` made. Few-shot, as MaPLe is: `SHOTS` training images of each
CIFAR-10 and CIFAR-100 class, the towers frozen, plain SGD with a cosine schedule on the cross-entropy over all 110
classes. The statistics are those of clean, centred training images at the input of every block. The held-out images of
the training sets show whether the prompts help; no test image takes part.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path

import torch
from torch.nn import functional

from ostta import backbones
from ostta.backbones.maple import (
    OWN_PROMPTS,
    OWN_STATISTICS,
    Maple,
    measure_statistics,
    new_prompts,
    write_prompts,
    write_statistics,
)
from ostta.core.losses import unit
from train_embedded import CLASSES, normalise, split

SHOTS, BATCH, EPOCHS, RATE, SEED = 64, 32, 8, 0.02, 0
STATISTICS_IMAGES = 4000


def views(images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Crops of the padded images, half of them mirrored, as MaPLe's own crop and flip."""
    padded = functional.pad(images.float() / 255, (2, 2, 2, 2), mode="reflect")
    left, top = torch.randint(0, 5, (2,), generator=generator).tolist()
    cut = padded[:, :, top : top + 32, left : left + 32]
    mirrored = torch.rand(len(cut), generator=generator) < 0.5
    return normalise(torch.where(mirrored[:, None, None, None], cut.flip(3), cut))


def few(labels: torch.Tensor, shots: int, generator: torch.Generator) -> torch.Tensor:
    """The places of `shots` images of every class."""
    order = torch.randperm(len(labels), generator=generator)
    return torch.cat([order[labels[order] == label][:shots] for label in labels.unique()])


@torch.no_grad()
def accuracies(backbone: backbones.Backbone, images: torch.Tensor, labels: torch.Tensor) -> dict[str, float]:
    """Of held-out images, each set among its own classes."""
    found = {}
    for name, low, high in (("cifar10", 0, 10), ("cifar100", 10, 110)):
        chosen = (labels >= low) & (labels < high)
        text = backbone.classifier(CLASSES[low:high])
        batches = images[chosen].split(250)
        best = torch.cat(
            [(unit(backbone.vision(normalise(batch.float() / 255))) @ text.T).argmax(1) for batch in batches]
        )
        found[name] = round(100 * float((best + low == labels[chosen]).float().mean()), 2)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="the folder that train_embedded.py prepared")
    parser.add_argument("--out", type=Path, required=True, help="the folder of the embedded model")
    parser.add_argument("--rate", type=float, default=RATE)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--shots", type=int, default=SHOTS)
    arguments = parser.parse_args()
    torch.manual_seed(SEED)
    generator = torch.Generator().manual_seed(SEED)
    images, labels, held_images, held_labels = split(arguments.work)
    clip = backbones.load("embedded")
    print("frozen", accuracies(clip, held_images, held_labels), flush=True)

    prompts = new_prompts(clip)  # type: ignore[arg-type]
    maple = Maple(clip, prompts, "embedded+maple")  # type: ignore[arg-type]
    text = maple.prompted(CLASSES)
    parameters = [parameter.requires_grad_() for parameter in maple.tower.prompts.parameters()]
    optimiser = torch.optim.SGD(parameters, lr=arguments.rate, momentum=0.9)
    chosen = few(labels, arguments.shots, generator)
    steps = arguments.epochs * (len(chosen) // BATCH)
    print("untrained prompts", accuracies(maple, held_images, held_labels), flush=True)
    began, number = time.time(), 0
    for epoch in range(arguments.epochs):
        order = chosen[torch.randperm(len(chosen), generator=generator)]
        for batch in order[: len(order) // BATCH * BATCH].split(BATCH):
            for group in optimiser.param_groups:
                group["lr"] = arguments.rate * 0.5 * (1 + math.cos(math.pi * number / steps))
            features = unit(maple.vision(views(images[batch], generator)))
            cosines = features @ unit(text.classify({})).T
            loss = functional.cross_entropy(maple.logit_scale * cosines, labels[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            number += 1
        print(
            epoch, round(loss.item(), 3), accuracies(maple, held_images, held_labels), round(time.time() - began),
            flush=True,
        )  # fmt: skip
    for parameter in parameters:
        parameter.requires_grad_(False)
    arguments.out.mkdir(parents=True, exist_ok=True)
    write_prompts(maple.tower.prompts, arguments.out / OWN_PROMPTS)
    seen = images[torch.randperm(len(images), generator=generator)[:STATISTICS_IMAGES]]
    statistics, count = measure_statistics(maple, (normalise(image.float() / 255) for image in seen))
    about = {"images": count, "of": "CIFAR-10 and CIFAR-100 training sets", "prompts": maple.weight_hash}
    write_statistics(statistics, arguments.out / OWN_STATISTICS, about)
    print(json.dumps(about))


if __name__ == "__main__":
    main()
