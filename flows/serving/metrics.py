"""What a server of a model tells Prometheus: requests, rows, seconds, and what its process uses."""

from __future__ import annotations

import prometheus_client as prometheus
from starlette.responses import Response

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """The metrics of one server.

    :ivar under_way: how many requests are.
    """

    def __init__(self) -> None:
        self._registry = registry = prometheus.CollectorRegistry()
        prometheus.ProcessCollector(registry=registry)  # memory, CPU time, open files
        self._requests = prometheus.Counter(
            "gptmill_requests", "Requests, by path and status.", ["path", "status"], registry=registry
        )
        self._rows = prometheus.Counter("gptmill_rows", "Rows and prompts that were answered.", registry=registry)
        about = "Seconds from a request's head to the end of its answer."
        self._seconds = prometheus.Histogram(
            "gptmill_request_seconds", about, ["path"], buckets=_SECONDS, registry=registry
        )
        self.under_way = prometheus.Gauge(
            "gptmill_requests_under_way", "Requests that are not answered yet.", registry=registry
        )

    def add(self, path: str, status: int, rows: int, seconds: float) -> None:
        self._requests.labels(path, status).inc()
        self._seconds.labels(path).observe(seconds)
        self._rows.inc(rows)

    def page(self) -> Response:
        return Response(prometheus.generate_latest(self._registry), media_type=prometheus.CONTENT_TYPE_LATEST)
