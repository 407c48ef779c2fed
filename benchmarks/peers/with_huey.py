"""huey on SQLite. It acknowledges nothing: a job is gone once it was taken.

Its commits are synced (fsync=True), as ours are. There is no call for many jobs: they are enqueued in turn. One worker
thread, no results.
"""

from __future__ import annotations

import logging
import threading
import time

from driver_report import LOOK_EVERY, arguments, report_result
from huey import SqliteHuey

what, count, path = arguments()
logging.getLogger("huey").setLevel(logging.ERROR)
huey = SqliteHuey(filename=path, fsync=True, results=False)
handled = 0
began = 0.0
ended = threading.Event()


@huey.task()
def nothing(n: int) -> None:  # noqa: ARG001 - a job has arguments
    global handled, began  # noqa: PLW0603 - one number per process
    if not handled:
        began = time.perf_counter()
    handled += 1
    if handled == count:
        ended.set()


def main() -> None:
    start = time.perf_counter()
    for number in range(count):
        nothing(number)
    if what != "drain":
        report_result(huey.pending_count(), time.perf_counter() - start)
        return
    consumer = huey.create_consumer(workers=1, periodic=False, initial_delay=0.001, max_delay=0.01)
    consumer.start()
    ended.wait()
    while huey.pending_count():
        time.sleep(LOOK_EVERY)
    report_result(handled, time.perf_counter() - began)
    consumer.stop(graceful=True)


main()
