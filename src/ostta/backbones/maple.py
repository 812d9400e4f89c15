"""MaPLe: learned prompts in both towers of a CLIP (Khattak et al. 2023).

    text:   [start, P_0, rest of the prompt] -> layer 0 -> P_1 in place of P_0 -> layer 1 -> P_2 -> layer 2 -> ...
    image:  [class, patches, f_0(P_0)] -> layer 0 -> f_1(P_1) in place of f_0(P_0) -> layer 1 -> ...

The prompts are the submodule `prompts` of the image tower, so that an overlay of the tower covers all of them. Prompts
and the token statistics of PromptAlign are read from public checkpoints and from safetensors files.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..core.errors import translate_errors
from ..core.overlay import own_precision
from ..core.types import Error
from ..io import check_regular, write_atomically
from .checkpoints import read_checkpoint
from .clip import Clip, ClipFamily
from .prompts import PromptedText, check_templates
from .protocol import DEFAULT_TEMPLATES, HasTokenStatistics, Statistics
from .towers import ClipTower, frozen, initial_weights

# As published: two tokens in the first three layers.
TOKENS, DEPTH = 2, 3
OWN_PROMPTS, OWN_STATISTICS = "maple.safetensors", "statistics.safetensors"
# Buffers of a checkpoint that depend on its training classes.
CLASS_DEPENDENT = ("token_prefix", "token_suffix")
IMAGES_AT_ONCE = 32
# Upper bound on the layer numbers in a file; no CLIP has this many layers.
MAX_LAYERS = 100


class MaplePrompts(nn.Module):
    """Text prompts and their projections to the image tower, with the parameter names of public checkpoints."""

    def __init__(self, text_width: int, vision_width: int, tokens: int = TOKENS, depth: int = DEPTH) -> None:
        super().__init__()
        deeper = range(depth - 1)
        self.ctx = nn.Parameter(torch.zeros(tokens, text_width))
        self.proj = nn.Linear(text_width, vision_width)
        self.compound_prompts_text = nn.ParameterList([torch.zeros(tokens, text_width) for _ in deeper])
        self.compound_prompt_projections = nn.ModuleList([nn.Linear(text_width, vision_width) for _ in deeper])

    def text(self) -> list[torch.Tensor]:
        """Return one prompt [tokens, text width] per layer."""
        return [self.ctx, *self.compound_prompts_text]

    def visual(self) -> list[torch.Tensor]:
        """Return one prompt [tokens, vision width] per layer."""
        projections = [self.proj, *self.compound_prompt_projections]
        return [project(prompt) for project, prompt in zip(projections, self.text(), strict=True)]


class MapleTower(ClipTower):
    """Image tower with prompts appended to the patches."""

    def __init__(self, vision_model: nn.Module, visual_projection: nn.Module, prompts: MaplePrompts) -> None:
        super().__init__(vision_model, visual_projection)
        self.prompts = prompts

    @property
    def blocks(self) -> int:
        model: Any = self.vision_model
        return len(model.encoder.layers)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.with_tokens(pixels, 0)[0]

    def with_tokens(self, pixels: torch.Tensor, blocks: int) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Return raw features and the inputs [B, tokens, width] of the first `blocks` blocks, prompts included."""
        seen: list[torch.Tensor] = []
        for hidden in self._inputs(pixels, self.blocks):
            if len(seen) < blocks:
                seen.append(hidden)
        return self.read(hidden), seen

    def tokens(self, pixels: torch.Tensor, blocks: int) -> list[torch.Tensor]:
        """Return the inputs of the first `blocks` blocks without computing the later blocks."""
        return list(self._inputs(pixels, blocks))

    def _inputs(self, pixels: torch.Tensor, blocks: int) -> Iterator[torch.Tensor]:
        model: Any = self.vision_model
        visual, patches = self.prompts.visual(), model.embeddings(pixels)
        hidden = model.pre_layrnorm(torch.cat([patches, visual[0].expand(patches.shape[0], -1, -1)], dim=1))
        yield hidden
        for number, layer in enumerate(model.encoder.layers[: blocks - 1], start=1):
            hidden = _with_prompt(layer(hidden, None), visual, number)
            yield hidden


