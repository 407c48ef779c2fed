"""The endpoint of `worker run --metrics-port`, for one process and for several under a supervisor."""

from __future__ import annotations

import re
import signal

import httpx
import psutil
import pytest
from tests.system.cli_program import Cli, wait_for_line
from tests.system.harness import SOON, all_gone, eventually
from tests.telemetry.samples import Samples

from holdfast import App

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
JOBS = 9


class Endpoint:
    """The endpoint of a worker on the shop of `Cli`, and what its answers must become."""

    def __init__(self, url: str) -> None:
        self.url = url

    def get(self, path: str) -> httpx.Response:
        return httpx.get(self.url + path, timeout=SOON)

    def failed_checks(self) -> set[str]:
        """Return the checks of `/readyz` that fail; its status agrees with them."""
        response = self.get("/readyz")
        failed = {name for name, check in response.json()["checks"].items() if not check["ok"]}
        assert response.status_code == (503 if failed else 200)
        return failed

    def becomes_ready(self) -> None:
        eventually(lambda: not self.failed_checks(), "the worker is ready")

    def samples(self) -> Samples:
        return Samples(self.get("/metrics").content)

    def sum(self, name: str) -> float:
        """Return the sum over all labels."""
        return sum(one.value for one in self.samples().all if one.name == name)

    def completed(self) -> float:
        return self.sum("holdfast_jobs_finished_total")

    def completes(self, number: int) -> None:
        eventually(lambda: self.completed() >= number, f"{number} jobs are counted")
        assert self.completed() == number


@pytest.mark.parametrize("processes", [1, 3])
def test_the_endpoint_of_a_worker_sums_up_its_processes_and_knows_whether_they_work(tmp_path, processes):
    cli = Cli(tmp_path)
    shop = App(f"sqlite:///{tmp_path / 'shop.db'}")

    @shop.task(queue="orders")
    def charge(order_id: int) -> None: ...

    @shop.task
    def nap(seconds: float) -> None: ...

    options = ("--processes", str(processes), "--metrics-port", "0")
    with shop.sync, cli.started("worker", "run", *cli.app, *options) as worker:
        endpoint = Endpoint(re.findall(r"metrics at (http://\S+)/metrics", wait_for_line(worker, "/readyz"))[0])
        endpoint.becomes_ready()
        charge.sync.enqueue_many([{"order_id": number} for number in range(JOBS)])
        endpoint.completes(JOBS)
        finished = {"queue": "orders", "task": "charge", "outcome": "completed"}
        assert endpoint.samples().value("holdfast_jobs_finished_total", **finished) == JOBS
        assert endpoint.get("/livez").status_code == 200
        assert endpoint.get("/").status_code == 404

        children = psutil.Process(worker.pid).children()
        if processes > 1:
            workers = [each for each in children if each.name() != "holdfast-guard" and not each.net_connections()]
            assert len(workers) == processes  # none of them listens
            for process in workers:
                process.kill()
            all_gone(workers, within=SOON)
            assert endpoint.completed() == JOBS  # their successors go on counting from there
            charge.sync.enqueue_many([{"order_id": number} for number in range(JOBS)])
            endpoint.completes(2 * JOBS)

        nap.sync.enqueue(2.0)
        eventually(lambda: endpoint.sum("holdfast_jobs_running") == 1, "a job runs")
        worker.send_signal(signal.SIGTERM)
        eventually(lambda: "stopping" in endpoint.failed_checks(), "the worker is not ready while it drains")
        assert endpoint.get("/livez").status_code == 200
        assert worker.wait(SOON) == 0
        all_gone(children, within=SOON)
        with pytest.raises(httpx.ConnectError):
            endpoint.get("/livez")
