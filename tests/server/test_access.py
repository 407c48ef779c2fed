"""Who may do what: tokens and their scopes, callers of this machine, the hook, and the origin of changes."""

from __future__ import annotations

import base64
from typing import Any

import httpx
import pytest
from tests.server.conftest import claim_one, client_of
from tests.server.test_jobs import CHARGE, finish

from holdfast import App
from holdfast.model.scopes import parse_scopes
from holdfast.server import Caller, Role, asgi, extending
from holdfast.server.access import caller_with_role, caller_with_scopes, is_loopback
from holdfast.server.api.operation import Need
from holdfast.server.api.routes import OPERATIONS
from holdfast.store.values import WorkerHeartbeat

ELSEWHERE = ("192.0.2.7", 1234)
NO_LEASE = {"job_id": "01a1ef92-8066-7469-9b72-a54f80d6a0db", "seq": 1, "fence": "1"}
CLAIM = {"queues": ["orders"], "tasks": ["charge"]}


def far(server: Any, token: str | None = None) -> httpx.AsyncClient:
    """Return a client on another machine."""
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    transport = httpx.ASGITransport(server, client=ELSEWHERE)
    return httpx.AsyncClient(transport=transport, base_url="http://queue.example", headers=headers)


# --- scopes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scopes", "allowed"),
    [
        (["enqueue"], {Need.ENQUEUE}),
        (["work:orders"], {Need.WORK}),
        (["work:*"], {Need.WORK}),
        (["read"], {Need.READ}),
        (["operate"], {Need.READ, Need.OPERATE}),
        (["enqueue", "read"], {Need.ENQUEUE, Need.READ}),
        (["admin"], {Need.ENQUEUE, Need.WORK, Need.READ, Need.OPERATE, Need.ADMIN}),
    ],
)
def test_a_token_allows_what_its_scopes_include_and_no_more(scopes: list[str], allowed: set[Need]):
    caller = caller_with_scopes("t", parse_scopes(scopes))

    assert {need for need in Need if need.is_met_by(caller)} - {Need.NOTHING} == allowed


def test_a_role_is_the_scope_of_its_name():
    assert caller_with_role("x", Role.ADMIN) == caller_with_scopes("x", parse_scopes(["admin"]))
    assert caller_with_role("x", Role.READ) == caller_with_scopes("x", parse_scopes(["read"]))


async def test_only_who_operates_or_enqueues_sees_the_contents_of_events(app: App):
    await app.append("orders", stream="o-1", name="paid", payload={"amount": 7, "token": "x"}, headers={"by": "till"})
    seen: set[tuple[str, str]] = set()
    async with far(asgi(app)) as http:
        for scopes in (["read"], ["read", "enqueue"], ["operate"]):
            token = await app.tokens.create("-".join(scopes), scopes)
            for path in ("/v1/events", "/v1/categories/orders/events", "/v1/categories/orders/streams/o-1/events"):
                page = (await http.get(path, headers={"authorization": f"Bearer {token}"})).json()
                (event,) = page["events"]
                seen.add((scopes[-1], str((page["is_hidden"], event["payload"], event["headers"]))))

    shown = str((False, {"amount": 7, "token": "[redacted]"}, {"by": "till"}))
    assert seen == {("read", str((True, None, {}))), ("enqueue", shown), ("operate", shown)}


async def test_every_operation_is_refused_without_its_scope(app: App):
    """The table of all operations against tokens that lack just what each needs."""
    lacking = {
        Need.ENQUEUE: ["work:*", "operate"],
        Need.WORK: ["enqueue", "operate"],
        Need.READ: ["enqueue", "work:*"],
        Need.OPERATE: ["enqueue", "work:*", "read"],
        Need.ADMIN: ["enqueue", "work:*", "operate"],
    }
    texts = {need: await app.tokens.create(f"no-{need}", scopes) for need, scopes in lacking.items()}
    server = asgi(app)
    async with far(server) as http:
        for operation in (each for each in OPERATIONS if each.needs is not Need.NOTHING):
            path = operation.path.replace(":path}", "}")
            for name in ("job_id", "operation_id"):
                path = path.replace(f"{{{name}}}", "01a1ef92-8066-7469-9b72-a54f80d6a0db")
            path = path.replace("{", "").replace("}", "")
            anonymous = await http.request(operation.method, path)
            headers = {"authorization": f"Bearer {texts[operation.needs]}"}
            refused = await http.request(operation.method, path, headers=headers)

            assert (operation.name, anonymous.status_code, refused.status_code) == (operation.name, 401, 403)
            assert anonymous.headers["www-authenticate"] == "Bearer"
            assert refused.headers["content-type"] == "application/problem+json"
    await server.state.holdfast.close()


