"""Metrics for Prometheus. No label names a session, so that one client learns nothing about another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
ABOUT = {
    "sessions": "Sessions.",
    "sessions_open": "Sessions in a replica.",
    "replicas": "Running replicas.",
    "sessions_with_a_problem": "Sessions that cannot be stored at this time.",
    "sessions_unreadable": "Stored sessions that could not be restored at the start.",
    "images_waiting": "Waiting images.",
    "images_judged_total": "Images that were judged with learning.",
    "images_undecided_total": "Judged images that came too early in their stream to be decided.",
    "images_with_probability_total": "Judged images with a probability.",
    "probability_sum_total": "Sum of the probabilities that a judged image is known; "
    "divide its rate by that of images_with_probability_total.",
    "guard_events_total": "Events of guards: warnings, skipped updates, rollbacks, freezes and recoveries.",
    "saves_total": "States that were stored.",
    "save_failures_total": "States that could not be stored.",
}


class Metrics:
    """The metrics of one server."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter("ostta_requests", "Requests.", ["route", "status"], registry=self._registry)
        self._seconds = Histogram(
            "ostta_request_seconds",
            "Seconds from the head of a request to the end of its answer.",
            ["route"],
            buckets=BUCKETS,
            registry=self._registry,
        )
        self._engine = _Engine()
        self._registry.register(self._engine)
        ProcessCollector(registry=self._registry)

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Count a request; `route` is the template of its address."""
        self._requests.labels(route, status).inc()
        self._seconds.labels(route).observe(seconds)

    def text(self, counts: Mapping[str, float]) -> bytes:
        """Return all metrics as text; `counts` are those of the engine."""
        self._engine.counts = counts
        return generate_latest(self._registry)


class _Engine(Collector):
    """The last values of the engine."""

    counts: Mapping[str, float] = MappingProxyType({})

    def collect(self) -> Iterator[Metric]:
        for name, value in self.counts.items():
            kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            yield kind(f"ostta_{name.removesuffix('_total')}", ABOUT.get(name, name), value=value)
