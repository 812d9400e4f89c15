"""Prior centre of a backbone: the mean unit feature of some hundred images, which need not be those of a stream.

A backbone with an image tower encodes images that ship with ostta, once. The result is cached in memory and in the
folder `ostta/centres` of `XDG_CACHE_HOME`, by default `~/.cache`. The folder may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import weakref
from contextlib import suppress
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch import nn

from .backbones.protocol import Backbone, HasCentre
from .core.overlay import answering, encode
from .core.types import Error
from .data import open_dataset
from .data.views import canonical
from .io import make_folder, write_atomically

# Largest image size of the backbones that encode thumbnails instead of photographs.
SMALL = 64
# Data sets, and the number of images of each.
THUMBNAILS = (("sample:cifar10", 200),)
PHOTOGRAPHS = (("sample:photos", 100), ("sample:photos_unknown", 100))
BATCH = 16

_centres: weakref.WeakKeyDictionary[nn.Module, torch.Tensor] = weakref.WeakKeyDictionary()


def centre_of(backbone: Backbone) -> torch.Tensor | None:
    """Return the prior centre of a backbone, float32 [D]; None if it has none.

    A backbone that is not a `HasCentre` encodes images that ship with ostta. This needs pyarrow: without it, and
    without a cached centre, there is none.

    >>> centre_of(adapter.backbone).shape
    torch.Size([128])
    """
    if isinstance(backbone, HasCentre):
        return backbone.centre
    if backbone.vision not in _centres:
        file = _file(backbone)
        with answering():
            centre = _read(file, backbone.feature_width)
            if centre is None:
                if find_spec("pyarrow") is None:
                    return None
                centre = _encoded(backbone)
                _write(file, centre)
            _centres[backbone.vision] = centre.to(backbone.device)
    return _centres[backbone.vision]


def _images(backbone: Backbone) -> tuple[tuple[str, int], ...]:
    return THUMBNAILS if backbone.preprocessing.image_size <= SMALL else PHOTOGRAPHS


def _encoded(backbone: Backbone) -> torch.Tensor:
    sets = [open_dataset(name, limit=count) for name, count in _images(backbone)]
    images = [(dataset, number) for dataset in sets for number in range(len(dataset))]
    rows = []
    # In the precision of the tower, also if the caller uses another one.
    with torch.autocast(backbone.device.type, enabled=False):
        for start in range(0, len(images), BATCH):
            views = [
                canonical(dataset.image(number), backbone.preprocessing)
                for dataset, number in images[start : start + BATCH]
            ]
            rows.append(encode(backbone.vision, torch.stack(views).to(backbone.device)).float().cpu())
    return torch.cat(rows).mean(0)


# --- cache on disk ----------------------------------------------------------------------------------------------------
def _file(backbone: Backbone) -> Path:
    """Return the file of a centre. Its name depends on everything that can change a digit of the centre."""
    content = [
        backbone.weight_hash,
        asdict(backbone.preprocessing),
        [str(backbone.dtype), backbone.device.type, torch.get_num_threads(), torch.__version__],
        [_images(backbone), BATCH],
    ]
    name = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:24]
    folder = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(folder, "ostta", "centres", f"{name}.npy")


def _read(file: Path, width: int) -> torch.Tensor | None:
    """Return the centre in a file; None if there is no valid one."""
    try:
        centre = np.load(io.BytesIO(file.read_bytes()), allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    valid = centre.dtype == np.float32 and centre.shape == (width,) and bool(np.isfinite(centre).all())
    return torch.from_numpy(centre) if valid else None


def _write(file: Path, centre: torch.Tensor) -> None:
    buffer = io.BytesIO()
    np.save(buffer, centre.numpy())
    # Without the file, the next process encodes the images again.
    with suppress(Error, OSError):
        make_folder(file.parent)
        write_atomically(file, buffer.getvalue())
