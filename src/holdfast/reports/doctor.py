"""The checks of `holdfast doctor` and their thresholds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from holdfast.errors import HoldfastError, SchemaMismatch
from holdfast.model.instants import MICROSECOND
from holdfast.reports.doctor_kafka import examine_kafka
from holdfast.reports.doctor_redis import examine_redis
from holdfast.reports.doctor_server import examine_server
from holdfast.reports.doctor_streams import examine_streams
from holdfast.reports.finding import Finding, FindingLevel, fine, some
from holdfast.reports.states import is_silent, worker_state
from holdfast.reports.times import span
from holdfast.store.schedules import ScheduleView
from holdfast.store.values import LeaseView, QueueView, TaskView, WaitingTask, WorkerView
from holdfast.store.verbs.explain import worker_fact

if TYPE_CHECKING:
    from holdfast.app.app import App

_LONG_WAIT = timedelta(minutes=5)
_LONG_EXPIRED = timedelta(minutes=1)  # workers rescue expired leases within seconds
_CLOCK_WARN = timedelta(seconds=2)
_CLOCK_BAD = timedelta(seconds=60)
_LEASES = 1000


async def examine(app: App, *, most: int | None = None) -> list[Finding]:
    """Run all checks; those that depend on a failed one are left out.

    With `most`, counting stops at about this many jobs of each task and state, so that the checks stay cheap.
    """
    try:
        backend = await app.opened(install=False)
        facts = await backend.insight.facts()
        queues, leases = await app.queues.list(most=most), await app.leases(_LEASES, expired_only=True)
        workers, waiting = await app.workers(), await backend.insight.waiting_tasks()
        streams = examine_streams((), ())
        if backend.capabilities.has_streams:
            streams = examine_streams(await app.consumers.list(), await app.nodes())
        schedules = await app.schedules.list()
    except SchemaMismatch as error:
        return [fine("store", app.backend.url), Finding("schema", FindingLevel.BAD, _message(error))]
    except HoldfastError as error:
        return [unavailable(error)]
    live = [worker for worker in workers if not is_silent(worker)]
    capabilities = backend.capabilities
    return [
        fine("store", backend.url),
        _version(capabilities.store, capabilities.version, facts),
        _durability(capabilities.durability, facts),
        *examine_server(facts),
        *examine_redis(facts),
        *examine_kafka(facts),
        fine("schema", "the tables match this version"),
        _clock(app, facts),
        _waiting(queues, live),
        _tasks(waiting, live),
        _scheduled(queues, live),
        _paused("queue", queues),
        _paused("task", await app.tasks.list(most=1)),
        _schedules(schedules),
        _expired(leases),
        _silent(workers, live),
        *streams,
    ]


def unavailable(error: HoldfastError) -> Finding:
    """Return the finding of a store that cannot be opened."""
    return Finding("store", FindingLevel.BAD, _message(error))


def _message(error: HoldfastError) -> str:
    return str(error).replace("\n", ". ").rstrip(".")


def _version(store: str, version: str, facts: dict[str, str]) -> Finding:
    faults = facts.get("known_faults", "none")
    if faults == "none":
        return fine("version", f"{store} {version}")
    return Finding("version", FindingLevel.WARN, f"{store} {version}: {faults}")


def _durability(text: str, facts: dict[str, str]) -> Finding:
    """Find settings of a server under which it acknowledges commits that a crash can undo."""
    if facts.get("fsync", "on") != "on":
        return Finding(
            "durability", FindingLevel.BAD, text, "Set fsync = on in postgresql.conf, and reload the server."
        )
    if facts.get("synchronous_commit", "on") == "off":
        remedy = "Set synchronous_commit = on, in postgresql.conf or by `alter role … set synchronous_commit = on`."
        return Finding("durability", FindingLevel.WARN, text, remedy)
    if facts.get("innodb_flush_log_at_trx_commit", "1") != "1":
        remedy = "Set innodb_flush_log_at_trx_commit = 1 in the server's configuration, or by `set global`."
        return Finding("durability", FindingLevel.WARN, text, remedy)
    if facts.get("log_bin") == "1" and facts.get("sync_binlog") != "1":
        remedy = "Set sync_binlog = 1 in the server's configuration, or by `set global`."
        return Finding("durability", FindingLevel.WARN, text, remedy)
    if "durability_lack" in facts:
        verdict = FindingLevel.WARN if facts["durability_verdict"] == "unknown" else FindingLevel.BAD
        return Finding("durability", verdict, f"{text}; {facts['durability_lack']}", facts["durability_remedy"])
    return fine("durability", text)


def _clock(app: App, facts: dict[str, str]) -> Finding:
    """Compare the clocks. Only the store's clock decides about leases; a difference makes logs misleading."""
    if app.backend.file is not None:
        return fine("clock", "the store uses the clock of this host")
    store_now = facts.get("now_us", "")
    if not store_now.isdigit():
        return Finding("clock", FindingLevel.WARN, "this store does not report its clock")
    apart = abs(int(store_now) * MICROSECOND - time.time_ns() // 1000 * MICROSECOND)
    text = f"the clocks of the store and this host differ by {span(apart)}"
    if apart < _CLOCK_WARN:
        return fine("clock", text)
    verdict = FindingLevel.BAD if apart >= _CLOCK_BAD else FindingLevel.WARN
    return Finding("clock", verdict, text, "Synchronise both with the same time servers.")


def _waiting(queues: Sequence[QueueView], live: Sequence[WorkerView]) -> Finding:
    open_queues = [queue for queue in queues if not queue.paused and queue.oldest_ready is not None]
    if not open_queues:
        return fine("ready jobs", "none in open queues")
    oldest = max(open_queues, key=lambda queue: queue.oldest_ready or timedelta(0))
    longest = span(oldest.oldest_ready or timedelta(0))
    text = f"{_number(open_queues, 'ready')}; the oldest has waited {longest} in queue {oldest.name}"
    served = [queue for queue in open_queues if any(worker.heartbeat.serves(queue.name) for worker in live)]
    if len(served) < len(open_queues):
        names = ", ".join(queue.name for queue in open_queues if queue not in served)
        remedy = f"No worker serves {names}: start one with `holdfast worker run`."
        return Finding("ready jobs", FindingLevel.WARN, text, remedy)
    if (oldest.oldest_ready or timedelta(0)) >= _LONG_WAIT:
        return Finding("ready jobs", FindingLevel.WARN, text, "Add workers, or see `holdfast job explain ID`.")
    return fine("ready jobs", text)


def _tasks(waiting: Sequence[WaitingTask], live: Sequence[WorkerView]) -> Finding:
    """Find tasks whose ready jobs wait forever: workers serve their queues, but none of them knows the task."""
    facts = [worker_fact(worker) for worker in live]
    unknown = [
        lane
        for lane in waiting
        if not lane.paused
        and any(fact.serves(lane.queue) for fact in facts)
        and not any(fact.serves(lane.queue) and fact.knows(lane.task) for fact in facts)
    ]
    if not unknown:
        known = "live workers know every task that has ready jobs" if live else "no live worker"
        return fine("tasks", known if waiting else "no ready jobs")
    names = some([f"{lane.task} (queue {lane.queue})" for lane in unknown])
    text = f"ready jobs whose task no live worker knows: {names}"
    return Finding("tasks", FindingLevel.WARN, text, "Start a worker whose app defines the task.")


def _scheduled(queues: Sequence[QueueView], live: Sequence[WorkerView]) -> Finding:
    """Find scheduled jobs in queues without a worker: a worker has to move them to ready when they are due."""
    count = _number(queues, "scheduled")
    unserved = [
        queue.name
        for queue in queues
        if queue.scheduled and not queue.paused and not any(worker.heartbeat.serves(queue.name) for worker in live)
    ]
    if not unserved:
        return fine("scheduled jobs", "none" if count == "0" else count)
    remedy = f"No worker serves {', '.join(unserved)}: start one with `holdfast worker run`."
    return Finding("scheduled jobs", FindingLevel.WARN, count, remedy)


def _number(queues: Sequence[QueueView], state: str) -> str:
    """Return how many jobs are in a state; with a plus if counting stopped there."""
    more = "+" if any(state in queue.at_least for queue in queues) else ""
    return f"{sum(getattr(queue, state) for queue in queues):,}{more}"


def _paused(noun: str, views: Sequence[QueueView | TaskView]) -> Finding:
    paused = [view.name for view in views if view.paused]
    if not paused:
        return fine(f"paused {noun}s", "none")
    remedy = f"`holdfast {noun} resume {paused[0]}` resumes it."
    return Finding(f"paused {noun}s", FindingLevel.WARN, ", ".join(paused), remedy)


def _schedules(schedules: Sequence[ScheduleView]) -> Finding:
    """Find schedules that are not understood here, and those that are due and that no worker fires."""
    broken = [view for view in schedules if view.problem is not None]
    if broken:
        names = some([view.name for view in broken])
        remedy = f"{broken[0].name}: {broken[0].problem}. Workers with the same installation do not fire it."
        return Finding("schedules", FindingLevel.WARN, f"not understood here: {names}", remedy)
    late = [view for view in schedules if view.is_overdue]
    if not late:
        paused = [view.name for view in schedules if view.paused]
        return fine("schedules", f"{len(schedules):,}" + (f", paused: {some(paused)}" if paused else ""))
    names = some([f"{view.name} ({span(view.overdue)})" for view in late])
    remedy = "Start a worker whose code declares them; those defined at run time need one that knows their task."
    return Finding("schedules", FindingLevel.WARN, f"due, but not fired by any worker: {names}", remedy)


def _expired(leases: Sequence[LeaseView]) -> Finding:
    if not leases:
        return fine("expired leases", "none")
    longest = max(-lease.expires_in for lease in leases)
    count = f"{len(leases)}" if len(leases) < _LEASES else f"{_LEASES} or more"
    text = f"{count}, the oldest expired {span(longest)} ago"
    if longest < _LONG_EXPIRED:
        return Finding("expired leases", FindingLevel.WARN, text, "A running worker rescues them within one lease.")
    remedy = "No worker has rescued them: start one, or run `holdfast lease reset --expired`."
    return Finding("expired leases", FindingLevel.BAD, text, remedy)


def _silent(workers: Sequence[WorkerView], live: Sequence[WorkerView]) -> Finding:
    silent = [worker.heartbeat.worker_id for worker in workers if worker_state(worker) == "silent"]
    if silent:
        text = f"{len(live)} live, {len(silent)} silent for more than their lease: {some(silent)}"
        return Finding("workers", FindingLevel.WARN, text, "They have died or cannot reach the store.")
    return fine("workers", f"{len(live)} live")
