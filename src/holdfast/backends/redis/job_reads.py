"""Reads the records of jobs, with the names in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from holdfast.backends.redis.lane_directory import LaneDirectory
from holdfast.backends.redis.record import (
    APART,
    COMPLETED,
    LEASED,
    RUNNING,
    Names,
    Record,
    bucket,
    member,
    row_of,
    seq_of,
    unpack,
)
from holdfast.backends.redis.steps import pending, read
from holdfast.store.job_rows import JobRow, Locked
from holdfast.store.steps import Steps

CHUNK = 1000  # seqs whose ids are one text, as in `lua/insert.lua`
ID = 16  # bytes of an id
_PAGE = 500
_SPARE = 50


class StoredJob(NamedTuple):
    """A job as it was read."""

    id16: bytes
    text: bytes
    record: Record
    names: Names

    @property
    def member(self) -> bytes:
        """The job as the sets of its states name it."""
        return member(self.record.seq, self.id16)


def result_of(job: StoredJob) -> str | None:
    """Return the result of a completed job."""
    return job.record.extra.result if job.record.code == COMPLETED else None


def ids_by_seq(seqs: Sequence[int]) -> Steps[list[bytes]]:
    """Return the id that each seq was given to, or none; its job may be gone, or be a newer one."""
    ids: list[bytes] = []
    for start in range(0, len(seqs), _PAGE):
        places = [divmod(max(seq, 0), CHUNK) for seq in seqs[start : start + _PAGE]]
        _, found = yield from read(*(("GETRANGE", f"i{chunk}", ID * at, ID * at + ID - 1) for chunk, at in places))
        ids += [id16 if id16.strip(b"\0") else b"" for id16 in found]
    return ids


def found_by_seq(seqs: Sequence[int]) -> Steps[list[bytes]]:
    """Return the ids that these seqs were given to."""
    return [id16 for id16 in (yield from ids_by_seq(seqs)) if len(id16) == ID]


class JobReads:
    """Reads records."""

    def __init__(self, directory: LaneDirectory) -> None:
        self.directory = directory

    def seen(self, ids: Sequence[bytes]) -> Steps[tuple[int, list[StoredJob]]]:
        """Return the clock, and the jobs that exist, each once."""
        wanted = list(dict.fromkeys(ids))
        texts: list[bytes | None] = []
        now = 0
        for start in range(0, len(wanted) or 1, _PAGE):
            now, found = yield from read(*(("HGET", bucket(id16), id16) for id16 in wanted[start : start + _PAGE]))
            texts += found
        written = (yield from pending()).written
        found = [(id16, written.get(id16, text)) for id16, text in zip(wanted, texts, strict=True)]
        records = [(id16, text, unpack(text)) for id16, text in found if text is not None]
        numbers = sorted({record.worker for _, _, record in records if record.flags & LEASED})
        workers: dict[int, bytes] = {}
        for start in range(0, len(numbers), _PAGE):
            some = numbers[start : start + _PAGE]
            _, (names,) = yield from read(("HMGET", "workers", *some))
            workers |= {number: name or b"?" for number, name in zip(some, names, strict=True)}
        answer: list[StoredJob] = []
        for id16, text, record in records:
            worker = workers[record.worker] if record.flags & LEASED else None
            answer.append(StoredJob(id16, text, record, (yield from self.directory.names(record.lane, worker))))
        return now, answer

    def rows(self, ids: Sequence[bytes]) -> Steps[tuple[int, list[JobRow]]]:
        """Return the clock, and the rows of jobs that exist, each once."""
        now, found = yield from self.seen(ids)
        return now, [row_of(job.id16, job.text, job.names) for job in found]

    def by_members(self, members: Iterable[bytes]) -> Steps[dict[bytes, StoredJob]]:
        """Return the jobs of members that exist, in their order."""
        wanted = list(dict.fromkeys(members))
        _, found = yield from self.seen([name[8:] for name in wanted])
        by_member = {job.member: job for job in found}
        return {name: by_member[name] for name in wanted if name in by_member}

    def by_seq(self, seqs: Sequence[int]) -> Steps[list[StoredJob]]:
        """Return the jobs with these seqs that exist."""
        _, found = yield from self.seen((yield from found_by_seq(seqs)))
        wanted = set(seqs)
        return [job for job in found if job.record.seq in wanted]

    def body(self, id16: bytes, text: bytes) -> Steps[bytes]:
        """Return a job's body, with the payload's length in front."""
        record = unpack(text)
        if not record.flags & APART:
            return record.body
        _, (rest,) = yield from read(("HGET", bucket(id16), id16 + b"p"))
        return record.body + (rest or b"")

    def _leased(self, found: Sequence[tuple[bytes, bytes]], most: int | None) -> Steps[list[JobRow]]:
        """Return the running jobs of these members and ends of leases, whose leases are not longer than `most`."""
        ends = dict(found)
        kept = [
            job
            for job in (yield from self.by_members(ends)).values()
            if job.record.code == RUNNING and (most is None or job.record.span <= most)
        ]
        if not kept:
            return []
        workers = sorted({job.record.worker for job in kept})
        _, numbers = yield from read(*(("ZCARD", f"w{worker}") for worker in workers))
        held = dict(zip(workers, numbers, strict=True))
        return [row_of(job.id16, job.text, job.names, ends[job.member], held[job.record.worker]) for job in kept]

    def expired(self, most: int | None, limit: int) -> Steps[Locked]:
        """Return jobs whose leases have expired, the first to expire first."""
        rows: list[JobRow] = []
        start = 0
        while True:
            now, (found,) = yield from read(("ZRANGE", "leases", start, start + _PAGE - 1, "WITHSCORES"))
            pairs = [pair for pair in zip(found[::2], found[1::2], strict=True) if float(pair[1]) <= now]
            # Some more than wanted: a job may end before its record is read.
            some = pairs[: max(limit - len(rows), 0) + _SPARE] if most is None else pairs
            rows += yield from self._leased(some, most)
            start += _PAGE
            if len(rows) >= limit or len(pairs) < _PAGE:
                return Locked(now, rows[:limit])

    def of_worker(self, worker_id: str, limit: int) -> Steps[Locked]:
        """Return running jobs of a worker, by seq."""
        _, (number,) = yield from read(("HGET", "worker", worker_id))
        now, (found,) = yield from read(("ZRANGE", f"w{(number or b'0').decode()}", 0, -1))
        names = sorted(found, key=seq_of)[:limit]
        if not names:
            return Locked(now, [])
        _, ends = yield from read(*(("ZSCORE", "leases", name) for name in names))
        pairs = [(name, until) for name, until in zip(names, ends, strict=True) if until is not None]
        return Locked(now, (yield from self._leased(pairs, None)))
