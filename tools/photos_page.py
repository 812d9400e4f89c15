"""Write the figures of docs/experiments/photos.md from the results of the suite `photos/table`.

ostta bench run photos/table --data ROOT --out photos-runs
ostta bench table photos/table --out photos-runs --format json --to figures.json
python tools/photos_page.py figures.json
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[1] / "docs" / "experiments" / "photos.md"
METHODS = ("zero_shot", "tda", "rosita", "field")
# Without unknown images there is no harmonic mean.
METRICS = {"0": "open_accuracy", "0.1": "open_accuracy", "1": "hm"}
PLACE = re.compile(r"(<!-- figures -->\n).*(<!-- end of figures -->)", re.DOTALL)


def table(content: dict[str, Any]) -> str:
    figures = {(f["method"], f["stream"], f["ratio"], f["metric"]): f for f in content["figures"] if not f["group"]}
    differences = {(*d["row"], *d["column"], d["metric"]): d for d in content["to_frozen"]}
    streams = list(dict.fromkeys(figure["stream"] for figure in content["figures"] if figure["stream"]))
    lines = ["| stream | ratio | figure | " + " | ".join(METHODS) + " |", "|---|---|---|" + "---|" * len(METHODS)]
    for stream in streams:
        for ratio, metric in METRICS.items():
            cells = []
            for method in METHODS:
                figure, gain = (found.get((method, stream, ratio, metric)) for found in (figures, differences))
                mean = None if figure is None else figure["mean"]
                text = "–" if mean is None else f"{mean:.1f}"
                if gain is not None and mean is not None:
                    text += f" ({gain['difference']:+.1f} [{gain['low']:+.1f}, {gain['high']:+.1f}])"
                cells.append(text)
            name = "HM" if metric == "hm" else "accuracy"
            lines.append(f"| {stream} | {ratio} | {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    content = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(PLACE.sub(lambda found: found[1] + table(content) + found[2], page), encoding="utf-8")


if __name__ == "__main__":
    main()
