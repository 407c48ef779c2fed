"""What the audit log says about changes, also when the store fails."""

from __future__ import annotations

import asyncio

import pytest
from tests.server.conftest import client_of

from holdfast import App
from holdfast.errors import OutcomeUnknown, StoreUnavailable
from holdfast.server import asgi, auditing, time_limit


async def test_changes_by_operators_are_in_the_audit_log(sqlite_app: App):
    async with client_of(asgi(sqlite_app)) as http:
        await http.post("/v1/queues/orders/pause")
        await http.post("/v1/jobs", json={"task": "t"})
        (entry,) = (await http.get("/v1/audit")).json()["entries"]

    assert (entry["who"], entry["action"], entry["target"]) == ("local", "queue.pause", "orders")
    assert entry["origin"] == "127.0.0.1"


@pytest.mark.parametrize("hangs", [False, True])
async def test_a_change_that_cannot_be_noted_stands_in_the_log_of_the_server(
    sqlite_app: App, hangs, monkeypatch, caplog
):
    async def unable(*_: object, **__: object) -> None:
        if hangs:
            await asyncio.sleep(20)
        raise StoreUnavailable("the disk is gone")

    monkeypatch.setattr(sqlite_app.audit, "record", unable)
    monkeypatch.setattr(auditing, "_PATIENCE", 0.05)
    async with client_of(asgi(sqlite_app)) as http:
        assert (await http.post("/v1/queues/orders/pause")).json()["changed"]
    why = "the store took too long" if hangs else "the disk is gone"
    assert f"not in the audit log ({why}): local did queue.pause to orders" in caplog.text


async def test_an_entry_that_the_time_limit_of_a_page_breaks_off_stands_in_the_log(
    sqlite_app: App, monkeypatch, caplog
):
    async def hanging(*_: object, **__: object) -> None:
        await asyncio.sleep(20)

    monkeypatch.setattr(sqlite_app.audit, "record", hanging)
    async with client_of(asgi(sqlite_app)) as http:
        await http.get("/v1/queues")  # opens the store
        monkeypatch.setattr(time_limit, "TIME_LIMIT", 1.0)
        assert (await http.post("/queues", data={"verb": "pause", "name": "orders"})).status_code == 503

    assert "not in the audit log (the request was broken off): local did queue.pause to orders" in caplog.text


@pytest.mark.parametrize("surface", ["api", "page"])
@pytest.mark.parametrize("how", ["lost answer", "time limit"])
async def test_a_change_whose_outcome_is_unknown_is_in_the_audit_log(
    sqlite_app: App, monkeypatch: pytest.MonkeyPatch, surface: str, how: str
):
    pause = sqlite_app.queues.pause

    async def pause_then_fail(name: str) -> bool:
        await pause(name)
        if how == "time limit":
            await asyncio.Event().wait()
        raise OutcomeUnknown("the connection was lost")

    monkeypatch.setattr(sqlite_app.queues, "pause", pause_then_fail)
    async with client_of(asgi(sqlite_app)) as http:
        await http.get("/v1/queues")  # opens the store, which may take longer
        if how == "time limit":
            monkeypatch.setattr(time_limit, "TIME_LIMIT", 2.0)
        if surface == "api":
            response = await http.post("/v1/queues/orders/pause")
        else:
            response = await http.post("/queues", data={"verb": "pause", "name": "orders"})

    assert response.status_code == 503
    (entry,) = await sqlite_app.audit.list()
    assert (entry.who, entry.action, entry.target) == ("local", "queue.pause", "orders")
    assert entry.detail == "outcome unknown"


async def test_the_audit_log_names_what_a_bulk_operation_changes_and_what_a_token_may_do(sqlite_app: App):
    body = {"action": "retry", "state": "failed", "queue": "orders", "reason": "fixed"}
    async with client_of(asgi(sqlite_app)) as http:
        await http.post("/v1/operations", json=body | {"preview": True})
        begun = (await http.post("/v1/operations", json=body)).json()
        await http.post("/v1/tokens", json={"name": "ci", "scopes": ["read", "enqueue"]})

    noted = [(entry.action, entry.target, entry.detail) for entry in await sqlite_app.audit.list()]
    assert noted == [
        ("token.create", "ci", "read enqueue"),
        ("jobs.retry", "state:failed queue:orders", f"operation {begun['id']}, 0 jobs: fixed"),
    ]  # nothing about the preview
