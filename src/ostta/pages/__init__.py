"""The design of all HTML pages, in one place. A page is made of parts; no other room writes HTML.

parts.py      what a page can be made of: texts, tables, charts, strips of images, commands
chart.py      charts as SVG that follow the colours and the width of the page
render.py     from parts to one file
templates/    the HTML, the style and the script of that file

Everything is escaped, and nothing is loaded from elsewhere: a page says so to the browser too (Content-Security-Policy). The script
copies commands and filters by method; without it the page is complete.
"""

from __future__ import annotations

from .chart import Axis, Chart
from .parts import (
    Bars,
    Bullets,
    Cell,
    Command,
    Events,
    Figures,
    Folded,
    Grid,
    Interval,
    Intervals,
    Key,
    Page,
    Part,
    Picture,
    Row,
    Section,
    Shot,
    Strip,
    Table,
    Text,
)
from .render import html_page

__all__ = [
    "Axis",
    "Bars",
    "Bullets",
    "Cell",
    "Chart",
    "Command",
    "Events",
    "Figures",
    "Folded",
    "Grid",
    "Interval",
    "Intervals",
    "Key",
    "Page",
    "Part",
    "Picture",
    "Row",
    "Section",
    "Shot",
    "Strip",
    "Table",
    "Text",
    "html_page",
]
