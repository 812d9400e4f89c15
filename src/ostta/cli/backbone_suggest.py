"""`ostta backbone suggest`."""

from __future__ import annotations

from .options import Names


def suggest(classes: Names) -> None:
    """Choose an included backbone for class names.

    The command prints the backbone, the reason, and the meaning of each name.

    Example: ostta backbone suggest --classes "dog,elephant,guitar"
    """
    from .. import backbones
    from ..data.class_names import described, parse_classes

    names, descriptions = described(parse_classes(classes))
    found = backbones.suggest(names, described=bool(descriptions))
    print(f"{found.backbone}: {found.reason}.")
    for name, meaning in found.meanings.items():
        print(f"  {name}: {meaning}")
