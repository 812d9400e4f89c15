"""LoRA on the attention of an image tower, through peft."""

from __future__ import annotations

import torch
from torch import nn

from ..core.overlay import twin
from ..core.types import Error

TARGETS = ("q_proj", "k_proj", "v_proj")


def with_lora(vision: nn.Module, rank: int) -> nn.Module:
    """The tower with low-rank additions to its queries, keys and values: W x + B A x, B zero and A Kaiming, scaling 1.

    Its modules are copies and its weights are not: the tower that was given does not change, and hardly any memory is used.
    """
    if rank < 1:
        raise Error(f"`rank` is at least 1, not {rank}.")
    found = {name.rpartition(".")[2] for name, part in vision.named_modules() if isinstance(part, nn.Linear)}
    if not set(TARGETS) <= found:
        raise Error(
            f"LoRA needs an image tower with linear layers called {', '.join(TARGETS)}, as CLIP's, and this one has none."
        )
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as problem:
        raise Error('The group "lora" needs peft: install it with `pip install "ostta[lora]"`.') from problem
    tower = twin(vision)
    config = LoraConfig(r=rank, lora_alpha=rank, target_modules=list(TARGETS), lora_dropout=0.0, bias="none")
    # Its own generator: the same rank starts from the same A, and nobody else's random numbers change.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        inject_adapter_in_model(config, tower)
    return tower.eval().requires_grad_(False)
