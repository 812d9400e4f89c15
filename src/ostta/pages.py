"""What all HTML pages share: one design, no script, no address outside, everything escaped."""

from __future__ import annotations

import html
import re

# Colours by what they are for; `DARK` has the same names.
LIGHT = (
    "color-scheme: light; --text: #111827; --soft: #374151; --faint: #4b5563; --line: #e5e7eb; --page: #fff; --panel: #f9fafb; "
    "--known: #1d4ed8; --unknown: #b45309; --threshold: #111827; --bad: #b91c1c;"
)
DARK = (
    "color-scheme: dark; --text: #f3f4f6; --soft: #d1d5db; --faint: #a8b0bd; --line: #374151; --page: #111827; --panel: #1f2937; "
    "--known: #7cb0ff; --unknown: #f5b041; --threshold: #f3f4f6; --bad: #fca5a5;"
)
STYLE = (
    f":root {{ {LIGHT} }}"
    + """
body { font: 16px/1.55 system-ui, sans-serif; color: var(--text); background: var(--page); max-width: 62rem; margin: 0 auto; padding: 1.2rem; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: .6rem 0; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .5rem; }
h3 { font-size: 1rem; margin: 1.6rem 0 .4rem; } h4 { font-size: .95rem; margin: .4rem 0 0; }
p.lead { color: var(--soft); max-width: 46rem; } code { font-size: .9em; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; margin-bottom: 1.1rem; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; min-width: 100%; }
th, td { padding: .4rem .7rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } thead th { color: var(--faint); font-weight: 600; }
figure { margin: 0; } figure img { width: 100%; height: auto; border: 1px solid var(--line); border-radius: 6px; }
figcaption { font-size: .9rem; color: var(--soft); margin-top: .35rem; } b.title { display: block; color: var(--text); }
details { margin-top: .6rem; } summary { cursor: pointer; overflow-wrap: anywhere; }
pre { overflow-x: auto; font-size: .8rem; background: var(--panel); padding: .8rem; border-radius: 6px; }
.note { font-size: .9rem; color: var(--faint); max-width: 52rem; } ul.note, ol.note { padding-left: 1.3rem; } .missing { font-weight: 600; }
"""
)
# For pages without pictures that have a white ground of their own.
DARK_STYLE = f"@media (prefers-color-scheme: dark) {{ :root {{ {DARK} }} }}\n"


def document(title: str, body: str, style: str = "") -> str:
    """The whole page; `body` is HTML already, `style` is what this kind of page has beyond the common one.

    >>> "<h1>cats &amp; dogs</h1>" in document("cats & dogs", "<p>none yet</p>")
    True
    """
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(title)}</title><style>{STYLE}{style}</style></head><body>
<h1>{html.escape(title)}</h1>
{body}
</body></html>
"""


def sentence(text: str) -> str:
    """Escaped; what stands between backquotes is a command.

    >>> sentence("try `ostta demo`")
    'try <code>ostta demo</code>'
    """
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", html.escape(text))


def items(texts: list[str], *, numbered: bool = False) -> str:
    """A list of sentences; nothing where there are none.

    >>> items(["one"])
    '<ul class="note"><li>one</li></ul>'
    """
    tag = "ol" if numbered else "ul"
    return f'<{tag} class="note">{"".join(f"<li>{sentence(text)}</li>" for text in texts)}</{tag}>' if texts else ""


def details(summary: str, content: str) -> str:
    """Text that is folded away.

    >>> details("options", "lr: 0.1")
    '<details><summary>options</summary><pre>lr: 0.1</pre></details>'
    """
    return f"<details><summary>{html.escape(summary)}</summary><pre>{html.escape(content)}</pre></details>"
