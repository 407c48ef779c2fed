"""Calls that cannot travel are refused where they are made, with the remedy, and nothing is enqueued."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.app.work import total

from holdfast import App, ArgumentsError, ConfigError, PayloadError, TaskNotFound, chain

NAIVE = datetime(2030, 1, 1)  # noqa: DTZ001 - naive on purpose
AWARE = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture
def charge(app: App):
    @app.task
    async def charge(order_id: int, note: str = "") -> None: ...

    return charge


@pytest.fixture
def anything(app: App):
    @app.task
    async def anything(value: Any) -> None: ...

    return anything


@pytest.fixture
def remind(app: App):
    @app.task
    async def remind(at: datetime) -> None: ...

    return remind


async def test_an_unknown_task_is_refused_with_the_names_there_are(app, charge):
    with pytest.raises(TaskNotFound, match=r"no task is named 'chargee'; registered tasks: charge"):
        await app.enqueue("chargee", order_id=1)

    assert await total(app) == 0


async def test_a_graph_or_a_task_in_place_of_a_name_is_refused_with_the_call_to_use(app, charge):
    for wrong in (chain(charge.call(order_id=1)), charge):
        with pytest.raises(ConfigError, match=r"pass the name of a task, .*chain\(…\)\.enqueue\(\)"):
            await app.enqueue(wrong)

    assert await total(app) == 0


async def test_calls_of_another_task_are_not_enqueued_as_calls_of_this_one(app, charge):
    @app.task
    async def refund(order_id: int) -> None: ...

    with pytest.raises(ConfigError, match=r"item 1: a call of 'refund' among those of 'charge': .*group"):
        await charge.enqueue_many([charge.call(order_id=1), refund.call(order_id=2)])

    assert await total(app) == 0


async def test_options_of_single_calls_are_refused_where_they_would_be_lost(app, charge):
    with pytest.raises(ConfigError, match=r"item 0: a call of 'charge' with its own options: .*group"):
        await charge.enqueue_many([charge.options(delay=60).call(order_id=1)])
    with pytest.raises(ConfigError, match=r"has using=…: pass it to the whole graph"):
        await chain(charge.options(using=object()).call(order_id=1)).enqueue()
    with pytest.raises(ConfigError, match=r"has patience=…: only a single enqueue"):
        await chain(charge.options(patience=5).call(order_id=1)).enqueue()
    assert await total(app) == 0

    await charge.options(queue="slow").enqueue_many([charge.call(order_id=1)])

    assert [view.name for view in await app.queues.list()] == ["slow"]


async def test_an_app_without_tasks_says_that_none_is_registered(app):
    with pytest.raises(TaskNotFound, match="registered tasks: none"):
        await app.enqueue("charge")


@pytest.mark.parametrize(
    ("args", "kwargs", "reason"),
    [
        ((), {}, "order_id"),
        ((), {"order_id": "seven"}, "order_id: Expected `int`, got `str`"),
        ((), {"order_id": None}, "order_id"),
        ((), {"order_id": 1.5}, "order_id"),
        ((), {"order_id": 1, "nte": "x"}, "nte"),
        ((1, "x", 3), {}, "3 positional arguments were passed, at most 2"),
        ((1,), {"order_id": 1}, "order_id was passed twice"),
        ((), {"order_id": 1, "ctx": 2}, "ctx"),
    ],
)
async def test_a_call_that_does_not_fit_is_refused_with_the_signature(app, charge, args, kwargs, reason):
    with pytest.raises(ArgumentsError, match=reason) as caught:
        await charge.enqueue(*args, **kwargs)

    assert "the signature is charge(order_id: int, note: str = '')" in str(caught.value)
    assert await total(app) == 0


@pytest.mark.parametrize(
    ("value", "remedy"),
    [
        (float("nan"), "pass a finite number, or None"),
        (float("inf"), "pass a finite number, or None"),
        ([1, {"deep": float("nan")}], "pass a finite number, or None"),
        (2**70, "pass it as a string"),
        (object(), "pass plain values, a dataclass, or an id"),
        (b"raw", "annotate the parameter as bytes, or pass a string"),
        ({1, 2}, "pass a sorted list"),
        ({1: "a"}, "convert them to str"),
        (NAIVE, "pass an aware one"),
        ("a\0b", "remove it, or encode the data as base64"),
        ("\ud800", "decode it with errors='replace'"),
        ({"k\0": 1}, "remove it, or encode the data as base64"),
        ({"\udfff": 1}, "decode it with errors='replace'"),
    ],
)
async def test_a_value_that_json_cannot_carry_is_refused_with_the_remedy(app, anything, value, remedy):
    with pytest.raises(ArgumentsError, match=remedy):
        await anything.enqueue(value=value)

    assert await total(app) == 0


async def test_a_value_nested_too_deep_or_within_itself_is_refused(app, anything):
    deep: Any = "bottom"
    for _ in range(100):
        deep = [deep]
    endless: list[Any] = []
    endless.append(endless)

    for value in (deep, endless):
        with pytest.raises(ArgumentsError, match="pass a flatter one"):
            await anything.enqueue(value=value)

    assert await total(app) == 0


@pytest.mark.parametrize("given", [NAIVE, NAIVE.isoformat()])
async def test_a_naive_datetime_as_an_argument_is_refused(app, remind, given):
    with pytest.raises(ArgumentsError, match="at: 2030-01-01T00:00:00 has no time zone: pass an aware one"):
        await remind.enqueue(at=given)

    assert await total(app) == 0


async def test_a_payload_over_the_limit_is_refused_with_the_remedy_and_one_within_it_is_carried(app, anything):
    with pytest.raises(PayloadError, match="more than the limit of 262,144: store the data elsewhere"):
        await anything.enqueue(value="x" * (256 * 1024))
    assert await total(app) == 0

    job = await anything.enqueue(value="x" * (255 * 1024))
    assert (await job.details()).payload.count("x") == 255 * 1024


@pytest.mark.parametrize(
    ("bad", "error", "reason"),
    [
        ({"order_id": "seven"}, ArgumentsError, "order_id"),
        ({}, ArgumentsError, "order_id"),
        ({"order_id": 1, "more": 2}, ArgumentsError, "more"),
        ((1, 2, 3), ArgumentsError, "positional arguments"),
        ("text", ArgumentsError, "a mapping of keyword arguments, or a list or tuple"),
        (7, ArgumentsError, "a mapping of keyword arguments, or a list or tuple"),
        ({"order_id": 1, "note": "x" * 300_000}, PayloadError, "store the data elsewhere"),
        ({"order_id": 1, "note": "\0"}, ArgumentsError, "NUL"),
    ],
)
async def test_one_bad_item_among_many_is_named_by_its_index_and_nothing_is_enqueued(app, charge, bad, error, reason):
    calls = [{"order_id": n} for n in range(500)]
    calls[321] = bad

    with pytest.raises(error, match=rf"(?s)^item 321: .*{reason}.*Nothing was enqueued"):
        await charge.enqueue_many(calls)

    assert await total(app) == 0
    assert len(await charge.enqueue_many([{"order_id": 1}, (2,), [3, "note"]])) == 3


async def test_an_error_while_the_calls_are_being_made_enqueues_nothing(app, charge):
    def calls():
        yield {"order_id": 1}
        raise LookupError("the source of the calls broke")

    with pytest.raises(LookupError):
        await charge.enqueue_many(calls())

    assert await total(app) == 0


async def test_text_that_looks_like_sql_travels_as_text(app, anything):
    hostile = "'; drop table holdfast_job; --\n\"$$\\ \t \u202e é 𝄞"

    job = await anything.options(headers={"note": hostile}).enqueue(value={hostile: hostile})
    (held,) = await app.claim("default")

    assert held.arguments() == ([], {"value": {hostile: hostile}})
    assert held.job.headers == {"note": hostile}
    await held.complete(hostile)
    assert await job.result() == hostile


async def test_what_was_refused_leaves_the_app_fit_to_enqueue(app, remind):
    with pytest.raises(ArgumentsError):
        await remind.enqueue(at=NAIVE)

    job = await remind.enqueue(at=AWARE)
    assert (await job.details()).job.state == "ready"
    await remind.options(delay=timedelta(minutes=1)).enqueue(at=AWARE)
    assert await total(app) == 2