async def test_a_worker_may_use_only_the_queues_of_its_token(app: App):
    text = await app.tokens.create("worker", ["work:orders"])
    server = asgi(app)
    async with far(server, text) as http, client_of(server) as admin:
        other = (await admin.post("/v1/jobs", json=CHARGE | {"queue": "payroll"})).json()["id"]
        own = (await admin.post("/v1/jobs", json=CHARGE)).json()["id"]
        (foreign,) = (await admin.post("/v1/leases/claim", json=CLAIM | {"queues": ["payroll"]})).json()["leases"]

        refused = await http.post("/v1/leases/claim", json={"queues": ["orders", "payroll"], "tasks": ["charge"]})
        (claimed,) = (await http.post("/v1/leases/claim", json=CLAIM)).json()["leases"]
        # It guesses the lease of another queue, by its own id or by that of a job that it may use.
        guesses = [foreign["lease"], foreign["lease"] | {"job_id": own}]
        for verb, item in [("finish", {"outcome": "complete"}), ("extend", {}), ("release", None)]:
            leases = [guess if item is None else {"lease": guess, **item} for guess in guesses]
            answer = (await http.post(f"/v1/leases/{verb}", json={"leases": leases})).json()
            assert [verdict["verdict"] for verdict in answer["verdicts"]] == ["lost", "lost"]
        items = [{"lease": claimed["lease"], "outcome": "complete"}]
        done = (await http.post("/v1/leases/finish", json={"leases": items})).json()

    assert (refused.status_code, done["verdicts"][0]["verdict"]) == (403, "done")
    assert (await app.jobs.show(other)).job.state == "running"
    await server.state.holdfast.close()


async def test_a_token_for_a_queue_cannot_speak_for_a_worker_of_another(app: App, monkeypatch: pytest.MonkeyPatch):
    """Neither by a claim, a report or an extension: a dead worker would look alive, or serve other queues."""
    monkeypatch.setattr(extending, "_OFTEN", 10**9)  # a heartbeat is always due
    monkeypatch.setattr(extending, "_RAREST", 0.0)
    sent: list[str] = []
    known = extending.Extending.heartbeat

    async def noted(self: extending.Extending, worker: WorkerHeartbeat) -> None:
        sent.append(worker.worker_id)
        await known(self, worker)

    monkeypatch.setattr(extending.Extending, "heartbeat", noted)
    text = await app.tokens.create("worker", ["work:orders"])
    server = asgi(app)
    report = {"queues": ["payroll"], "tasks": ["pay"], "lease_seconds": 30}
    async with far(server, text) as http, client_of(server) as admin:
        await admin.put("/v1/workers/payer", json=report)
        await admin.put("/v1/workers/own", json=report | {"queues": ["orders"]})
        asked = [
            await http.post("/v1/leases/claim", json=CLAIM | {"worker_id": "payer"}),
            await http.put("/v1/workers/payer", json=report | {"queues": ["orders"]}),
        ]
        await http.post("/v1/leases/extend", json={"leases": [{"lease": NO_LEASE}], "worker_id": "payer"})
        again = asgi(app)  # it has not seen the worker yet
        async with far(again, text) as other:
            asked.append(await other.post("/v1/leases/claim", json=CLAIM | {"worker_id": "payer"}))
            allowed = await other.post("/v1/leases/claim", json=CLAIM | {"worker_id": "own"})
        await again.state.holdfast.close()

    assert ([each.status_code for each in asked], allowed.status_code) == ([403] * 3, 200)
    assert sent == ["payer", "own", "own"]
    await server.state.holdfast.close()


async def test_an_operator_deletes_many_jobs_as_little_as_one(app: App):
    text = await app.tokens.create("operator", ["operate"])
    body = {"action": "delete", "state": "failed"}
    server = asgi(app)
    async with far(server, text) as http:
        refused = [await http.post("/v1/operations", json=body | {"preview": preview}) for preview in (False, True)]
        retried = await http.post("/v1/operations", json=body | {"action": "retry"})

    assert ([each.status_code for each in refused], retried.status_code) == ([403, 403], 202)
    assert len(await app.operations.list()) == 1
    await server.state.holdfast.close()


