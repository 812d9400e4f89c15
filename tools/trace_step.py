"""List the files of ostta that one step of ROSITA with LDA passes through, and the calls between them.

python tools/trace_step.py [--backbone embedded] [--calls]

The traced step is one that adapts on a reliable known image, after a warm-up. A call counts as a re-entry if its file
is already on the stack below the file of its caller: control leaves a file and comes back to it before the first call
has returned.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import torch
from torch import nn

import ostta
from ostta.data import open_dataset

ROOT = Path(ostta.__file__).parent


class Call(NamedTuple):
    """One call of a function of ostta; `caller` and `stack` are files."""

    file: str
    function: str
    caller: str | None
    stack: tuple[str, ...]

    @property
    def reentry(self) -> bool:
        """Whether the file is on the stack below another file."""
        return self.file != self.caller and self.file in self.stack


class TinyTower(nn.Module):
    """An image tower that has no file in ostta."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.out = nn.LayerNorm(48), nn.Linear(48, 16)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        patches = nn.functional.avg_pool2d(pixels, 8).flatten(1)
        return self.out(self.norm(patches))


def tiny_backbone(classes: int) -> Any:
    """Return a wrapped tower with random text embeddings."""
    torch.manual_seed(0)
    return ostta.backbones.wrap(TinyTower(), torch.randn(classes, 16), image_size=32)


def trace(backbone: str = "embedded") -> list[Call]:
    """Return the calls of the first step that adapts on a reliable known image after 100 steps."""
    photos, digits = open_dataset("sample:cifar10"), open_dataset("sample:mnist")
    model = tiny_backbone(len(photos.classes)) if backbone == "tiny" else backbone
    adapter = ostta.load(model, photos.classes, "rosita")
    images = [source.image(i % len(source)) for i in range(400) for source in (photos, digits)]
    for number, image in enumerate(images):
        calls: list[Call] = []
        prediction = profiled(adapter, image, calls)
        if number >= 100 and prediction.adapted and prediction.verdict == "reliable_desired" and matches(prediction):
            return calls
    raise RuntimeError("No step adapted on a reliable known image.")


def matches(prediction: ostta.Prediction) -> bool:
    """Return whether both losses of a known image were computed."""
    return "matches" in prediction.diagnostics


def profiled(adapter: ostta.Adapter, image: Any, calls: list[Call]) -> ostta.Prediction:
    """Run one step and append its calls."""

    def record(frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or (file := file_of(frame)) is None:
            return
        stack = []
        outer = frame.f_back
        while outer is not None:
            if (below := file_of(outer)) is not None:
                stack.append(below)
            outer = outer.f_back
        calls.append(Call(file, frame.f_code.co_qualname, stack[0] if stack else None, tuple(stack)))

    before = sys.getprofile()
    sys.setprofile(record)
    try:
        return adapter.step(image)
    finally:
        sys.setprofile(before)


def file_of(frame: FrameType) -> str | None:
    """Return the path of the file of a frame within ostta; None for other files."""
    path = Path(frame.f_code.co_filename)
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else None


def files_of(calls: list[Call]) -> list[str]:
    """Return the files in the order of their first call."""
    return list(dict.fromkeys(call.file for call in calls))


def reentries_of(calls: list[Call]) -> list[str]:
    """Return the re-entries as "caller -> file: function", each once."""
    return list(dict.fromkeys(f"{call.caller} -> {call.file}: {call.function}" for call in calls if call.reentry))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backbone", default="embedded", help="a name, or tiny for a tower without a file in ostta")
    parser.add_argument("--calls", action="store_true", help="list the calls between files too")
    options = parser.parse_args()
    calls = trace(options.backbone)
    files, reentries = files_of(calls), reentries_of(calls)
    print(f"{len(files)} files, {len(calls)} calls, {len(reentries)} re-entries")
    print(*files, "", *reentries, sep="\n")
    if options.calls:
        print("", *(f"{'  ' * len(call.stack)}{call.file}: {call.function}" for call in calls), sep="\n")


if __name__ == "__main__":
    main()
