"""Spans across processes: enqueued in one, run in another; names, kinds, links and attributes."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import messaging_attributes
from opentelemetry.semconv.attributes import error_attributes
from opentelemetry.trace import SpanKind, StatusCode
from tests.app.stream_work import QUICK as TIMING
from tests.app.stream_work import drained, eventually, running
from tests.app.work import run_all

from holdfast import App, BatchContext, Call, Event, Retry
from holdfast.telemetry import trace

PRODUCER = """
import asyncio, json, sys
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from holdfast import App
from holdfast.telemetry import trace
exporter, provider = InMemorySpanExporter(), TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
app = App(sys.argv[1])
trace(app, provider)
@app.task(queue="orders")
async def charge(order_id: int): ...
async def main():
    async with app:
        await charge.enqueue(7)
asyncio.run(main())
(span,) = exporter.get_finished_spans()
print(json.dumps([span.name, span.kind.name, span.context.trace_id, span.context.span_id, dict(span.attributes)]))
"""


class Spans:
    """The spans of an app in this process."""

    def __init__(self, app: App, *, is_parent: bool = False) -> None:
        self._exporter, provider = InMemorySpanExporter(), TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        trace(app, provider, is_parent=is_parent)

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]

    def __iter__(self) -> Iterator[ReadableSpan]:
        return iter(self._exporter.get_finished_spans())


@pytest.mark.parametrize("is_parent", [False, True])
async def test_a_handler_is_linked_to_the_enqueue_of_another_process(app: App, is_parent: bool):
    command = [sys.executable, "-c", PRODUCER, app.backend.full_url or ""]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=True)
    name, kind, trace_id, span_id, attributes = json.loads(done.stdout)

    @app.task(queue="orders")
    async def charge(order_id: int) -> None: ...

    spans = Spans(app, is_parent=is_parent)
    await run_all(app)

    assert (name, kind) == ("enqueue charge", "PRODUCER")
    assert attributes["messaging.operation.type"] == "send"
    assert attributes["messaging.destination.name"] == "orders"
    (run,) = spans.named("process charge")
    assert run.kind is SpanKind.CONSUMER
    assert run.attributes is not None
    assert run.attributes["messaging.message.id"] == attributes["messaging.message.id"]
    assert run.attributes["holdfast.outcome"] == "completed"
    assert run.attributes["holdfast.attempt"] == 1
    assert isinstance(run.attributes["holdfast.fence"], int)
    if is_parent:
        assert run.parent is not None
        assert (run.parent.trace_id, run.parent.span_id, run.links) == (trace_id, span_id, ())
    else:
        assert run.parent is None
        assert [(link.context.trace_id, link.context.span_id) for link in run.links] == [(trace_id, span_id)]


async def test_a_failed_attempt_has_its_error_and_each_attempt_its_span(app: App):
    @app.task(max_attempts=2, retry=0.01)
    async def charge() -> None:
        raise LookupError("there is no order 7")

    @app.task
    async def wait() -> None:
        if len(spans.named("process wait")) == 0:
            raise Retry(0.01)

    spans = Spans(app)
    await charge.enqueue()
    await wait.enqueue()
    await run_all(app)

    failed = spans.named("process charge")
    assert [dict(span.attributes or {})["holdfast.outcome"] for span in failed] == ["retried", "failed"]
    assert all((span.attributes or {})["error.type"] == "LookupError" for span in failed)
    assert all(span.status.status_code is StatusCode.ERROR for span in failed)
    asked, completed = spans.named("process wait")
    assert (asked.attributes or {})["holdfast.outcome"] == "retried"
    assert asked.status.status_code is completed.status.status_code is StatusCode.UNSET


@pytest.mark.parametrize("is_async", [True, False])
async def test_what_a_handler_enqueues_is_a_child_of_its_span(app: App, is_async: bool):
    @app.task
    async def mail() -> None: ...

    def charge() -> None:
        mail.sync.enqueue()

    async def charge_async() -> None:
        await mail.enqueue()

    task = app.task(name="charge")(charge_async if is_async else charge)
    spans = Spans(app)
    await task.enqueue()
    await run_all(app)

    (run,), (sent,) = spans.named("process charge"), spans.named("enqueue mail")
    assert sent.parent is not None
    assert run.context is not None
    assert sent.parent.span_id == run.context.span_id


async def test_a_batch_has_one_span_with_a_link_for_each_job(app: App):
    @app.task(batch=10)
    async def post(ctx: BatchContext[int], calls: list[Call[int]]) -> None: ...

    spans = Spans(app)
    for number in range(3):
        await post.enqueue(number)
    await run_all(app)

    (run,) = spans.named("process post")
    assert (run.attributes or {})["messaging.batch.message_count"] == 3
    assert (run.attributes or {})["holdfast.outcome"] == "completed"
    sent = {span.context.span_id for span in spans.named("enqueue post") if span.context is not None}
    assert {link.context.span_id for link in run.links} == sent


async def test_an_event_is_linked_to_its_append(app: App):
    @app.consumer("billing", category="companies")
    async def bill(event: Event) -> None: ...

    spans = Spans(app)
    await app.append("companies", stream="company-7", name="renamed")
    async with running(app.node(timing=TIMING)):
        await eventually(drained(app))

    (sent,), (run,) = spans.named("append companies"), spans.named("process billing")
    assert sent.context is not None
    assert [link.context.span_id for link in run.links] == [sent.context.span_id]
    attributes = dict(run.attributes or {})
    assert attributes["messaging.consumer.group.name"] == "billing"
    assert attributes["messaging.destination.name"] == "companies"
    assert attributes["holdfast.outcome"] == "done"


async def test_headers_of_the_caller_are_kept(app: App):
    @app.task
    async def charge() -> None: ...

    Spans(app)
    job = await charge.options(headers={"tenant": "a", "traceparent": "mine"}).enqueue()
    other = await charge.options(headers={"tenant": "a"}).enqueue()

    assert (await app.jobs.show(job.id)).headers == {"tenant": "a", "traceparent": "mine"}
    found = (await app.jobs.show(other.id)).headers
    assert found["tenant"] == "a"
    assert found["traceparent"].startswith("00-")


async def test_every_attribute_is_of_the_semantic_conventions_or_our_own(app: App):
    @app.task
    async def charge(fails: bool) -> None:
        if fails:
            raise LookupError

    spans = Spans(app)
    await charge.options(max_attempts=1).enqueue_many([[True], [False]])
    await charge.enqueue(False)
    await app.append("companies", stream="company-7", name="renamed")
    await run_all(app)

    known = {
        value
        for module in (messaging_attributes, error_attributes)
        for name, value in vars(module).items()
        if name.isupper() and isinstance(value, str)
    }
    used = {name for span in spans for name in span.attributes or {}}
    assert "messaging.batch.message_count" in used
    assert {name for name in used if not name.startswith("holdfast.")} - known == set()


async def test_without_tracing_no_function_of_it_is_called(app: App):
    @app.task
    async def charge() -> None: ...

    called: set[str] = set()

    def note(frame, event, _):
        if event == "call":
            called.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        await charge.enqueue()
        await app.drain("default")
    finally:
        sys.setprofile(None)

    assert any("enqueue_batcher" in name for name in called)
    unwanted = ("holdfast/telemetry/", "/opentelemetry/", "holdfast/hooks/sending.py")
    assert [name for name in called if any(part in name for part in unwanted)] == []
