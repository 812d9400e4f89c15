"""Build hook: on a package index, links of README.md lead to the repository that `[project.urls]` names.

`Repository` in `[project.urls]` of pyproject.toml is the only place to set the address. Without it the links stay
relative.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_RELATIVE_LINK = re.compile(r"(!?\[[^\]]*\]\()(?!https?:|#|mailto:)([^)\s]+)(\))")


def absolute_links(text: str, repository: str) -> str:
    """Return the text with links to files of the repository: `raw` for pictures, `blob` for all others."""

    def replace(link: re.Match[str]) -> str:
        kind = "raw" if link[1].startswith("!") else "blob"
        return f"{link[1]}{repository.rstrip('/')}/{kind}/HEAD/{link[2]}{link[3]}"

    return _RELATIVE_LINK.sub(replace, text)


class Readme(MetadataHookInterface):
    """Put README.md into the metadata."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        repository = metadata.get("urls", {}).get("Repository")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": absolute_links(text, repository) if repository else text,
        }
