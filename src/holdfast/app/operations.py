"""`app.operations`: retry, cancel or delete many jobs in the background, chunk by chunk, in any process."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from holdfast.app.admin import check_limit
from holdfast.app.bulk import BATCH, JobSelection, cancel_batch, check_reason, delete_batch, retry_batch
from holdfast.app.job_search import FoundJobs, search
from holdfast.app.operation import (
    KeptOperation,
    OperationAction,
    OperationPreview,
    OperationState,
    OperationView,
    check_action,
    decode,
    encode,
    is_within,
    view,
)
from holdfast.app.sync import Blocking, Sync
from holdfast.errors import NotFound, OutcomeUnknown, StoreUnavailable
from holdfast.model.ids import id_text, new_id
from holdfast.model.instants import to_datetime
from holdfast.runtime.text import clean
from holdfast.store.records import RecordStore, StoredRecord

if TYPE_CHECKING:
    from holdfast.app.app import App

PENDING, ENDED = "operation", "operation.ended"
CHUNK = BATCH  # jobs of one step
COUNTED = LOOKED_AT = 4_000
"""Jobs at which a preview stops, and jobs that it reads, fitting or not: each costs some 40 microseconds, and a person
waits for the answer."""
KEEP = timedelta(days=90)
MOST = 1_000  # ended operations
_PAGE = 1_000
_AT_ONCE = 100
_REPEATS = 20  # of a change that others were faster with
_WHO = 200  # bytes


class Operations:
    """`app.operations`: change many jobs, selected by state, queue, task and age, in the background.

    An operation is a record in the store. Any process that calls `run_pending` or `step` carries out its next chunk; if
    the process ends in the middle, another repeats the chunk. Whether a job may be changed is checked again for each
    one, by the verb that changes it.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self.held = timedelta(seconds=30)
        """After so long without progress, another process repeats the chunk that a process has begun."""

    @property
    def sync(self) -> SyncOperations:
        """The same with blocking calls."""
        return SyncOperations(self, self._app.portal)

    async def preview(self, action: OperationAction | str, selection: JobSelection) -> OperationPreview:
        """Return how many jobs an operation would change now; reads 4,000 jobs at most."""
        _, checked = check_action(action, selection)
        return await self._count(checked, await self._now() - checked.older_than)

    async def start(
        self, action: OperationAction | str, selection: JobSelection, who: str, *, reason: str = ""
    ) -> OperationView:
        """Record an operation, to be carried out by `step` or `run_pending`; `reason` is that of a cancellation.

        Jobs that are enqueued, or that end, from now on do not belong to it. Raises `ConfigError` if the action cannot
        be done to jobs in this state.
        """
        known, checked = check_action(action, selection)
        text = check_reason(reason)
        now = await self._now()
        ended_by = now - checked.older_than
        expected = await self._count(checked, ended_by)
        kept = KeptOperation(known, checked, clean(who, _WHO), text, expected, started_at=now, ended_by=ended_by)
        operation_id = new_id()
        records = await self._records()
        try:
            await records.put(PENDING, operation_id, 0, encode(kept))
        except OutcomeUnknown:
            if await records.get(PENDING, operation_id) is None:
                raise
        return await self.get(operation_id)

    async def get(self, operation_id: str | UUID) -> OperationView:
        """Return an operation; raises `NotFound`."""
        return view(await self._find(await self._records(), operation_id))

    async def list(self, limit: int = 50, *, before: str | None = None) -> Sequence[OperationView]:
        """List operations, the last started first; the next page is that `before` the id of the last one."""
        records = await self._records()
        found: dict[str, StoredRecord] = {}
        for kind in (PENDING, ENDED):  # an operation that moves between the two reads is in both, or in the second
            page = await records.page(kind, check_limit(limit), after=before, descending=True)
            found |= {record.name: record for record in page}
        return [view(found[name]) for name in sorted(found, reverse=True)[:limit]]

    async def cancel(self, operation_id: str | UUID) -> OperationView:
        """End an operation before its next chunk; what it has changed stays changed. Raises `NotFound`."""
        records = await self._records()
        for _ in range(_REPEATS):
            found = await self._find(records, operation_id)
            kept = decode(found)
            if kept.state is not OperationState.RUNNING or kept.cancel_asked:
                return view(found)
            asked = kept.cancelled(is_held=self._is_held(found, kept))
            if await records.put(PENDING, found.name, found.version, encode(asked)):
                if asked.state is not OperationState.RUNNING:
                    await self._move(records, found.name)
                return await self.get(operation_id)
        raise _contended(operation_id)

    async def step(self, operation_id: str | UUID) -> OperationView:
        """Carry out the next chunk, unless the operation has ended or another process does it. Raises `NotFound`."""
        records = await self._records()
        found = await self._find(records, operation_id)
        await self._advance(records, found)
        return await self.get(operation_id)

    async def run_pending(self) -> int:
        """Carry out all operations in turns, chunk by chunk, until there is none to advance; return how many chunks.

        A background task calls it again and again: after `start`, and every few seconds, because a process that ends
        leaves its chunk to others. A call that finds nothing costs one read.
        """
        records = await self._records()
        chunks = 0
        while True:
            pending = await records.page(PENDING, _AT_ONCE)
            advanced = sum([await self._advance(records, found) for found in pending])
            if not advanced:
                return chunks
            chunks += advanced

    async def _advance(self, records: RecordStore, found: StoredRecord) -> bool:
        """Carry out the next chunk; return whether this call has advanced the operation."""
        kept = decode(found)
        if kept.state is not OperationState.RUNNING:
            return await self._move(records, found.name)
        if self._is_held(found, kept):
            return False
        if kept.cancel_asked:  # while a process held it that has ended since
            ended = encode(kept.cancelled(is_held=False))
            return await records.put(PENDING, found.name, found.version, ended) and await self._move(
                records, found.name
            )
        holder = secrets.token_hex(8)
        if not await records.put(PENDING, found.name, found.version, encode(kept.held_by(holder))):
            return False  # another process was faster
        page = await search(self._app, kept.selection, cursor=kept.cursor, limit=CHUNK)
        counts = await self._change(kept, page, found.touched_at + found.age)
        return await self._record(records, found.name, holder, page, counts)

    async def _change(self, kept: KeptOperation, page: FoundJobs, now: datetime) -> Mapping[str, int]:
        ids = [job.id for job in page.jobs if kept.includes(job)]
        if not ids:
            return {}
        match kept.action:
            case OperationAction.RETRY:
                return {
                    str(answer): count for answer, count in (await retry_batch(self._app, ids, kept.ended_by)).items()
                }
            case OperationAction.CANCEL:
                return {
                    str(answer): count for answer, count in (await cancel_batch(self._app, ids, kept.reason)).items()
                }
            case OperationAction.DELETE:
                age = max(now - kept.ended_by, timedelta(0))
                selection = msgspec.structs.replace(kept.selection, older_than=age)
                deleted = await delete_batch(self._app, ids, selection)
                return {"deleted": deleted, "too_late": len(ids) - deleted}

    async def _record(
        self, records: RecordStore, name: str, holder: str, page: FoundJobs, counts: Mapping[str, int]
    ) -> bool:
        """Record a chunk, once: only if the operation is still held by this call."""
        for _ in range(_REPEATS):
            found = await records.get(PENDING, name)
            if found is None or (kept := decode(found)).holder != holder:
                return False  # this process was too slow, and another has repeated the chunk
            after = kept.advanced(page, counts)
            if await records.put(PENDING, name, found.version, encode(after)):
                if after.state is not OperationState.RUNNING:
                    await self._move(records, name)
                return True
        raise _contended(name)

    async def _move(self, records: RecordStore, name: str) -> bool:
        """Move the record of an operation that has ended to the others; safe to repeat, by any process."""
        found = await records.get(PENDING, name)
        if found is None:
            return False
        await records.put(ENDED, name, 0, found.content)
        await records.delete(PENDING, name, found.version)
        await records.prune(ENDED, keep=KEEP, most=MOST, limit=_AT_ONCE)
        return True

    def _is_held(self, found: StoredRecord, kept: KeptOperation) -> bool:
        return kept.holder is not None and found.age < self.held

    async def _find(self, records: RecordStore, operation_id: str | UUID) -> StoredRecord:
        name = id_text(operation_id)
        found = await records.get(PENDING, name) or await records.get(ENDED, name)
        if found is None:
            raise NotFound(f"there is no operation {name!r}: it never existed, or it ended long ago and was pruned")
        return found

    async def _count(self, selection: JobSelection, ended_by: datetime) -> OperationPreview:
        count = looked_at = 0
        cursor: str | None = None
        while looked_at < LOOKED_AT and count <= COUNTED:
            page = await search(self._app, selection, cursor=cursor, limit=_PAGE)
            count += sum(is_within(job, ended_by) for job in page.jobs)
            looked_at += page.looked_at
            cursor = page.cursor
            if cursor is None:
                break
        return OperationPreview(min(count, COUNTED), cursor is not None or count > COUNTED)

    async def _now(self) -> datetime:
        facts = await (await self._app.opened(install=False)).insight.facts()
        return to_datetime(int(facts["now_us"]))

    async def _records(self) -> RecordStore:
        return (await self._app.opened(install=False)).records


class SyncOperations(Sync[Operations]):
    """`app.operations.sync`."""

    preview = Blocking(Operations.preview)
    start = Blocking(Operations.start)
    get = Blocking(Operations.get)
    list = Blocking(Operations.list)
    cancel = Blocking(Operations.cancel)
    step = Blocking(Operations.step)
    run_pending = Blocking(Operations.run_pending)


def _contended(operation_id: str | UUID) -> StoreUnavailable:
    return StoreUnavailable(f"operation {operation_id} changes faster than it can be read: try again")
