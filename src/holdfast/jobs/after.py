"""The options of jobs that wait for others: `after` and `run_anyway`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, cast
from uuid import UUID

from holdfast.errors import ConfigError
from holdfast.model.conditions import Conditions
from holdfast.model.ids import check_id


class IdentifiedJob(Protocol):
    """A job with an id, such as a `JobHandle`."""

    @property
    def id(self) -> str:
        """The id of the job."""
        ...


Parent = IdentifiedJob | str | UUID


def after_conditions(given: Mapping[str, Any]) -> Conditions | None:
    """Check the options of a job, those that are not None; None if it waits for no other job."""
    after: object = given.get("after")
    run_anyway: object = given.get("run_anyway", False)
    if not isinstance(run_anyway, bool):
        raise ConfigError(f"run_anyway={run_anyway!r} is neither True nor False: pass one of them")
    if after is None:
        if run_anyway:
            raise ConfigError("run_anyway=True has no effect without parents: add after=[job, …]")
        return None
    parents: list[object] = [after]
    if isinstance(after, Iterable) and not isinstance(after, str):
        parents = list(cast("Iterable[object]", after))
    ids = tuple(dict.fromkeys(_id_of(parent) for parent in parents))
    return Conditions(after=ids, run_anyway=run_anyway) if ids else None


def _id_of(parent: object) -> str:
    job_id = parent if isinstance(parent, (str, UUID)) else getattr(parent, "id", None)
    if not isinstance(job_id, (str, UUID)):
        raise ConfigError(
            f"after=… got {type(parent).__name__}: pass jobs that are enqueued, as in after=[await resize.enqueue(3)], "
            "or their ids; for calls that are not yet enqueued, use chain(…)"
        )
    return check_id(str(job_id))
