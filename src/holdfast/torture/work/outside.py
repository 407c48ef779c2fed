"""Effects outside the store: sent at least once, with the job's id as idempotency key and the fence."""

from __future__ import annotations

import http.client
import json
import os
import random
from urllib.parse import urlsplit

from holdfast.errors import HoldfastError
from holdfast.jobs.context import Context
from holdfast.torture.events import OutsideAnswered, OutsideSent, Takes
from holdfast.torture.history import now_us
from holdfast.torture.names import QUEUE
from holdfast.torture.recorder import recorder
from holdfast.torture.work.app import AGAIN, OUTSIDE, app
from holdfast.torture.work.attempt import attempt
from holdfast.torture.work.base import Order, Work

_TIMEOUT = 5.0  # seconds
_TAKEN, _KNOWN = 201, 200


class OutsideRefused(HoldfastError):  # noqa: N818 - what happened
    """The outside server has seen a larger fence: this attempt is no longer the holder."""


@app.task(queue=QUEUE, retry=AGAIN, max_attempts=20)
def call_outside(payment: str, ctx: Context) -> None:
    """Send the effect to the outside server, and complete once it is accepted."""
    with attempt(ctx):
        _send(payment, ctx)


def _send(payment: str, ctx: Context) -> None:
    job, fence = ctx.job.id, ctx.fence
    recorder.write(OutsideSent(at_us=now_us(), job=job, fence=fence, key=job))
    accepted: bool | None = None
    status = 0
    try:
        status = _post({"key": job, "fence": fence, "payment": payment})
        accepted = status == _TAKEN
    finally:
        recorder.write(OutsideAnswered(at_us=now_us(), job=job, fence=fence, key=job, accepted=accepted))
    if status not in {_TAKEN, _KNOWN}:
        raise OutsideRefused(f"the outside server refused fence {fence}")


def _post(effect: dict[str, str | int]) -> int:
    place = urlsplit(os.environ[OUTSIDE])
    connection = http.client.HTTPConnection(place.hostname or "127.0.0.1", place.port, timeout=_TIMEOUT)
    try:
        connection.request("POST", "/effects", json.dumps(effect), {"Content-Type": "application/json"})
        return connection.getresponse().status
    finally:
        connection.close()


def _payments(chance: random.Random, count: int) -> Order:
    """Each payment is made once, so each has a unique number."""
    return Order(task=call_outside, calls=[{"payment": f"{chance.getrandbits(64):016x}"} for _ in range(count)])


WORKS = (Work(name="call_outside", weight=1, takes=Takes.OUTSIDE, draw=_payments),)
