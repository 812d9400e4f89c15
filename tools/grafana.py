"""`python tools/grafana.py` writes the Grafana dashboard of the container, deploy/grafana/dashboards/ostta.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

OUT = Path(__file__).resolve().parents[1] / "deploy" / "grafana" / "dashboards" / "ostta.json"
SOURCE = {"type": "prometheus", "uid": "prometheus"}
SECONDS = 'ostta_request_seconds_bucket{route="/sessions/{id}/images"}'
# Title, kind of panel, unit, width of 24, and queries with their legends.
PANELS: list[tuple[str, str, str, int, list[tuple[str, str]]]] = [
    ("Sessions", "stat", "none", 4, [("ostta_sessions", "")]),
    ("Images a second", "stat", "none", 4, [("rate(ostta_images_judged_total[1m])", "")]),
    ("Images waiting", "stat", "none", 4, [("ostta_images_waiting", "")]),
    ("Sessions that cannot be stored", "stat", "none", 4, [("ostta_sessions_with_a_problem", "")]),
    ("Stored sessions that could not be read", "stat", "none", 4, [("ostta_sessions_unreadable", "")]),
    ("Replicas (engine ray)", "stat", "none", 4, [("ostta_replicas", "")]),
    ("Images a second", "timeseries", "none", 12, [("rate(ostta_images_judged_total[1m])", "judged")]),
    (
        "Seconds of a request with images",
        "timeseries",
        "s",
        12,
        [
            (f"histogram_quantile({share}, sum by (le) (rate({SECONDS}[1m])))", name)
            for share, name in ((0.5, "half"), (0.95, "95 of 100"), (0.99, "99 of 100"))
        ],
    ),
    (
        "Requests a second by status",
        "timeseries",
        "none",
        12,
        [("sum by (status) (rate(ostta_requests_total[1m]))", "{{status}}")],
    ),
    (
        "Refused for now (429 and 503) a second",
        "timeseries",
        "none",
        12,
        [('sum by (status) (rate(ostta_requests_total{status=~"429|503"}[1m]))', "{{status}}")],
    ),
    (
        "Snapshots a second",
        "timeseries",
        "none",
        12,
        [("rate(ostta_saves_total[1m])", "stored"), ("rate(ostta_save_failures_total[1m])", "failed")],
    ),
    (
        "Sessions and images waiting",
        "timeseries",
        "none",
        12,
        [("ostta_sessions", "sessions"), ("ostta_images_waiting", "images waiting")],
    ),
]


def dashboard() -> dict[str, Any]:
    """The panels in rows of 24 columns."""
    panels: list[dict[str, Any]] = []
    x = y = 0
    for number, (title, kind, unit, width, queries) in enumerate(PANELS, start=1):
        height = 4 if kind == "stat" else 8
        panels.append(
            {
                "id": number,
                "title": title,
                "type": kind,
                "datasource": SOURCE,
                "gridPos": {"x": x, "y": y, "w": width, "h": height},
                "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
                "targets": [
                    {"refId": chr(ord("A") + place), "datasource": SOURCE, "expr": query, "legendFormat": legend}
                    for place, (query, legend) in enumerate(queries)
                ],
            }
        )
        x += width
        if x == 24:
            x, y = 0, y + height
    return {
        "uid": "ostta",
        "title": "ostta",
        "tags": ["ostta"],
        "timezone": "browser",
        "refresh": "15s",
        "time": {"from": "now-1h", "to": "now"},
        "schemaVersion": 39,
        "panels": panels,
    }


if __name__ == "__main__":
    OUT.write_text(json.dumps(dashboard(), indent=2) + "\n", encoding="utf-8")
