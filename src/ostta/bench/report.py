"""One self-contained HTML page about one or two runs on one stream."""

from __future__ import annotations

import base64
import html
import json

from ..evaluate import Records
from . import figures
from .result import Result
from .table import HEADINGS, rows

STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.55 system-ui, sans-serif; color: #111827; max-width: 62rem; margin: 0 auto; padding: 1.2rem; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: .6rem 0; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
p.lead { color: #374151; max-width: 46rem; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; min-width: 100%; }
th, td { padding: .4rem .7rem; text-align: right; border-bottom: 1px solid #e5e7eb; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } thead th { color: #4b5563; font-weight: 600; }
.grid { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 25rem), 1fr)); gap: 1.2rem; }
figure { margin: 0; } figure img { width: 100%; height: auto; border: 1px solid #e5e7eb; border-radius: 6px; }
figcaption { font-size: .9rem; color: #374151; margin-top: .35rem; } b.title { display: block; color: #111827; }
details { margin-top: 1rem; } pre { overflow-x: auto; font-size: .8rem; background: #f9fafb; padding: .8rem; border-radius: 6px; }
.note { font-size: .9rem; color: #4b5563; }
"""


def report(runs: list[tuple[Result, Records]], title: str) -> str:
    """The page. The frozen run comes first; the pictures over time show the last run."""
    ordered = sorted(runs, key=lambda run: run[0].spec.method != "zero_shot")
    results = [result for result, _ in ordered]
    limits = figures.score_limits([records for _, records in ordered])
    pictures = [
        (
            f"Scores, {result.spec.method}",
            "How well each image fits its best class. The further the two hills stand apart, the easier it is to say "
            "“I don't know”: what lies left of the dashed line at the end of the stream is rejected.",
            figures.histogram(records, limits),
        )
        for result, records in ordered
    ]
    last, last_records = ordered[-1]
    pictures.append(
        (
            f"Scores and threshold over time, {last.spec.method}",
            "Each dot is one image when it arrived. Where adaptation works, the two clouds drift apart and the threshold, found "
            "from the last 512 scores alone, settles between them.",
            figures.scores_over_time(last_records, limits),
        )
    )
    pictures.append(
        (
            "Accuracies over time",
            "Acc_D: desired images accepted and named rightly. Acc_U: undesired images rejected. HM: their harmonic mean. Over all "
            "images seen so far; dotted: the frozen classifier.",
            figures.accuracies_over_time({result.spec.method: records for result, records in ordered}),
        )
    )
    stream = results[0].stream
    sides = [f"{stream.desired.images} desired images ({stream.desired.name}, {stream.desired.origin})"]
    if stream.undesired is not None:
        sides.append(f"{stream.undesired.images} undesired ones ({stream.undesired.name})")
    spec = results[0].spec
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(title)}</title><style>{STYLE}</style></head><body>
<h1>{html.escape(title)}</h1>
<p class="lead">{html.escape(" and ".join(sides))}, one at a time in one random order (seed {spec.seed}), backbone
<code>{html.escape(spec.backbone)}</code>. Each image is first judged known or unknown, then named; only the adapting method learns
from the stream, without labels.</p>
<div class="scroll"><table><thead><tr>{"".join(f"<th>{h}</th>" for h in HEADINGS)}</tr></thead>
<tbody>{"".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows(results))}</tbody></table></div>
<p class="note">{html.escape(results[0].metrics.convention)}.</p>
{"".join(f'<p class="note">{html.escape(remark)}</p>' for remark in results[0].remarks)}
<h2>Pictures</h2><div class="grid">{"".join(_figure(*picture) for picture in pictures)}</div>
<h2>What was run</h2>
{"".join(_details(result) for result in results)}
</body></html>
"""


def _figure(title: str, meaning: str, png: bytes) -> str:
    data = base64.b64encode(png).decode()
    return (
        f'<figure><img alt="{html.escape(title)}" src="data:image/png;base64,{data}">'
        f'<figcaption><b class="title">{html.escape(title)}</b>{html.escape(meaning)}</figcaption></figure>'
    )


def _details(result: Result) -> str:
    content = json.dumps(result.model_dump(mode="json"), indent=2, ensure_ascii=False)
    return f"<details><summary>{html.escape(result.spec.method)}</summary><pre>{html.escape(content)}</pre></details>"
