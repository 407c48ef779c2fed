"""The rows of a store under test: what holds in every state of them, and what can be told of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from holdfast.model.turn import run_at_of

STATES = ("ready", "scheduled", "blocked", "running", "completed", "failed", "cancelled")
TABLES = (
    *("job", *STATES, "key_head", "unique_key", "attempt", "tally", "minute_count"),
    *("parent_link", "parent_change", "schedule", "limit_key", "limit_slot"),
)
COUNTS = ("enqueued", "completed", "retried", "failed", "cancelled", "lost")

Rows = dict[str, list[dict[str, Any]]]


class Tables(Protocol):
    """The tables of a store, through a connection of our own: put back as they were before each order, and read."""

    async def clear(self) -> None:
        """Empty all tables."""
        ...

    async def keep(self, state: str) -> None:
        """Remember what the tables hold now."""
        ...

    async def restore(self, state: str) -> None:
        """Put back what was remembered."""
        ...

    async def read(self) -> Rows:
        """Return all rows."""
        ...

    async def blockers(self, sides: Sequence[int]) -> dict[int, set[int]]:
        """Return for each of these sides those whose locks it may wait for; none if it does not wait."""
        ...


def check_whole(rows: Rows) -> None:
    """Check what holds in every state of the store, whatever has happened."""
    places: dict[int, list[str]] = {job["seq"]: [] for job in rows["job"]}
    for state in STATES:
        for row in rows[state]:
            assert row["seq"] in places, f"{state} has a row without a job"
            places[row["seq"]].append(state)
    for seq, states in places.items():
        assert len(states) == 1, f"job {seq} is in {states or 'no table'}"
    jobs = {job["seq"]: job for job in rows["job"]}
    for row in rows["ready"]:
        assert row["turn"] == jobs[row["seq"]]["turn"], "a ready job cannot be found by its turn"
    for row in rows["scheduled"]:
        job = jobs[row["seq"]]
        assert row["run_at"] == run_at_of(job["turn"], job["priority"]), "a scheduled job cannot be found by its turn"
    _check_lines(rows)
    _check_limit_keys(rows)
    _check_children(rows)
    _check_unique(rows)
    _check_attempts(rows)


def _check_lines(rows: Rows) -> None:
    """Of each key one job is outside of blocked, the line knows which, and a line without jobs is gone."""
    jobs = {job["seq"]: job for job in rows["job"]}
    children = {link["child_seq"] for link in rows["parent_link"]}
    heads: dict[str, list[int]] = {}
    parents = {link["parent_seq"] for link in rows["parent_link"]}
    for row in rows["ready"] + rows["scheduled"] + rows["running"]:
        order_key = jobs[row["seq"]]["order_key"]
        is_followed = order_key is not None or row["seq"] in parents
        assert row["followed"] or not is_followed, "the row of a job does not tell that it has a key or children"
        if order_key is not None:
            heads.setdefault(order_key, []).append(row["seq"])
    assert heads == {line["order_key"]: [line["head_seq"]] for line in rows["key_head"]}, "a line and its head differ"
    keys = {line["key_id"]: line["order_key"] for line in rows["key_head"]}
    for row in rows["blocked"]:
        if row["key_id"] == 0:
            assert row["seq"] in children, "a job waits for parents that it does not have"
        if row["key_id"] <= 0:
            continue
        assert keys.get(row["key_id"]) == jobs[row["seq"]]["order_key"], "a job waits in no line, or in a wrong one"


def _check_limit_keys(rows: Rows) -> None:
    """Every job with a limit key that may run has a slot, and no other; what waits has somebody who will look."""
    limited = {job["seq"]: job["limit_key"] for job in rows["job"] if job["limit_key"] is not None}
    admitted = {row["seq"] for row in rows["ready"] + rows["running"] if row["seq"] in limited}
    assert {slot["seq"] for slot in rows["limit_slot"]} == admitted, "slots and admitted jobs differ"
    for key in rows["limit_key"]:
        slots = [slot for slot in rows["limit_slot"] if slot["key_id"] == key["key_id"]]
        waiting = [row["seq"] for row in rows["blocked"] if row["key_id"] == key["key_id"]]
        assert len(slots) <= 1, "more jobs are admitted than the limit allows"
        assert slots or not waiting or key["wake_at"] is not None, "a slot is free, and nobody will look at the key"
        assert slots or waiting or key["wake_at"] is not None, "a key is left without a job"
        assert {limited[seq] for seq in waiting} <= {key["limit_key"]}, "a job waits in a wrong key"
    waiting_at_all = {row["key_id"] for row in rows["blocked"] if row["key_id"] < 0}
    assert waiting_at_all <= {key["key_id"] for key in rows["limit_key"]}, "a job waits in no key"


def _check_children(rows: Rows) -> None:
    """A child is blocked only while a parent has not ended, or while it is recorded that somebody will look at it."""
    ended = {row["seq"] for state in ("completed", "failed", "cancelled") for row in rows[state]}
    recorded = {row["seq"] for row in rows["parent_change"]}
    parents: dict[int, set[int]] = {}
    for link in rows["parent_link"]:
        parents.setdefault(link["child_seq"], set()).add(link["parent_seq"])
    waiting = {row["seq"] for row in rows["blocked"] if row["key_id"] == 0}
    for child in waiting:
        family = parents[child]
        assert family - ended or recorded & {child, *family}, f"nobody will tell {child} that its parents have ended"
    # Those that were deleted, or failed and were retried, had ended when the child was released.
    ended |= {row["seq"] for row in rows["attempt"] if row["outcome"] == "failed"}
    unfinished = {job["seq"] for job in rows["job"]} - ended
    for row in rows["ready"] + rows["scheduled"] + rows["running"] + rows["completed"]:
        assert not parents.get(row["seq"], set()) & unfinished, f"job {row['seq']} does not wait for its parents"


def _check_unique(rows: Rows) -> None:
    """Of the jobs with one key that are to be unique until they have ended, one has not."""
    keys = {job["seq"]: job["unique_key"] for job in rows["job"] if job["unique_scope"] == "unfinished"}
    unfinished = [row["seq"] for state in ("ready", "scheduled", "blocked", "running") for row in rows[state]]
    held = [keys[seq] for seq in unfinished if seq in keys]
    assert len(held) == len(set(held)), "two unfinished jobs have one unique key"


def _check_attempts(rows: Rows) -> None:
    past: dict[int, list[tuple[int, int]]] = {job["seq"]: [] for job in rows["job"]}
    for row in rows["attempt"]:
        assert row["seq"] in past, "an attempt is left of a job that is gone"
        past[row["seq"]].append((row["attempt"], row["fence"]))
    for state in STATES:
        for row in rows[state]:
            attempts = sorted(past[row["seq"]])
            if state in {"running", "completed"}:
                attempts.append((row["attempt"], row["fence"]))
            assert [attempt for attempt, _ in attempts] == list(range(1, row["attempt"] + 1)), "attempts have a gap"
            fences = [fence for _, fence in attempts]
            assert fences == sorted(set(fences)), f"the fences {fences} do not grow"


def observed(rows: Rows) -> dict[str, Any]:
    """Return what can be told of the store, without seqs and fences, which are its own affair."""
    attempts: dict[int, list[tuple[int, str, str]]] = {job["seq"]: [] for job in rows["job"]}
    for row in rows["attempt"]:
        outcome = "rescued" if row["outcome"] == "lost" else row["outcome"]  # as the views call it
        attempts[row["seq"]].append((row["attempt"], row["worker_id"], outcome))
    standing = {row["seq"]: (state, row) for state in STATES for row in rows[state]}
    seen: dict[str, Any] = {}
    for job in rows["job"]:
        state, row = standing[job["seq"]]
        seen[job["id"]] = {
            "state": state,
            "turn": job["turn"],
            "payload": job["payload"],
            "attempt": row["attempt"],
            "attempts": sorted(attempts[job["seq"]]),
            **_particulars(state, row),
        }
    counted = {name: sum(row[name] for row in rows["tally"] + rows["minute_count"]) for name in COUNTS}
    ids = {job["seq"]: job["id"] for job in rows["job"]}
    ordered = [row for row in rows["blocked"] if row["key_id"] >= 0]  # in a limit key, jobs of one turn have no order
    waiting = [ids[row["seq"]] for row in sorted(ordered, key=lambda row: int(row["place"]))]
    # A key whose job is gone is free: its row may stay.
    keys = {(row["unique_key"], row["id"]) for row in rows["unique_key"] if row["id"] in seen}
    columns = ("definition", "owner", "declared_at", "paused", "next_at", "last_at")
    schedules = {row["name"]: tuple(row[column] for column in columns) for row in rows["schedule"]}
    return {"jobs": seen, "counts": counted, "waiting": waiting, "unique": keys, "schedules": schedules}


def _particulars(state: str, row: dict[str, Any]) -> dict[str, Any]:
    """What only some of the tables hold."""
    kept = ("excused", "interrupted", "lost", "retrying", "worker_id", "lease_until", "lease_span", "isolated")
    names = {
        "completed": ("result",),
        "scheduled": kept[:4],
        "running": (*kept[:3], *kept[4:], "cancel_reason"),
        "ready": kept[:3],
        "blocked": kept[:3],
    }
    return {name: row[name] for name in names.get(state, ("lost",))}
