"""Claims on a server: each from where the previous one ended, and under the locks of limits where there are any."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Protocol

from holdfast.backends.sql.lane_cache import Lanes
from holdfast.store.claim_floor import Floors, Place
from holdfast.store.job_rows import JobRows
from holdfast.store.jobs_over_rows import JobsOverRows
from holdfast.store.steps import Runner, Steps
from holdfast.store.values import Claim, ClaimRequest


class TakenJobs(Protocol):
    """The jobs that a claim has leased, and the place of the last one in each lane."""

    @property
    def claim(self) -> Claim: ...  # noqa: D102 - see above
    @property
    def last(self) -> Mapping[int, Place]: ...  # noqa: D102
    @property
    def is_barred(self) -> bool:
        """Whether nothing was claimed because a limit concerns a lane with jobs."""
        ...


class JobsWithFloors(JobsOverRows):
    """`JobStore` with the claims of a server store."""

    def __init__(
        self,
        runner: Runner,
        rows: JobRows,
        *,
        lanes: Lanes,
        floors: Floors,
        ended: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(runner, rows, ended)
        self._lanes = lanes
        self._floors = floors

    @abstractmethod
    async def take(self, request: ClaimRequest, floors: dict[int, Place]) -> TakenJobs:
        """Claim without the locks of limits, from these places on."""

    @abstractmethod
    def take_limited(self, request: ClaimRequest) -> Steps[Claim]:
        """Claim under the locks of limits."""

    async def claim(self, request: ClaimRequest) -> Claim:  # noqa: D102 - the port states the contracts
        if request.limit < 1 or not request.tasks:
            return Claim([])
        taken, scanned = await self._claim(request)
        if taken is not None and not taken.jobs and not scanned and self._floors.came_short(found_none=True):
            taken, scanned = await self._claim(request)
        elif taken is not None and len(taken.jobs) < request.limit and not taken.is_cut:
            self._floors.came_short(found_none=False)
        if taken is None:
            return await self._runner.write(lambda: self.take_limited(request))
        return taken

    async def _claim(self, request: ClaimRequest) -> tuple[Claim | None, bool]:
        """Return what was claimed, None if a limit has to be locked for that; and whether the scan was a full one."""
        floors, mark = self._floors.starts()
        began = time.monotonic()
        taken = await self.take(request, floors)
        self._floors.claimed(mark, taken.last, took=time.monotonic() - began, scanned=not floors)
        return None if taken.is_barred else taken.claim, not floors
