"""Lease ready jobs to a worker, in one statement."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from holdfast.backends.postgres.claim_floor import Place
from holdfast.backends.sql.steps import rows
from holdfast.model.instants import span_micros
from holdfast.model.job import LeasedJob
from holdfast.store.steps import Steps
from holdfast.store.values import Claim, ClaimRequest

_decode_headers = msgspec.json.Decoder(dict[str, str]).decode


class Taken(NamedTuple):
    """The jobs that a claim statement leased, and the place of the last one in each lane."""

    claim: Claim
    last: dict[int, Place]


def claim(request: ClaimRequest, floors: dict[int, Place]) -> Steps[Taken]:
    """Claim the first jobs by turn and seq over all lanes, from their floors on; one fence for all of them."""
    found = yield from rows(
        "claim",
        worker_id=request.worker_id,
        tasks=list(request.tasks),
        queues=None if request.queues is None else list(request.queues),
        limit=request.limit,
        span=span_micros(request.lease),
        isolates=request.isolates,
        max_bytes=request.max_bytes,
        floor_lanes=list(floors),
        floor_turns=[turn for turn, _ in floors.values()],
        floor_seqs=[seq for _, seq in floors.values()],
    )
    jobs: list[LeasedJob] = []
    last: dict[int, Place] = {}
    for row in found:
        headers = row[5]
        columns: Any = row[:17] if headers is None else (*row[:5], _decode_headers(headers), *row[6:17])
        jobs.append(LeasedJob(*columns))
        last[row[17]] = (row[10], row[1])
    return Taken(Claim(jobs, is_cut=bool(found) and found[0][18] > len(found)), last)
