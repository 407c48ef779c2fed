"""The server as a command: where it may listen, and how KEDA reaches it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml
from tests.app.conftest import RELAXED
from tests.server.conftest import client_of

from holdfast import App, ConfigError
from holdfast.cli.server import run
from holdfast.server import asgi
from holdfast.server.serve import PORT, check_tokens, serve

SCALED = Path(__file__).parents[2] / "deploy" / "kubernetes" / "scaledobject.yml"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])  # noqa: S104 - it is refused
def test_it_does_not_start_on_another_address_without_a_token(tmp_path, host: str):
    app = App(f"sqlite:///{tmp_path / 'jobs.db'}?{RELAXED}")

    with pytest.raises(ConfigError, match="holdfast server token create"):
        serve(app, host=host, port=0)

    assert not app.is_open


async def test_an_expired_token_is_none(sqlite_app: App):
    await sqlite_app.tokens.create("old", ["admin"], lasts=timedelta(microseconds=1))

    with pytest.raises(ConfigError, match="no valid token"):
        await check_tokens(sqlite_app, "0.0.0.0")  # noqa: S104 - it is refused
    await sqlite_app.tokens.create("new", ["read"])
    await check_tokens(sqlite_app, "0.0.0.0")  # noqa: S104 - not served


async def test_keda_reaches_the_backlog_with_its_token(sqlite_app: App):
    objects = list(yaml.safe_load_all(SCALED.read_text(encoding="utf-8")))
    specs = {(one["kind"], one["metadata"]["name"]): one["spec"] for one in objects}
    triggers = [trigger for one in objects for trigger in one["spec"].get("triggers", ())]
    (asking,) = [trigger for trigger in triggers if trigger["type"] == "metrics-api"]
    url = urlsplit(asking["metadata"]["url"])
    token = await sqlite_app.tokens.create("keda", ["read"])

    async with client_of(asgi(sqlite_app, requires_token=True)) as http:
        refused = await http.get(url.path)
        answer = await http.get(url.path, headers={"authorization": f"Bearer {token}"})

    assert url.port == PORT
    assert [option.default for option in run.params if option.name == "port"] == [PORT]
    assert refused.status_code == 401
    assert answer.json()[asking["metadata"]["valueLocation"]] == 0
    assert asking["metadata"]["authMode"] == "bearer"
    (secret,) = specs["TriggerAuthentication", asking["authenticationRef"]["name"]]["secretTargetRef"]
    assert secret["parameter"] == "token"
