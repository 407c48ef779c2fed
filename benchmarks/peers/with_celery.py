"""Celery on Redis: the solo pool, prefetch of 1,000; many jobs one by one on one connection."""

from __future__ import annotations

import os
import threading
import time

import redis
from celery import Celery
from driver_report import arguments, report_result

what, count, url = arguments()
app = Celery("bench", broker=url)
app.conf.update(
    worker_prefetch_multiplier=1000,
    task_ignore_result=True,
    broker_connection_retry_on_startup=True,
    worker_redirect_stdouts=False,
)
began: list[float] = []
handled = 0
everything = threading.Event()


@app.task
def nothing(n: int) -> None:  # noqa: ARG001 - a job has arguments
    global handled  # noqa: PLW0603 - one number per process
    if not handled:
        began.append(time.perf_counter())
    handled += 1
    if handled == count:
        everything.set()


def waiting() -> int:
    """Count messages that are waiting, or taken and not acknowledged."""
    with redis.Redis.from_url(url) as client:
        return int(client.llen("celery")) + int(client.hlen("unacked"))


start = time.perf_counter()
with app.producer_pool.acquire(block=True) as producer:
    for number in range(count):
        nothing.apply_async((number,), producer=producer)
seconds = time.perf_counter() - start
if what != "drain":
    report_result(waiting(), seconds)
    os._exit(0)


def report() -> None:
    everything.wait()
    looked = time.perf_counter()
    while waiting():
        time.sleep(0.005)
        looked = time.perf_counter()
    report_result(handled, looked - began[0])
    os._exit(0)


threading.Thread(target=report, daemon=True).start()
app.Worker(pool="solo", loglevel="ERROR", without_gossip=True, without_mingle=True, without_heartbeat=True).start()
