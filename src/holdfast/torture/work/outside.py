"""Effects outside the store: sent at least once, with the job's id as idempotency key and the fence."""

from __future__ import annotations

import http.client
import json
import os
from urllib.parse import urlsplit

from holdfast.errors import HoldfastError
from holdfast.jobs.context import Context
from holdfast.torture.events import OutsideAnswered, OutsideSent, Takes
from holdfast.torture.history import now_us
from holdfast.torture.names import QUEUE
from holdfast.torture.recorder import recorder
from holdfast.torture.work.app import AGAIN, OUTSIDE, app
from holdfast.torture.work.attempt import attempt
from holdfast.torture.work.base import Work, calls_of

_PATIENCE = 5.0  # seconds
_TAKEN, _KNOWN = 201, 200


class OutsideRefused(HoldfastError):  # noqa: N818 - what happened
    """The outside world has seen a larger fence: this attempt is no longer the holder."""


@app.task(queue=QUEUE, retry=AGAIN, max_attempts=20)
def call_outside(ctx: Context) -> None:
    """Tell the outside world, and complete once it has the effect."""
    with attempt(ctx):
        _send(ctx)


def _send(ctx: Context) -> None:
    job, fence = ctx.job.id, ctx.fence
    recorder.write(OutsideSent(at_us=now_us(), job=job, fence=fence, key=job))
    accepted: bool | None = None
    status = 0
    try:
        status = _post(job, fence)
        accepted = status == _TAKEN
    finally:
        recorder.write(OutsideAnswered(at_us=now_us(), job=job, fence=fence, key=job, accepted=accepted))
    if status not in {_TAKEN, _KNOWN}:
        raise OutsideRefused(f"the outside world has refused fence {fence}")


def _post(key: str, fence: int) -> int:
    place = urlsplit(os.environ[OUTSIDE])
    connection = http.client.HTTPConnection(place.hostname or "127.0.0.1", place.port, timeout=_PATIENCE)
    try:
        body = json.dumps({"key": key, "fence": fence})
        connection.request("POST", "/effects", body, {"Content-Type": "application/json"})
        return connection.getresponse().status
    finally:
        connection.close()


WORKS = (Work(name="call_outside", weight=1, takes=Takes.OUTSIDE, draw=calls_of(call_outside)),)
