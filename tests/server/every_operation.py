"""Calls every operation of the API once, with what a store has, and notes what each costs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from tests.server.dashboard.conftest import Site

from holdfast.model.ids import new_id
from holdfast.server.api.operation import Operation
from holdfast.server.api.routes import OPERATIONS

BY_NAME = {operation.name: operation for operation in OPERATIONS}
QUEUE, TASK, RARE = "mails", "send", "seldom"
STREAM = {"category": "companies", "stream": "company-7"}
Statements = Callable[[], Sequence[object]]
Costs = dict[str, tuple[int, float]]


class EveryOperation:
    """A round over all operations. `costs`: the statements and the seconds of each, by its name."""

    def __init__(self, site: Site, statements: Statements) -> None:
        self._site = site
        self._statements = statements
        self.costs: Costs = {}

    async def ask(self, name: str, case: str = "", *, body: Any = None, query: Any = None, **path: str) -> Any:
        """Call one operation; it must succeed."""
        operation: Operation = BY_NAME[name]
        sends: dict[str, Any] = {"json": body or {}} if operation.method in {"POST", "PUT"} else {}
        self._statements()
        began = time.perf_counter()
        answer = await self._site.client.request(
            operation.method,
            operation.path.replace(":path}", "}").format(**path),
            params=query,
            headers={"accept": "application/json"},
            **sends,
        )
        took = time.perf_counter() - began
        self.costs[f"{name} {case}".strip()] = (len(self._statements()), took)
        assert answer.status_code < 300, (name, case, answer.text)
        return answer.json() if answer.content else None

    async def run(self, completed: str) -> Costs:
        """Call all; `completed` is the id of a job that is."""
        await self._jobs(completed)
        await self._leases()
        await self._fleet()
        await self._events()
        await self._records()
        missing = set(BY_NAME) - {name.partition(" ")[0] for name in self.costs}
        assert not missing, f"operations without a case: {missing}"
        return self.costs

    async def _enqueued(self, **wanted: Any) -> str:
        known: str = (await self.ask("enqueue_job", body={"task": TASK, "queue": QUEUE, **wanted}))["id"]
        return known

    async def _jobs(self, completed: str) -> None:
        for name in ("show_features", "list_problems", "list_errors"):
            await self.ask(name)
        await self.ask("show_problem", problem="lease-lost")
        job = {"task": TASK, "queue": QUEUE, "kwargs": {"to": "x"}}
        await self.ask("enqueue_batch", body={"jobs": [job, job]})
        for state in ("ready", "scheduled", "running", "completed", "failed", "cancelled"):
            await self.ask("list_jobs", state, query={"state": state})
            await self.ask("list_jobs", f"{state} rare", query={"state": state, "task": RARE, "queue": QUEUE})
        job_id = await self._enqueued(kwargs={"to": "x"}, delay_seconds=3600)
        await self.ask("show_job", query={"arguments": "true"}, job_id=job_id)
        for name in ("explain_job", "show_graph", "wait_for_job"):
            await self.ask(name, job_id=job_id)
        await self.ask("show_result", job_id=completed)
        for name in ("run_job", "cancel_job", "retry_job", "copy_job", "cancel_job", "delete_job"):
            await self.ask(name, job_id=job_id)

    async def _leases(self) -> None:
        own = {"queue": "own", "kwargs": {"to": "x"}}
        for _ in range(6):
            await self._enqueued(**own)
        await self.ask("claim_jobs", "backlog", body={"queues": [QUEUE], "tasks": [TASK, RARE], "limit": 2})
        wanted = {"queues": ["own"], "tasks": [TASK], "limit": 6, "worker_id": "shell-1"}
        found = (await self.ask("claim_jobs", body=wanted))["leases"]
        leases = [each["lease"] for each in found]
        await self.ask("list_leases")
        await self.ask("extend_leases", body={"leases": [{"lease": leases[0]}], "worker_id": "shell-1"})
        error = {"error": {"message": "no"}, "delay_seconds": 3600}
        ends = [{"lease": leases[0], "outcome": "complete"}, {"lease": leases[1], "outcome": "retry", **error}]
        await self.ask("finish_leases", body={"leases": ends})
        await self.ask("release_leases", body={"leases": leases[2:3]})
        for name, end in (("extend_job", {}), ("finish_job", {"outcome": "complete"})):
            await self.ask(name, body={"fence": leases[3]["fence"], **end}, job_id=leases[3]["job_id"])
        await self.ask("reset_job", job_id=leases[4]["job_id"])

    async def _fleet(self) -> None:
        for name in ("list_queues", "list_tasks", "list_workers", "list_schedules", "list_nodes", "list_consumers"):
            await self.ask(name)
        for name in ("show_backlog", "pause_queue", "resume_queue"):
            await self.ask(name, queue=QUEUE)
        for name in ("pause_task", "resume_task"):
            await self.ask(name, task=TASK)
        await self.ask("report_worker", body={"queues": [QUEUE], "tasks": [TASK]}, worker="shell-1")
        for name in ("show_schedule", "pause_schedule", "resume_schedule", "run_schedule"):
            await self.ask(name, schedule="nightly")
        for name in ("show_consumer", "pause_consumer", "resume_consumer"):
            await self.ask(name, consumer="billing")

    async def _events(self) -> None:
        await self.ask("append_events", body={"events": [{"name": "renamed"}]}, **STREAM)
        await self.ask("read_stream_events", **STREAM)
        await self.ask("read_category_events", category=STREAM["category"])
        for name in ("read_log", "list_categories"):
            await self.ask(name)

    async def _records(self) -> None:
        name = f"t-{new_id()}"
        await self.ask("create_token", body={"name": name, "scopes": ["read"]})
        await self.ask("list_tokens")
        await self.ask("revoke_token", token=name)
        await self.ask("list_audit")
        for task in (TASK, RARE):
            wanted = {"action": "cancel", "state": "ready", "task": task, "preview": True}
            await self.ask("start_operation", f"preview {task}", body=wanted)
            await self.ask(
                "start_operation",
                f"preview completed {task}",
                body={**wanted, "action": "delete", "state": "completed"},
            )
        begun = await self.ask("start_operation", body={"action": "retry", "state": "failed", "task": RARE})
        for name in ("show_operation", "cancel_operation"):
            await self.ask(name, operation_id=begun["id"])
        await self.ask("list_operations")
