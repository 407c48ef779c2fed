"""What a schedule is: its times, and the job that each of them becomes."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.errors import ConfigError
from holdfast.model.cron import cron_times
from holdfast.model.instants import to_datetime
from holdfast.model.job import NewJob
from holdfast.model.schedule import Recurrence, delay_of, tick_id

NAME_HEADER = "schedule"
TIME_HEADER = "schedule_time"


class ScheduleDefinition(msgspec.Struct, frozen=True, omit_defaults=True):
    """The times of a schedule and its job, checked and encoded; the store keeps it as JSON."""

    times: Recurrence
    task: str
    queue: str = "default"
    payload: str = "{}"
    headers: dict[str, str] | None = None
    priority: int = 0
    max_attempts: int = 5
    timeout: float | None = None
    order_key: str | None = None
    limit_key: str | None = None

    def __repr__(self) -> str:
        """Show the definition without the arguments."""
        return f"<ScheduleDefinition {self.times.text()} ({self.task})>"

    def job(self, name: str, time: int) -> NewJob:
        """Return the job of a nominal time: always the same."""
        due = to_datetime(time + delay_of(name, time, self.times))
        return self._job(
            tick_id(name, time), {NAME_HEADER: name, TIME_HEADER: to_datetime(time).isoformat()}, due_at=due
        )

    def extra_job(self, name: str, job_id: str) -> NewJob:
        """Return a job outside of the nominal times, due at once."""
        return self._job(job_id, {NAME_HEADER: name})

    def _job(self, job_id: str, headers: dict[str, str], due_at: datetime | None = None) -> NewJob:
        return NewJob(
            id=job_id,
            queue=self.queue,
            task=self.task,
            payload=self.payload,
            headers={**(self.headers or {}), **headers},
            priority=self.priority,
            max_attempts=self.max_attempts,
            timeout=self.timeout,
            run_at=due_at,
            order_key=self.order_key,
            limit_key=self.limit_key,
        )


_decoder = msgspec.json.Decoder(ScheduleDefinition)


def encode_definition(definition: ScheduleDefinition) -> str:
    """Return a definition as text."""
    return msgspec.json.encode(definition, order="sorted").decode()


def decode_definition(text: str) -> ScheduleDefinition:
    """Return a stored definition; raises `ConfigError` with the remedy if this process does not understand it.

    Another process may have stored it, with a later version of Holdfast or of the time zones.
    """
    try:
        definition = _decoder.decode(text)
    except msgspec.MsgspecError as error:
        remedy = "update Holdfast here, or replace the schedule"
        raise ConfigError(f"its stored definition cannot be read ({error}): {remedy}") from error
    if definition.times.cron is not None:
        cron_times(definition.times.cron, definition.times.timezone)
    return definition


def shown_definition(text: str, task: str) -> tuple[ScheduleDefinition, str | None]:
    """Return a stored definition for a list, and why this process does not understand it; None if it does.

    Of a definition that cannot be read at all, only the task is shown.
    """
    try:
        return decode_definition(text), None
    except ConfigError as error:
        problem = str(error)
    try:
        return _decoder.decode(text), problem
    except msgspec.MsgspecError:
        return ScheduleDefinition(Recurrence(cron="?"), task), problem