@pytest.mark.parametrize(
    ("scopes", "statuses"),
    [(["read"], (200, 403, 403)), (["read", "enqueue"], (200, 403, 200)), (["operate"], (200, 200, 200))],
)
async def test_arguments_and_results_need_more_than_read(app: App, scopes: list[str], statuses: tuple[int, ...]):
    text = await app.tokens.create("t", scopes)
    server = asgi(app)
    async with far(server, text) as http, client_of(server) as admin:
        job_id = (await admin.post("/v1/jobs", json=CHARGE)).json()["id"]
        await finish(admin, await claim_one(admin), result=1)
        paths = [f"/v1/jobs/{job_id}{end}" for end in ("", "?arguments=true", "/result")]
        answers = [await http.get(path) for path in paths]

    assert tuple(answer.status_code for answer in answers) == statuses
    revealed = [(entry.who, entry.target) for entry in await app.audit.list() if entry.action == "job.reveal"]
    assert revealed == ([("t", job_id)] if statuses[1] == 200 else [])
    await server.state.holdfast.close()


@pytest.mark.parametrize(
    ("scopes", "shown"), [(["operate"], "hidden"), (["read", "enqueue"], {"iban": "AT1"}), (["admin"], "hidden")]
)
async def test_a_result_is_redacted_for_all_but_producers(app: App, scopes: list[str], shown: Any):
    text = await app.tokens.create("t", scopes)
    server = asgi(app, redact=lambda task, _: "hidden" if task == "charge" else None)
    async with far(server, text) as http, client_of(server) as admin:
        job_id = (await admin.post("/v1/jobs", json=CHARGE)).json()["id"]
        await finish(admin, await claim_one(admin), result={"iban": "AT1"})
        answer = await http.get(f"/v1/jobs/{job_id}/result")

    assert answer.json()["result"] == shown
    await server.state.holdfast.close()


# --- tokens -----------------------------------------------------------------------------------------------------------


async def test_a_token_is_created_used_as_bearer_or_password_and_revoked(app: App):
    server = asgi(app)
    async with client_of(server) as admin, far(server) as http:
        made = await admin.post("/v1/tokens", json={"name": "ci", "scopes": ["read"]})
        text = made.json()["token"]
        basic = base64.b64encode(f"any:{text}".encode()).decode()
        bearer = await http.get("/v1/queues", headers={"authorization": f"Bearer {text}"})
        password = await http.get("/v1/queues", headers={"authorization": f"Basic {basic}"})
        listed = (await admin.get("/v1/tokens")).text
        revoked = (await admin.delete("/v1/tokens/ci")).json()["changed"]
        refused = await http.get("/v1/queues", headers={"authorization": f"Bearer {text}"})

    assert (made.status_code, bearer.status_code, password.status_code) == (201, 200, 200)
    assert text not in listed
    assert (revoked, refused.status_code) == (True, 401)
    assert [entry.action for entry in await app.audit.list()] == ["token.revoke", "token.create"]


async def test_a_token_that_has_expired_is_refused(app: App):
    async with client_of(asgi(app)) as admin, far(asgi(app)) as http:
        for name, lasts in (("short", 0), ("long", 3600)):
            made = await admin.post("/v1/tokens", json={"name": name, "scopes": ["read"], "lasts_seconds": lasts})
            answer = await http.get("/v1/queues", headers={"authorization": f"Bearer {made.json()['token']}"})
            assert (name, answer.status_code) == (name, 200 if lasts else 401)


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer nonsense", "Basic %%", "Basic YQ==", "Digest x", "Bearer é"])
async def test_wrong_credentials_are_refused_even_from_this_machine(sqlite_app: App, header: str):
    async with client_of(asgi(sqlite_app)) as http:
        response = await http.get("/v1/queues", headers=[(b"authorization", header.encode())])

    assert response.status_code == 401
    assert response.json()["type"] == "/v1/problems/unauthenticated"


async def test_a_browser_is_asked_for_a_password(sqlite_app: App):
    async with far(asgi(sqlite_app)) as http:
        response = await http.get("/v1/queues", headers={"accept": "text/html"})

    assert response.headers["www-authenticate"].startswith("Basic ")


