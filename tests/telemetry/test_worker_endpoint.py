"""The endpoint of a worker in one process, by the reports that its hooks bring."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from tests.telemetry.samples import Samples

from holdfast import App
from holdfast.errors import ConfigError, StoreUnavailable
from holdfast.hooks.values import StoreFailure, WorkerReport, WorkerStart
from holdfast.model.totals import Totals
from holdfast.telemetry import serve_metrics
from holdfast.telemetry.http_endpoint import parse_address

REPORT = WorkerReport("worker w", seat=0, slots=1, running=0, totals=Totals(), partitions=0, events=0)
DOWN = StoreFailure("claiming", StoreUnavailable("connection refused"))


def checks(url: str) -> tuple[int, set[str]]:
    """Return the status of `/readyz`, and the checks that fail."""
    response = httpx.get(f"{url}/readyz")
    return response.status_code, {name for name, check in response.json()["checks"].items() if not check["ok"]}


def samples(url: str) -> Samples:
    return Samples(httpx.get(f"{url}/metrics").content)


async def test_the_probe_and_the_metrics_follow_the_reports_of_the_worker(app: App):
    with serve_metrics(app, 0) as url:
        assert checks(url) == (503, {"processes", "schema"})  # it has not started
        app.hooks.worker_start.emit(WorkerStart("worker w", "sqlite://"))
        assert checks(url) == (200, set())

        app.hooks.store_fail.emit(DOWN)
        app.hooks.worker_report.emit(REPORT)
        assert checks(url) == (503, {"store"})
        down = samples(url)
        assert down.value("holdfast_store_up") == 0

        app.hooks.store_recover.emit(DOWN)
        app.hooks.worker_report.emit(REPORT)
        assert checks(url) == (200, set())
        up = samples(url)
        assert up.value("holdfast_store_up") == 1


def test_the_endpoint_answers_three_paths_and_only_reads(tmp_path: Path):
    app = App(f"sqlite:///{tmp_path / 'jobs.db'}")
    with serve_metrics(app, 0) as url, httpx.Client(base_url=url) as http:
        answers = {path: http.get(path).status_code for path in ("/livez", "/metrics", "/readyz?x=1", "/x")}
        assert answers == {"/livez": 200, "/metrics": 200, "/readyz?x=1": 503, "/x": 404}
        head = http.head("/livez")
        assert (head.status_code, head.content, int(head.headers["content-length"]) > 0) == (200, b"", True)
        assert http.post("/livez").status_code == 501
        with pytest.raises(ConfigError, match="cannot serve metrics"), serve_metrics(app, url.removeprefix("http://")):
            pass


@pytest.mark.parametrize(
    ("address", "found"),
    [
        (9108, ("127.0.0.1", 9108)),
        ("9108", ("127.0.0.1", 9108)),
        ("192.0.2.1:0", ("192.0.2.1", 0)),
        (":9108", ("127.0.0.1", 9108)),
        ("[::]:9108", ("::", 9108)),
        ("localhost:65535", ("localhost", 65535)),
    ],
)
def test_an_address_is_a_port_or_a_host_and_a_port(address, found):
    assert parse_address(address) == found


@pytest.mark.parametrize("address", ["", "localhost", "localhost:", "localhost:x", "1:65536", "::1:9108", -1])
def test_what_is_no_address_is_refused_with_the_remedy(address):
    with pytest.raises(ConfigError, match="pass a port"):
        parse_address(address)
