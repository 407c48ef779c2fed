"""dramatiq on Redis: prefetch of 1,000, eight threads; many jobs one by one, since it has no call for many."""

from __future__ import annotations

import os
import threading
import time

os.environ["dramatiq_queue_prefetch"] = "1000"  # noqa: SIM112 - its name for it

import dramatiq
import redis
from dramatiq.brokers.redis import RedisBroker
from driver_report import arguments, report_result

what, count, url = arguments()
broker = RedisBroker(url=url)
dramatiq.set_broker(broker)
began: list[float] = []
handled = 0
lock = threading.Lock()
everything = threading.Event()


@dramatiq.actor(max_retries=0)
def nothing(n: int) -> None:  # noqa: ARG001 - a job has arguments
    global handled  # noqa: PLW0603 - one number per process
    with lock:
        if not handled:
            began.append(time.perf_counter())
        handled += 1
        if handled == count:
            everything.set()


def waiting() -> int:
    """Count messages that are waiting, or taken and not acknowledged."""
    with redis.Redis.from_url(url) as client:
        return sum(client.hlen(key) for key in client.scan_iter("dramatiq:*.msgs"))


start = time.perf_counter()
for number in range(count):
    nothing.send(number)
seconds = time.perf_counter() - start
if what != "drain":
    report_result(waiting(), seconds)
else:
    worker = dramatiq.Worker(broker, worker_threads=8, worker_timeout=100)
    worker.start()
    everything.wait()
    looked = time.perf_counter()
    while waiting():
        time.sleep(0.005)
        looked = time.perf_counter()
    report_result(handled, looked - began[0])
    worker.stop()
