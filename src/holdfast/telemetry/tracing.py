"""OpenTelemetry spans: one where work is sent, one where it is handled, and a link between them.

```text
   enqueue {task}, append {category}     PRODUCER, around the call of the store; its context goes into the headers
   process {task}, process {consumer}    CONSUMER, around the handler; a link to each stored context
```

Names of attributes are those of the semantic conventions for messaging, version 1.44, or begin with `holdfast.`. In the
name of a span the task or consumer stands where the conventions put the queue: it says more, and is bounded, too.

The span of a handler begins in the middleware, where the handler runs, so that it is current there. It ends when the
worker reports the end of the attempt, because only then the outcome is known: a time limit or a lost lease ends a
handler from outside. A child process reports nothing, so there the middleware ends the span itself.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Final

from opentelemetry import context as otel_context
from opentelemetry import trace as otel
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from holdfast.app.app import App
from holdfast.hooks.middleware import HandlerCall
from holdfast.hooks.sending import SendCall
from holdfast.hooks.values import HandlingEnd, HandlingStart, JobEnd, JobStart
from holdfast.telemetry.trace_attributes import (
    ERROR_TYPE,
    OUTCOME,
    AttemptKey,
    attributes_of_handler,
    attributes_of_send,
    error_type,
    key_of_events,
    key_of_job,
    keys_of_call,
    outcome_in_child,
)

_SCHEMA: Final = "https://opentelemetry.io/schemas/1.44.0"


class OpenSpan:
    """The span of a handler, until every job of its batch has ended."""

    def __init__(self, span: Span, number: int) -> None:
        self.span = span
        self._left = number
        self._outcomes: set[str] = set()

    def ended(self, outcome: str) -> str | None:
        """Note the outcome of one job; return that of all, or "mixed", after the last."""
        self._left -= 1
        self._outcomes.add(outcome)
        if self._left > 0:
            return None
        return next(iter(self._outcomes)) if len(self._outcomes) == 1 else "mixed"


class Tracing:
    """The spans of one app in this process."""

    def __init__(
        self,
        app: App,
        provider: otel.TracerProvider | None,
        *,
        is_parent: bool,
        propagator: TextMapPropagator | None,
    ) -> None:
        self._app = app
        self._tracer = otel.get_tracer("holdfast", tracer_provider=provider, schema_url=_SCHEMA)
        self._is_parent = is_parent
        self._propagator = propagator or TraceContextTextMapPropagator()
        self._open: dict[AttemptKey, OpenSpan | None] = {}  # attempts whose end this process reports

    def install(self) -> None:
        """Add what runs around sends and handlers, and the observers."""
        hooks = self._app.hooks
        hooks.sending = (*hooks.sending, self._send)
        hooks.middleware.add(self._handle)
        hooks.job_start(self._job_started)
        hooks.job_end(self._job_ended)
        hooks.event_start(self._events_started)
        hooks.event_end(self._events_ended)

    # --- where work is sent -------------------------------------------------------------------------------------------

    def _send(self, call: SendCall) -> Generator[None]:
        name, attributes = attributes_of_send(call)
        with self._tracer.start_as_current_span(name, kind=SpanKind.PRODUCER, attributes=attributes) as span:
            self._propagator.inject(call.headers)  # pyright: ignore[reportArgumentType] - its default
            try:
                yield
            except BaseException as error:
                span.set_attribute(ERROR_TYPE, error_type(error))
                raise

    # --- where it is handled ------------------------------------------------------------------------------------------

    def _handle(self, call: HandlerCall) -> Generator[None]:
        span, is_reported = self._current(call)
        token = otel_context.attach(otel.set_span_in_context(span))
        try:
            yield
        except BaseException as error:
            if not is_reported:
                self._end(span, outcome_in_child(self._app, call, error), error)
            raise
        else:
            if not is_reported:
                self._end(span, outcome_in_child(self._app, call, None), None)
        finally:
            otel_context.detach(token)

    def _current(self, call: HandlerCall) -> tuple[Span, bool]:
        """Return the span of a call, and whether its end will be reported; a repeated call has the same span."""
        keys = keys_of_call(call)
        if keys[0] not in self._open:
            return self._start(call), False
        known = self._open[keys[0]]
        if known is None:
            known = OpenSpan(self._start(call), len(keys))
            self._open.update(dict.fromkeys(keys, known))
        return known.span, True

    def _start(self, call: HandlerCall) -> Span:
        name, attributes = attributes_of_handler(call)
        headers = [job.headers for job in call.jobs] + [event.headers for event in call.events]
        contexts = [self._extract(of_one) for of_one in headers]
        parent = contexts[0] if self._is_parent and len(contexts) == 1 else None
        links = () if parent is not None else _links(contexts)
        return self._tracer.start_span(
            name, parent or otel_context.Context(), kind=SpanKind.CONSUMER, attributes=attributes, links=links
        )

    def _extract(self, headers: Mapping[str, str] | None) -> otel_context.Context:
        return self._propagator.extract(headers or {}, otel_context.Context())

    def _job_started(self, start: JobStart) -> None:
        self._open[key_of_job(start.job)] = None

    def _job_ended(self, end: JobEnd) -> None:
        known = self._open.pop(key_of_job(end.job), None)
        if known is None and _was_killed(end):
            call = HandlerCall("task", end.job.task, end.job.attempt, (), jobs=(end.job,))
            known = OpenSpan(self._start(call), 1)
        outcome = None if known is None else known.ended(end.outcome)
        if known is not None and outcome is not None:
            failed = end.error or (end.failure.error_class if end.failure is not None else None)
            self._end(known.span, outcome, None if end.is_asked else failed)

    def _events_started(self, start: HandlingStart) -> None:
        self._open[key_of_events(start.consumer, start.events)] = None

    def _events_ended(self, end: HandlingEnd) -> None:
        known = self._open.pop(key_of_events(end.consumer, end.events), None)
        if known is not None:
            self._end(known.span, end.outcome, end.error)

    def _end(self, span: Span, outcome: str, error: BaseException | str | None) -> None:
        span.set_attribute(OUTCOME, outcome)
        if error is not None and outcome not in {"cancelled", "snoozed"}:
            kind = error if isinstance(error, str) else error_type(error)
            span.set_attribute(ERROR_TYPE, kind)
            span.set_status(Status(StatusCode.ERROR, kind))
            if isinstance(error, Exception):
                span.record_exception(error)
        span.end()


def _was_killed(end: JobEnd) -> bool:
    """Return whether an attempt without a span ended with its child process, which took the span along."""
    return end.outcome == "lost" or (end.failure is not None and end.failure.error_class == "TimeLimit")


def _links(contexts: Iterable[otel_context.Context]) -> Sequence[Link]:
    found = [otel.get_current_span(context).get_span_context() for context in contexts]
    return [Link(context) for context in found if context.is_valid]
