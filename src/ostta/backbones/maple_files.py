"""MaPLe's prompts and PromptAlign's token statistics on disk: public checkpoints, and files of our own."""

from __future__ import annotations

import json
import pickle
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

import torch

from ..core.types import Error
from ..files import write_atomically
from .clip import Clip
from .maple import Maple, Prompts, Statistics

OWN_PROMPTS, OWN_STATISTICS = "maple.safetensors", "statistics.safetensors"
# Buffers that a checkpoint holds for the classes it was trained on.
CLASS_DEPENDENT = ("token_prefix", "token_suffix")
IMAGES_AT_ONCE = 32


def load_maple(clip: Clip, place: Path, id: str) -> Maple:
    """`clip` with the prompts at `place`, a checkpoint or the folder it is in, and the statistics beside it."""
    file = _prompts_file(place)
    return Maple(clip, read_prompts(file), id, read_statistics(file.parent))


def _prompts_file(place: Path) -> Path:
    if place.is_file():
        return place
    if not place.is_dir():
        raise Error(f"There are no MaPLe prompts at {place}: name a checkpoint such as model.pth.tar-2, or its folder.")
    own = place / OWN_PROMPTS
    if own.is_file():
        return own
    found = sorted([*place.glob("*.pth.tar*"), *place.glob("*.pth")])
    if len(found) != 1:
        listed = ", ".join(file.name for file in found) or "none"
        raise Error(f"The folder {place} must hold one MaPLe checkpoint; it holds {listed}. Name the one you mean.")
    return found[0]


def read_prompts(file: Path) -> Prompts:
    """The prompts of a checkpoint, ours or a public one, whatever classes it was trained on."""
    tensors = _tensors(file)
    marked = {
        name.removeprefix("prompt_learner."): tensor for name, tensor in tensors.items() if "prompt_learner." in name
    }
    tensors = {name: tensor.float() for name, tensor in (marked or tensors).items() if name not in CLASS_DEPENDENT}
    try:
        tokens, text_width = tensors["ctx"].shape
        vision_width = len(tensors["proj.weight"])
    except (KeyError, ValueError):
        raise Error(
            f"{file} holds no MaPLe prompts: there is no `ctx` or no `proj.weight` of the expected form in it."
        ) from None
    depth = 1 + sum(name.startswith("compound_prompts_text.") for name in tensors)
    prompts = Prompts(text_width, vision_width, tokens, depth)
    try:
        prompts.load_state_dict(tensors)
    except RuntimeError as problem:
        raise Error(f"The MaPLe prompts in {file} are incomplete: {' '.join(str(problem).split())[:200]}.") from None
    return prompts


def read_statistics(folder: Path) -> Statistics | None:
    """The token statistics in `folder`: ours, or the two published tensors; None where there are none."""
    own = folder / OWN_STATISTICS
    if own.is_file():
        tensors = _tensors(own)
        if not {"means", "variances"} <= set(tensors):
            raise Error(f"{own} holds no token statistics: `means` or `variances` is not in it.")
        return Statistics(tensors["means"].float(), tensors["variances"].float())
    means, variances = (sorted(folder.glob(f"*vis_{name}.pt")) for name in ("means", "vars"))
    if not means and not variances:
        return None
    if len(means) != 1 or len(variances) != 1:
        raise Error(f"The folder {folder} must hold one file *vis_means.pt and one *vis_vars.pt.")
    return Statistics(_unpickled(means[0]).float(), _unpickled(variances[0]).float())


def write_prompts(prompts: Prompts, file: Path) -> None:
    """In the public names, as safetensors."""
    from safetensors.torch import save

    content = {name: tensor.detach().contiguous() for name, tensor in prompts.state_dict().items()}
    write_atomically(file, save(content))


def write_statistics(statistics: Statistics, file: Path, about: dict[str, Any]) -> None:
    """Beside the prompts they belong to; `about` says how they were made."""
    from safetensors.torch import save

    content = {"means": statistics.means.contiguous(), "variances": statistics.variances.contiguous()}
    write_atomically(file, save(content, metadata={"about": json.dumps(about)}))


@torch.no_grad()
def measure_statistics(
    maple: Maple, views: Iterable[torch.Tensor], blocks: int | None = None
) -> tuple[Statistics, int]:
    """Mean and population variance of every token at the input of every block, over canonical views [3, H, W]; and how many."""
    tower: Any = maple.vision
    blocks = len(tower.vision_model.encoder.layers) if blocks is None else blocks
    count, total, squares = 0, None, None
    for batch in _batches(views):
        tokens = torch.stack(tower.tokens(batch, blocks)).double()
        count += len(batch)
        total = tokens.sum(1) if total is None else total + tokens.sum(1)
        squares = tokens.square().sum(1) if squares is None else squares + tokens.square().sum(1)
    if total is None or squares is None:
        raise Error("There are no images to take token statistics from.")
    means = total / count
    # Never below zero: a token that is the same in every image, such as a prompt, differs from its mean by rounding alone.
    variances = (squares / count - means.square()).clamp(min=0)
    return Statistics(means.float(), variances.float()), count


def _batches(views: Iterable[torch.Tensor]) -> Iterable[torch.Tensor]:
    waiting: list[torch.Tensor] = []
    for view in views:
        waiting.append(view)
        if len(waiting) == IMAGES_AT_ONCE:
            yield torch.stack(waiting)
            waiting = []
    if waiting:
        yield torch.stack(waiting)


def _tensors(file: Path) -> dict[str, torch.Tensor]:
    if file.suffix == ".safetensors":
        from safetensors.torch import load_file

        try:
            return load_file(file)
        except Exception as problem:  # a damaged file ends in exceptions of the library's own
            raise Error(f"{file} cannot be read: {problem}.") from problem
    content = _unpickled(file)
    state = content.get("state_dict", content) if isinstance(content, dict) else None
    if not isinstance(state, dict):
        raise Error(f"{file} is not a checkpoint: there is no `state_dict` in it.")
    return {name: tensor for name, tensor in state.items() if isinstance(tensor, torch.Tensor)}


class _Inert:
    """Stands for every object of a checkpoint that is not a tensor: schedulers, optimisers, configurations."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        pass

    def __call__(self, *arguments: Any, **keywords: Any) -> _Inert:
        return self

    def __setstate__(self, state: Any) -> None:
        pass

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def append(self, value: Any) -> None:
        """As a list would, which some objects pretend to be."""


class _Tensors(pickle.Unpickler):
    """Builds tensors and plain containers. Anything else becomes inert, so that a file cannot run code.

    Public checkpoints hold a learning-rate schedule as a live object, which torch's own safe mode refuses to read.
    """

    ALLOWED: ClassVar[dict[tuple[str, str], Any]] = {
        ("collections", "OrderedDict"): OrderedDict,
        ("torch._utils", "_rebuild_tensor_v2"): torch._utils._rebuild_tensor_v2,
        ("torch._utils", "_rebuild_parameter"): torch._utils._rebuild_parameter,
    }

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        return self.ALLOWED.get((module, name), _Inert)


class _Pickle:
    """What `torch.load` needs of a pickle module."""

    Unpickler = _Tensors

    @staticmethod
    def load(file: Any, **keywords: Any) -> Any:
        return _Tensors(file, **keywords).load()


def _unpickled(file: Path) -> Any:
    try:
        return torch.load(file, map_location="cpu", pickle_module=_Pickle, weights_only=False)
    except Exception as problem:  # a damaged file ends in exceptions of several libraries
        raise Error(
            f"{file} cannot be read as a PyTorch checkpoint: {' '.join(str(problem).split())[:200]}."
        ) from problem