async def test_a_page_shows_nothing_of_the_store_to_a_caller_who_may_not_read(app: App):
    text = await app.tokens.create("producer", ["enqueue"])
    server = asgi(app)
    for token, status in ((None, 401), (text, 403)):
        async with far(server, token) as http:
            refused = await http.get("/", headers={"accept": "text/html"})
            absent = await http.get("/nothing", headers={"accept": "text/html"})
        assert (refused.status_code, absent.status_code) == (status, 404)
        for page in (refused.text, absent.text):
            assert "<html" in page
            assert app.backend.url not in page
            assert 'aria-label="Pages"' not in page
    await server.state.holdfast.close()


# --- this machine -----------------------------------------------------------------------------------------------------


def test_only_loopback_names_and_addresses_are_this_machine():
    assert all(map(is_loopback, ["localhost", "LOCALHOST", "127.0.0.1", "127.8.9.10", "::1", "[::1]"]))
    names = [None, "", "localhost.evil", "evil", "10.0.0.1", "0.0.0.0", "::", "127.0.0.1.nip.io", "testclient"]  # noqa: S104
    assert not any(map(is_loopback, names))


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": ""},
        {"x-forwarded-for": "192.0.2.7"},
        {"forwarded": "for=192.0.2.7"},
        {"x-real-ip": "192.0.2.7"},
        {"x-forwarded-proto": "https"},
        {"via": "1.1 proxy"},
    ],
)
async def test_a_forwarded_request_or_another_host_is_not_local(sqlite_app: App, headers: dict[str, str]):
    async with client_of(asgi(sqlite_app)) as http:
        assert (await http.get("/v1/queues")).status_code == 200
        assert (await http.get("/v1/queues", headers=headers)).status_code == 401


async def test_a_request_of_http_1_0_is_not_local(sqlite_app: App):
    """A proxy may speak it to the server behind it, with that server's `Host` and no other sign of itself."""
    server = asgi(sqlite_app)

    async def older(scope: Any, receive: Any, send: Any) -> None:
        await server(scope | {"http_version": "1.0"}, receive, send)

    async with httpx.AsyncClient(transport=httpx.ASGITransport(older), base_url="http://localhost") as http:
        assert (await http.get("/v1/queues")).status_code == 401


async def test_tokens_can_be_required_of_this_machine_too(sqlite_app: App):
    async with client_of(asgi(sqlite_app, requires_token=True)) as http:
        assert (await http.get("/v1/queues")).status_code == 401


# --- the hook and read-only -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "statuses"),
    [
        (None, (401, 401)),
        ("read", (200, 403)),
        (Role.OPERATE, (200, 200)),
        (Caller("ada", Role.ADMIN), (200, 200)),
    ],
)
@pytest.mark.parametrize("is_async", [False, True])
async def test_the_hook_alone_decides(sqlite_app: App, answer: Any, statuses: tuple[int, int], is_async: bool):
    async def later(_: object) -> Any:
        return answer

    async with far(asgi(sqlite_app, authorize=later if is_async else lambda _: answer)) as http:
        read, change = await http.get("/v1/queues"), await http.post("/v1/queues/orders/pause")

    assert (read.status_code, change.status_code) == statuses


async def test_a_read_only_server_refuses_every_change(app: App):
    job = await app.enqueue("charge", 7)
    server = asgi(app, read_only=True)
    async with client_of(server) as http:
        for operation in OPERATIONS:
            if operation.method == "GET":
                continue
            path = operation.path.replace("{job_id}", job.id).replace(":path}", "}").replace("{", "").replace("}", "")
            response = await http.request(operation.method, path, json={})
            assert (operation.name, response.status_code) == (operation.name, 403)
        assert (await http.get(f"/v1/jobs/{job.id}")).status_code == 200


# --- the origin of changes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"origin": "http://localhost"}, 200),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "http://localhost:8080"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "same-origin"}, 200),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
    ],
)
async def test_a_change_from_a_page_of_another_site_is_refused(sqlite_app: App, headers, status: int):
    async with client_of(asgi(sqlite_app)) as http:
        assert (await http.post("/v1/queues/orders/pause", headers=headers)).status_code == status
        assert (await http.get("/v1/queues", headers=headers)).status_code == 200
