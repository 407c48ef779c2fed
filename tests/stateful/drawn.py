"""What the machine draws."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import strategies as st

from holdfast.model.conditions import Conditions, OnConflict, Unique, UniqueScope
from holdfast.model.limits import Limit, LimitKey
from holdfast.model.outcome import Cancelled, Completed, Failed, Failure, Lost, Outcome, Retried, Snoozed

QUEUES = ("mail", "sale")
TASKS = ("greet", "charge")
WORKERS = ("worker-a", "worker-b")
KEYS = ("x", "y")
ALL = 10_000
FAILURE = Failure(error_class="ValueError", message="no")
TICK = timedelta(microseconds=1)

seconds = st.sampled_from([0, 1, 10, 60, 3600]).map(lambda n: timedelta(seconds=n))
durations = st.sampled_from([5, 30, 120]).map(lambda n: timedelta(seconds=n))
some_queues = st.sampled_from([None, QUEUES, QUEUES[:1], QUEUES[1:]])
some_tasks = st.sampled_from([TASKS, TASKS[:1]])
outcomes: st.SearchStrategy[Outcome] = st.one_of(
    st.sampled_from([Completed(), Completed('"x"'), Failed(FAILURE), Cancelled("no"), Lost(FAILURE)]),
    st.builds(Retried, seconds, st.just(FAILURE)),
    st.builds(Snoozed, seconds),
)
periods = st.sampled_from([10, 60, 3600]).map(lambda n: timedelta(seconds=n))


def _unique(key: str, scope: UniqueScope, on_conflict: OnConflict, period: timedelta) -> Conditions:
    return Conditions(unique=Unique(key, scope, on_conflict, period if scope is UniqueScope.PERIOD else None))


conditions = st.builds(
    _unique, st.sampled_from(KEYS), st.sampled_from(UniqueScope), st.sampled_from(OnConflict), periods
)
LIMITED = (LimitKey("queue", QUEUES[0]), LimitKey("task", TASKS[0]), LimitKey("key", TASKS[0]))
ALWAYS = {LimitKey("key", TASKS[1]): Limit(running=2)}
some_limits = st.sampled_from(
    [None, Limit(running=1), Limit(running=2), Limit(rate="1/s", burst=2), Limit(running=3, rate="7/m", burst=3)]
)
keys = st.sampled_from(
    [
        {"order_key": None, "limit_key": None},
        *({"order_key": key, "limit_key": None} for key in KEYS),
        *({"order_key": None, "limit_key": key} for key in KEYS),
    ]
)
_fields = st.fixed_dictionaries(
    {
        "queue": st.sampled_from(QUEUES),
        "task": st.sampled_from(TASKS),
        "priority": st.integers(-2, 2),
        "max_attempts": st.integers(1, 3),
        "delay": st.none() | seconds,
        "conditions": st.none() | conditions,
        "payload": st.sampled_from(["{}", "[1]", "[22]"]),
    }
)
new_jobs = st.builds(lambda fields, keys: fields | keys, _fields, keys)
