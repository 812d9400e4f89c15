"""Which parameters of an image tower adapt: groups by structure, not by name."""

from __future__ import annotations

from torch import nn

from .types import Error


def layernorm_names(module: nn.Module) -> list[str]:
    """The affine parameters of every LayerNorm inside `module`, chosen by type and not by name."""
    return [
        f"{prefix}.{name}" if prefix else name
        for prefix, part in module.named_modules()
        if isinstance(part, nn.LayerNorm)
        for name, parameter in part.named_parameters(recurse=False)
        if parameter is not None
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
