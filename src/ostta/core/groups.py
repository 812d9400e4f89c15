"""Which parameters of an image tower adapt: groups by structure, not by name."""

from __future__ import annotations

from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from .types import Error

# Whatever normalises and may have a weight and a bias; the last is what batch and instance norms of every kind inherit from.
NORMS = (nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, _NormBase)


def layernorm_names(module: nn.Module) -> list[str]:
    """The affine parameters of every LayerNorm inside `module`, chosen by type and not by name."""
    return _names_of(module, (nn.LayerNorm,))


def norm_names(module: nn.Module) -> list[str]:
    """The affine parameters of every normalisation inside `module`. Running statistics are not among them: they stay as they are."""
    return _names_of(module, NORMS)


def norm_kinds(module: nn.Module) -> list[str]:
    """The kinds of normalisation with affine parameters inside `module`, such as BatchNorm2d."""
    found = (part for part in module.modules() if isinstance(part, NORMS))
    return sorted({type(part).__name__ for part in found if any(True for _ in part.parameters(recurse=False))})


def _names_of(module: nn.Module, kinds: tuple[type[nn.Module], ...]) -> list[str]:
    return [
        f"{prefix}.{name}" if prefix else name
        for prefix, part in module.named_modules()
        if isinstance(part, kinds)
        for name, _ in part.named_parameters(recurse=False)
    ]


def block_names(module: nn.Module, place: int) -> list[str]:
    """All parameters of one residual block: the first (0) or the last (-1) of the longest list of alike submodules."""
    lists = [
        (prefix, part)
        for prefix, part in module.named_modules()
        if isinstance(part, nn.ModuleList | nn.Sequential)
        and len(part) > 1
        and len({type(block) for block in part}) == 1
        and all(any(True for _ in block.parameters()) for block in part)
    ]
    if not lists:
        raise Error("The image tower has no list of alike blocks, so there is no first or last one to adapt.")
    prefix, blocks = max(lists, key=lambda found: len(found[1]))
    number = range(len(blocks))[place]
    return [f"{prefix}.{number}.{name}" for name, _ in blocks[number].named_parameters()]
