"""What the attempts of a worker share."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from holdfast.jobs.context import Context
from holdfast.model.job import LeasedJob
from holdfast.store.backend import Backend
from holdfast.worker.held_leases import HeldLeases


class WorkerServices(msgspec.Struct, frozen=True):
    """The store, the length of the leases, and the leases themselves."""

    backend: Backend
    lease: timedelta
    holdings: HeldLeases

    def context(self, job: LeasedJob) -> Context:
        """Return the context of an attempt at a job."""
        return Context(job, self.backend, lease=self.lease, keeper=self.holdings.of(job))
