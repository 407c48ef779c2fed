"""Ship the orders in three processes, each with its own timer: python worker.py."""

from __future__ import annotations

import logging
import os
import sys

from orders import app

EVERY = float(os.environ.get("ORDERS_EVERY", "60"))  # seconds

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stdout)
    sys.exit(
        app.run_worker(
            processes=3,  # under a supervisor
            queues=["orders"],
            poll_interval=EVERY,  # the timer of each; after a full batch the next one is claimed at once
            concurrency=1,  # one batch at a time, and
            prefetch_max=0,  # no other in advance: a process holds 50 orders, whatever the backlog
        )
    )
