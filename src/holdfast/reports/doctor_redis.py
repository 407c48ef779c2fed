"""The checks of `holdfast doctor` for a Redis or Valkey server; other stores report no such facts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from holdfast.reports.finding import Finding, FindingLevel, fine

_NEARLY_FULL, _FULL = 0.8, 0.95  # of maxmemory
_OF_THE_MACHINE = 0.6  # of its memory: a fork for a snapshot may double what the server uses
_LONG_FORK = 1_000_000  # microseconds in which no call is answered
_GIGA = 1e9
_SHORT_SCRIPT = 1000  # milliseconds; the longest scripts of ours, and their handlers' effects, take a fraction of it
_SLACK = 1.1  # of the bytes that completed jobs may take: workers prune them from time to time


def examine_redis(facts: Mapping[str, str]) -> Iterator[Finding]:
    """Yield the findings about the server's memory, replicas, files and scripts, and about the completed jobs."""
    if "evicts" not in facts:  # only a server that keeps its data in memory reports it
        return
    yield _memory(facts)
    yield _eviction(facts)
    yield _replicas(facts)
    yield _files(facts)
    yield _scripts(facts)
    yield _completed(facts)


def _number(facts: Mapping[str, str], name: str) -> int:
    text = facts.get(name, "")
    return int(text) if text.isdigit() else 0


def size(number: int) -> str:
    """Return a number of bytes as text."""
    return f"{number / _GIGA:.1f} GB" if number >= _GIGA else f"{number / 1e6:.1f} MB"


def _memory(facts: Mapping[str, str]) -> Finding:
    used, most, machine = (_number(facts, name) for name in ("used_memory", "maxmemory", "total_system_memory"))
    if not most:
        remedy = "Set maxmemory: then enqueues are refused before the machine's memory is full, and workers continue."
        return Finding("memory", FindingLevel.WARN, f"{size(used)} used, without a limit", remedy)
    text = f"{size(used)} of {size(most)} used"
    if used >= _NEARLY_FULL * most:
        remedy = "Raise maxmemory, or keep less: completed_bytes= in the URL, or a shorter retention."
        return Finding("memory", FindingLevel.BAD if used >= _FULL * most else FindingLevel.WARN, text, remedy)
    if machine and most > _OF_THE_MACHINE * machine:
        text += f"; the limit is more than {_OF_THE_MACHINE:.0%} of the machine's memory"
        remedy = "Lower maxmemory: while the server writes a snapshot or rewrites its file, it may need twice as much."
        return Finding("memory", FindingLevel.WARN, text, remedy)
    return fine("memory", text)


def _eviction(facts: Mapping[str, str]) -> Finding:
    policy = facts.get("maxmemory_policy")
    if policy is None:
        text = "the server does not say whether it deletes keys when its memory is full"
        return Finding("eviction", FindingLevel.WARN, text, "Make sure that maxmemory-policy is noeviction.")
    if facts.get("evicts") == "yes":
        remedy = "Set maxmemory-policy noeviction."
        return Finding("eviction", FindingLevel.BAD, f"{policy}: jobs are deleted when the memory is full", remedy)
    evicted = _number(facts, "evicted_keys")
    if evicted:
        text = f"{policy}; the server has deleted {evicted:,} keys since its start"
        return Finding("eviction", FindingLevel.WARN, text, "Set maxmemory-policy noeviction, and look for lost jobs.")
    if policy.startswith("volatile"):
        text = f"{policy}: with full memory, pieces and answers of large enqueues are deleted, and these are repeated"
        return Finding("eviction", FindingLevel.WARN, text, "Set maxmemory-policy noeviction.")
    return fine("eviction", policy)


def _replicas(facts: Mapping[str, str]) -> Finding:
    replicas, needed = _number(facts, "replicas"), _number(facts, "replicas_needed")
    text = f"{replicas} connected"
    if replicas < needed:
        remedy = "Start them: until then, enqueues raise OutcomeUnknown."
        return Finding("replicas", FindingLevel.BAD, f"{text}, {needed} needed for durability=replicated", remedy)
    if replicas and not needed and facts.get("min_replicas_to_write") == "0":
        text += "; a primary that is cut off from them acknowledges jobs that a failover loses"
        return Finding(
            "replicas", FindingLevel.WARN, text, "Set min-replicas-to-write 1, or use durability=replicated."
        )
    return fine("replicas", text)


def _files(facts: Mapping[str, str]) -> Finding:
    failed = [
        name
        for name in ("aof_last_write_status", "aof_last_bgrewrite_status", "rdb_last_bgsave_status")
        if facts.get(name, "ok") != "ok"
    ]
    if failed:
        remedy = "Look at the server's log: its disk may be full, or its directory not writable."
        return Finding("files", FindingLevel.BAD, f"the server could not write: {', '.join(failed)}", remedy)
    fork = _number(facts, "latest_fork_usec")
    if fork > _LONG_FORK:
        text = f"the last fork took {fork / 1e6:.1f} s, in which no call was answered"
        return Finding(
            "files", FindingLevel.WARN, text, "Keep less in one server: see completed_bytes=, or use several."
        )
    return fine("files", "the last writes succeeded")


def _scripts(facts: Mapping[str, str]) -> Finding:
    text = facts.get("busy_reply_threshold")
    if text is None:
        return fine("scripts", "busy-reply-threshold cannot be read (CONFIG GET denied)")
    milliseconds = int(text)
    remedy = "Set busy-reply-threshold 5000, the server's default."
    if milliseconds <= 0:
        text = "the server never answers BUSY: while a script does not end, every call waits for reply_timeout"
        return Finding("scripts", FindingLevel.WARN, text, remedy)
    text = f"other calls are answered BUSY once a script has run for {milliseconds:,} ms"
    if milliseconds < _SHORT_SCRIPT:
        text += ", as one with large effects may on a loaded machine"
        return Finding("scripts", FindingLevel.WARN, text, remedy)
    return fine("scripts", text)


def _completed(facts: Mapping[str, str]) -> Finding:
    kept = _number(facts, "completed_bytes")
    if "completed_bytes_limit" not in facts:
        return fine("completed jobs", f"{size(kept)} of records and payloads, limited only by their age")
    most = _number(facts, "completed_bytes_limit")
    text = f"{size(kept)} of {size(most)} of records and payloads"
    if kept > most * _SLACK:
        return Finding("completed jobs", FindingLevel.WARN, text, "Start a worker: workers prune them.")
    return fine("completed jobs", text)