def _with_prompt(hidden: torch.Tensor, visual: list[torch.Tensor], number: int) -> torch.Tensor:
    """Return the input of block `number`, in which its prompt, if any, replaces that of the previous block."""
    if number >= len(visual):
        return hidden
    prompt = visual[number]
    return torch.cat([hidden[:, : -len(prompt)], prompt.expand(hidden.shape[0], -1, -1)], dim=1)


class MapleText(PromptedText):
    """Prompts of `classes` that begin with learned vectors, which are parameters of the image tower."""

    def __init__(self, maple: Maple, classes: Sequence[str], template: str = DEFAULT_TEMPLATES[0]) -> None:
        super().__init__(maple, classes, template)
        self._tower = maple.tower
        self.free = {}
        self.vision_names = tuple(f"prompts.{name}" for name, _ in self._tower.prompts.named_parameters())
        replaced = len(self._tower.prompts.ctx)
        if len(self._shared) <= replaced:
            raise Error(
                f"The template {template!r} is too short for MaPLe, which replaces {replaced} words before {{}}: use "
                'one such as "a photo of a {}.".',
                code="template-invalid",
            )

    def classify(self, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
        prompts = self._tower.prompts
        deeper = [
            tensors.get(f"prompts.compound_prompts_text.{number}", own)
            for number, own in enumerate(prompts.compound_prompts_text)
        ]
        return self.encode(tensors.get("prompts.ctx", prompts.ctx), deeper)


class Maple(ClipFamily):
    """A CLIP with MaPLe prompts and, if available, the token statistics for PromptAlign.

    It encodes no complete prompts, because the learned prompts replace the first words of a template.
    """

    def __init__(self, clip: Clip, prompts: MaplePrompts, id: str, statistics: Statistics | None = None) -> None:
        base: Any = clip.vision
        self._clip = clip
        self.id = id
        frozen(prompts)
        self.tower = MapleTower(base.vision_model, base.visual_projection, prompts).eval()
        self.vision = self.tower
        self.text, self.tokenizer, self.preprocessing = clip.text, clip.tokenizer, clip.preprocessing
        self.logit_scale, self.feature_width = clip.logit_scale, clip.feature_width
        self.context_length, self.vocabulary = clip.context_length, clip.vocabulary
        self.defaults, self.remark, self.restorable = clip.defaults, clip.remark, clip.restorable
        self.device, self.dtype = clip.device, clip.dtype
        self.statistics = statistics
        self._check()
        self._set_weights()

    def _set_weights(self) -> None:
        self._weights = initial_weights(vision=self.vision, text=self.text)
        if self.statistics is not None:
            self._weights |= {f"statistics.{name}": tensor for name, tensor in vars(self.statistics).items()}

    def _check(self) -> None:
        model: Any = self.tower.vision_model
        text: Any = self.text.text_model
        prompts = self.tower.prompts
        widths = (prompts.ctx.shape[1], prompts.proj.out_features)
        fitting = (text.config.hidden_size, model.config.hidden_size)
        if widths != fitting:
            raise Error(
                f"The MaPLe prompts fit towers of widths {widths[0]} (text) and {widths[1]} (image), but those of "
                f"{self._clip.id} have {fitting[0]} and {fitting[1]}.",
                code="prompts-mismatch",
            )
        tokens = model.embeddings.num_positions + len(prompts.ctx)
        expected = (len(model.encoder.layers), tokens, model.config.hidden_size)
        for name, tensor in ({} if self.statistics is None else vars(self.statistics)).items():
            # The statistics may cover only the first blocks, because only those are aligned.
            if tensor.ndim != 3 or tensor.shape[1:] != expected[1:] or not 1 <= len(tensor) <= expected[0]:
                raise Error(
                    f"The token {name} have the shape {list(tensor.shape)}: {self.id} requires at most "
                    f"{list(expected)}, blocks, tokens and width.",
                    code="prompts-mismatch",
                )

    def place(self, device: torch.device, dtype: torch.dtype) -> None:
        super().place(device, dtype)
        if self.statistics is not None:
            self.statistics = Statistics(self.statistics.means.to(device), self.statistics.variances.to(device))
            self._set_weights()

    def unfamiliar(self, classes: Sequence[str]) -> list[str]:
        return self._clip.unfamiliar(classes)

    def prompted(self, classes: Sequence[str], template: str = DEFAULT_TEMPLATES[0]) -> MapleText:
        return MapleText(self, classes, template)

    def embed(self, classes: Sequence[str], templates: Sequence[str] = DEFAULT_TEMPLATES) -> torch.Tensor:
        # The order of `fill`: all templates of the first class, then those of the second class.
        rows = [self.prompted(classes, template).classify({}) for template in check_templates(templates)]
        return torch.stack(rows, dim=1).flatten(0, 1)


def new_prompts(clip: Clip, words: str = "a photo") -> MaplePrompts:
    """Return untrained prompts for `clip`: `words` for the first layer, small random vectors for the deeper layers."""
    vision: Any = clip.vision
    text: Any = clip.text
    tower = text.text_model
    prompts = MaplePrompts(tower.config.hidden_size, vision.vision_model.config.hidden_size)
    tokens = clip.tokens([words], ("{}",))[0][1:-1]
    if len(tokens) != TOKENS:
        raise Error(f"The prompts have {TOKENS} tokens, but {words!r} has {len(tokens)}.", code="template-invalid")
    with torch.no_grad():
        prompts.ctx.copy_(tower.embeddings.token_embedding.weight[tokens])
        for prompt in prompts.compound_prompts_text:
            nn.init.normal_(prompt, std=0.02)
    return prompts


# --- files ------------------------------------------------------------------------------------------------------------
def load_maple(clip: Clip, place: Path, id: str) -> Maple:
    """Return `clip` with the prompts at `place` (a checkpoint or its folder) and the statistics in that folder."""
    file = _prompts_file(place)
    return Maple(clip, read_prompts(file), id, read_statistics(file.parent))


def _prompts_file(place: Path) -> Path:
    if place.is_file():
        return place
    if not place.is_dir():
        raise Error(
            f"There are no MaPLe prompts at {place}: name a checkpoint such as model.pth.tar-2, or its folder.",
            code="prompts-not-found",
        )
    own = place / OWN_PROMPTS
    if own.is_file():
        return own
    checkpoints = sorted([*place.glob("*.pth.tar*"), *place.glob("*.pth")])
    if len(checkpoints) != 1:
        listed = ", ".join(file.name for file in checkpoints) or "none"
        raise Error(
            f"The folder {place} must have one MaPLe checkpoint, but has {listed}: name the file.",
            code="prompts-not-found",
        )
    return checkpoints[0]


def read_prompts(file: Path) -> MaplePrompts:
    """Read the prompts of a checkpoint. Its training classes are ignored."""
    tensors = _read_tensors(file)
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
        raise _unreadable(file, "it has no `ctx` or no `proj.weight` of the expected shape")
    depth = 1 + sum(name.startswith("compound_prompts_text.") for name in tensors)
    if depth > MAX_LAYERS:
        raise _unreadable(file, f"it has prompts for {depth} layers, and the limit is {MAX_LAYERS}")
    # Compare the shapes before copying, because many large tensors may share one small storage.
    with torch.device("meta"):
        prompts = MaplePrompts(text_width, vision_width, tokens, depth)
    with translate_errors("prompts-unreadable", f"{file} has no MaPLe prompts: {{reason}}.", RuntimeError):
        prompts.load_state_dict({name: tensor.to("meta") for name, tensor in tensors.items()}, assign=True)
    if sum(tensor.nbytes for tensor in tensors.values()) > file.stat().st_size:
        raise _unreadable(file, "its tensors are larger than the file, because they share one storage")
    prompts.load_state_dict({name: _single(tensor, name, file) for name, tensor in tensors.items()}, assign=True)
    return prompts


def read_statistics(folder: Path) -> Statistics | None:
    """Read the token statistics in `folder`, in the ostta format or as the two published tensors; None if missing."""
    own = folder / OWN_STATISTICS
    if own.is_file():
        tensors = _read_tensors(own)
        if not {"means", "variances"} <= set(tensors):
            raise Error(f"{own} has no token statistics: `means` or `variances` is missing.", code="prompts-unreadable")
        return Statistics(*(_single(tensors[name], name, own) for name in ("means", "variances")))
    means, variances = (sorted(folder.glob(f"*vis_{name}.pt")) for name in ("means", "vars"))
    if not means and not variances:
        return None
    if len(means) != 1 or len(variances) != 1:
        raise Error(
            f"The folder {folder} must have one file *vis_means.pt and one file *vis_vars.pt.", code="prompts-not-found"
        )
    return Statistics(_read_tensor(means[0]), _read_tensor(variances[0]))


def write_prompts(prompts: MaplePrompts, file: Path) -> None:
    """Write prompts as safetensors, with the parameter names of public checkpoints."""
    from safetensors.torch import save

    content = {name: tensor.detach().contiguous() for name, tensor in prompts.state_dict().items()}
    write_atomically(file, save(content))


def write_statistics(statistics: Statistics, file: Path, about: dict[str, object]) -> None:
    """Write token statistics; `about` records how they were measured."""
    from safetensors.torch import save

    content = {"means": statistics.means.contiguous(), "variances": statistics.variances.contiguous()}
    write_atomically(file, save(content, metadata={"about": json.dumps(about)}))


def statistics_file(name: str) -> Path:
    """Return the statistics file of the backbone `name` (BASE+maple:PATH), which is in the folder of its prompts."""
    _, maple, path = name.partition("+maple:")
    if not maple:
        raise Error(
            "The embedded statistics ship with the package and are not overwritten: name a file with --out.",
            code="file-required",
        )
    place = Path(path).expanduser()
    return (place if place.is_dir() else place.parent) / OWN_STATISTICS


@torch.no_grad()
def measure_statistics(
    backbone: HasTokenStatistics, views: Iterable[torch.Tensor], blocks: int | None = None
) -> tuple[Statistics, int]:
    """Return the mean and variance of the tokens at the input of each block, and the number of `views` [3, H, W]."""
    tower = backbone.tower
    blocks = tower.blocks if blocks is None else blocks
    count, total, squares = 0, None, None
    iterator = iter(views)
    while part := list(islice(iterator, IMAGES_AT_ONCE)):
        batch = torch.stack(part)
        with own_precision(tower):
            # Accumulate on the CPU, because some devices do not support double precision.
            tokens = torch.stack(tower.tokens(batch.to(backbone.device), blocks)).cpu().double()
        count += len(batch)
        total = tokens.sum(1) if total is None else total + tokens.sum(1)
        squares = tokens.square().sum(1) if squares is None else squares + tokens.square().sum(1)
    if total is None or squares is None:
        raise Error("Token statistics require at least one image.", code="images-missing")
    means = total / count
    # Rounding can make the variance of a constant token, such as a prompt, negative.
    variances = (squares / count - means.square()).clamp(min=0)
    return Statistics(means.float(), variances.float()), count


def _read_tensors(file: Path) -> dict[str, torch.Tensor]:
    if file.suffix == ".safetensors":
        from safetensors.torch import load_file

        check_regular(file, "file of tensors")
        with translate_errors("prompts-unreadable", f"{file} cannot be read: {{reason}}."):
            return load_file(file)
    content = read_checkpoint(file)
    if isinstance(content, torch.Tensor):
        raise _unreadable(file, "it has one tensor instead of a `state_dict`")
    return content


def _read_tensor(file: Path) -> torch.Tensor:
    content = read_checkpoint(file)
    if not isinstance(content, torch.Tensor):
        raise Error(f"{file} must have exactly one dense tensor, written by `torch.save`.", code="prompts-unreadable")
    return _single(content, "the tensor", file)


def _single(tensor: torch.Tensor, name: str, file: Path) -> torch.Tensor:
    """Return `tensor` in single precision. Raise an Error unless it contains finite floating-point numbers."""
    try:
        single = torch.empty(tensor.shape).copy_(tensor) if tensor.is_floating_point() else None
    except Exception:  # torch cannot convert 4-bit and 6-bit types
        single = None
    if single is None or not single.isfinite().all():
        raise Error(
            f"{file} has {name} as {tensor.dtype}: it must have finite floating-point numbers.",
            code="prompts-unreadable",
        )
    return single


def _unreadable(file: Path, reason: str) -> Error:
    return Error(f"{file} has no MaPLe prompts: {reason}.", code="prompts-unreadable")
