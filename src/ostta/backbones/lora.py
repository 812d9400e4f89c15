"""LoRA on the attention of an image tower, with peft."""

from __future__ import annotations

import torch
from torch import nn

from ..core.errors import import_extra
from ..core.overlay import twin
from ..core.types import Error

TARGETS = ("q_proj", "k_proj", "v_proj")


def with_lora(vision: nn.Module, rank: int) -> nn.Module:
    """Return a tower with low-rank updates of queries, keys and values.

    Each layer computes W x + B A x with a scaling of 1. B is initialised to zero and A with Kaiming initialisation. The
    modules of `vision` are copied and its weights are shared, so `vision` itself is not modified.
    """
    linear_names = {name.rpartition(".")[2] for name, part in vision.named_modules() if isinstance(part, nn.Linear)}
    if not set(TARGETS) <= linear_names:
        raise Error(
            f"LoRA requires an image tower with linear layers called {', '.join(TARGETS)}, such as CLIP: use another "
            "backbone, or another parameter group.",
            code="backbone-unsupported",
        )
    peft = import_extra("peft", 'The group "lora"', "lora")
    tower = twin(vision)
    config = peft.LoraConfig(r=rank, lora_alpha=rank, target_modules=list(TARGETS), lora_dropout=0.0, bias="none")
    # A fixed seed makes A a function of the rank; forking leaves the global generator unchanged.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        peft.inject_adapter_in_model(config, tower)
    return tower.eval().requires_grad_(False)
