"""MaPLe's prompts and PromptAlign's token statistics on disk: public checkpoints, and files of our own."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import torch

from ..core.checks import one_line
from ..core.devices import own_precision
from ..core.types import Error
from ..io import check_regular, write_atomically
from .checkpoints import read_checkpoint
from .clip import Clip
from .maple import Maple, MaplePrompts
from .protocol import HasTokenStatistics, Statistics

OWN_PROMPTS, OWN_STATISTICS = "maple.safetensors", "statistics.safetensors"
# Buffers that a checkpoint holds for the classes it was trained on.
CLASS_DEPENDENT = ("token_prefix", "token_suffix")
IMAGES_AT_ONCE = 32
# More than any CLIP has.
MOST_LAYERS = 100


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


def read_prompts(file: Path) -> MaplePrompts:
    """The prompts of a checkpoint, ours or a public one, whatever classes it was trained on."""
    tensors = _tensors(file)
    marked = {
        name.removeprefix("prompt_learner."): tensor for name, tensor in tensors.items() if "prompt_learner." in name
    }
    tensors = {name: tensor for name, tensor in (marked or tensors).items() if name not in CLASS_DEPENDENT}
    try:
        tokens, text_width = tensors["ctx"].shape
        vision_width, projected = tensors["proj.weight"].shape
    except (KeyError, ValueError):
        tokens = text_width = vision_width = projected = 0
    if not tokens * vision_width or projected != text_width:
        raise Error(f"{file} holds no MaPLe prompts: there is no `ctx` or no `proj.weight` of the expected form in it.")
    depth = 1 + sum(name.startswith("compound_prompts_text.") for name in tensors)
    if depth > MOST_LAYERS:
        raise Error(f"{file} holds prompts for {depth} layers: no tower has more than {MOST_LAYERS}.")
    # The shapes are compared before any number is copied: many tensors may lie in one small storage.
    with torch.device("meta"):
        prompts = MaplePrompts(text_width, vision_width, tokens, depth)
    try:
        prompts.load_state_dict({name: tensor.to("meta") for name, tensor in tensors.items()}, assign=True)
    except RuntimeError as problem:
        raise Error(f"The MaPLe prompts in {file} are incomplete: {one_line(problem)[:200]}.") from None
    if sum(tensor.nbytes for tensor in tensors.values()) > file.stat().st_size:
        raise Error(
            f"The MaPLe prompts in {file} are larger than the file: the same numbers stand for several of them."
        )
    prompts.load_state_dict({name: _single(tensor, name, file) for name, tensor in tensors.items()}, assign=True)
    return prompts


def read_statistics(folder: Path) -> Statistics | None:
    """The token statistics in `folder`: ours, or the two published tensors; None where there are none."""
    own = folder / OWN_STATISTICS
    if own.is_file():
        tensors = _tensors(own)
        if not {"means", "variances"} <= set(tensors):
            raise Error(f"{own} holds no token statistics: `means` or `variances` is not in it.")
        return Statistics(*(_single(tensors[name], name, own) for name in ("means", "variances")))
    means, variances = (sorted(folder.glob(f"*vis_{name}.pt")) for name in ("means", "vars"))
    if not means and not variances:
        return None
    if len(means) != 1 or len(variances) != 1:
        raise Error(f"The folder {folder} must hold one file *vis_means.pt and one *vis_vars.pt.")
    return Statistics(_tensor(means[0]), _tensor(variances[0]))


def write_prompts(prompts: MaplePrompts, file: Path) -> None:
    """In the public names, as safetensors."""
    from safetensors.torch import save

    content = {name: tensor.detach().contiguous() for name, tensor in prompts.state_dict().items()}
    write_atomically(file, save(content))


def write_statistics(statistics: Statistics, file: Path, about: dict[str, object]) -> None:
    """Beside the prompts they belong to; `about` says how they were made."""
    from safetensors.torch import save

    content = {"means": statistics.means.contiguous(), "variances": statistics.variances.contiguous()}
    write_atomically(file, save(content, metadata={"about": json.dumps(about)}))


def statistics_file(name: str) -> Path:
    """Where the statistics of the backbone `name`, BASE+maple:PATH, belong: beside its prompts."""
    _, maple, path = name.partition("+maple:")
    if not maple:
        raise Error("The embedded statistics ship with the package and are not overwritten: name a file with --out.")
    place = Path(path).expanduser()
    return (place if place.is_dir() else place.parent) / OWN_STATISTICS


@torch.no_grad()
def measure_statistics(
    backbone: HasTokenStatistics, views: Iterable[torch.Tensor], blocks: int | None = None
) -> tuple[Statistics, int]:
    """Mean and population variance of every token at the input of every block, over canonical views [3, H, W]; and how many."""
    tower = backbone.tower
    blocks = tower.blocks if blocks is None else blocks
    count, total, squares = 0, None, None
    for batch in _batches(views):
        with own_precision(tower):
            # On the processor: not every device has numbers of double precision.
            tokens = torch.stack(tower.tokens(batch.to(backbone.device), blocks)).cpu().double()
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

        check_regular(file, "file of tensors")
        try:
            return load_file(file)
        except Exception as problem:  # a damaged file ends in exceptions of the library's own
            raise Error(f"{file} cannot be read: {problem}.") from problem
    content = read_checkpoint(file)
    if isinstance(content, torch.Tensor):
        raise Error(f"{file} is not a checkpoint: it holds one tensor, and no `state_dict`.")
    return content


def _tensor(file: Path) -> torch.Tensor:
    content = read_checkpoint(file)
    if not isinstance(content, torch.Tensor):
        raise Error(f"{file} must hold one tensor of the usual kind, as `torch.save` writes it.")
    return _single(content, "the tensor", file)


def _single(tensor: torch.Tensor, name: str, file: Path) -> torch.Tensor:
    """`tensor` in single precision, once it is known to hold finite numbers with a fraction."""
    try:
        single = torch.empty(tensor.shape).copy_(tensor) if tensor.is_floating_point() else None
    except Exception:  # types of four or six bits, which torch cannot convert
        single = None
    if single is None:
        raise Error(f"{file} holds {name} as {tensor.dtype}: it must be a floating-point type such as float32.")
    if not single.isfinite().all():
        raise Error(f"{file} holds numbers that are not finite in {name}: it is damaged, or the training failed.")
    return single
