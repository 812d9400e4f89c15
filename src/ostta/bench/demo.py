"""The runs of `ostta demo`: the frozen model, ROSITA and the profile `field` on included data."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from ..config.profiles import apply_profile
from .spec import RunSpec


@dataclass(frozen=True)
class Demo:
    """The stream of a demo. `fields` are those of its runs; `title` has a place for the number of images."""

    backbone: str
    fields: dict[str, Any]
    max_images: int
    title: str

    def specs(self, images: int | None, seed: int) -> list[RunSpec]:
        """Return the runs on at most `images` known images, the frozen model first."""
        limit = min(images or self.max_images, self.max_images)
        chosen = (apply_profile(None, "zero_shot"), apply_profile(None, "rosita"), apply_profile("field"))
        return [
            RunSpec(**dataclasses.asdict(one), **self.fields, backbone=self.backbone, limit=limit, seed=seed)
            for one in chosen
        ]


DEMOS = {
    "paper": Demo(
        "embedded",
        {"desired": "sample:cifar10c", "undesired": "sample:mnist"},
        1000,
        "CIFAR-10 under snow, severity 5 ({0} images), against MNIST ({0}), embedded model",
    ),
    "photos": Demo(
        "photos",
        {
            "desired": "sample:photosc",
            "undesired": "sample:photos_unknownc",
            "severity": 4,
            "scenario": {
                "kind": "domains",
                "domains": [
                    {"desired": "sample:photos", "undesired": "sample:photos_unknown", "name": "clean"},
                    {"desired": "sample:photosc", "undesired": "sample:photos_unknownc", "name": "snow"},
                ],
            },
        },
        100,
        "{0} photographs of 10 classes and {0} of others, clean and then under snow (severity 4), backbone photos",
    ),
}
