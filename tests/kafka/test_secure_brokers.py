"""A broker behind TLS and SCRAM: who it is, and who we are, is checked on both sides."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import admin
from tests.kafka.test_brokers import app_with
from tests.kafka.test_consuming import until
from tests.redis.certificates import Certificates, make_certificates

from holdfast import ConfigError, Event
from holdfast.testing.kafka_server import KafkaServer
from holdfast.testing.throw_away_server import free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
kafka_admin: Any = admin  # its annotations are partial


class SecureBroker(NamedTuple):
    port: int
    certificates: Certificates

    def url(self, login: str = "shop:word", *, authority: Path | None = None) -> str:
        ca = authority or self.certificates.authority
        return f"kafka://{login}@localhost:{self.port}/?tls=1&ca={ca}&sasl=scram-sha-512"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    certificates = make_certificates(tmp_path_factory.mktemp("certificates"))
    own = certificates.server.with_name("both.pem")
    own.write_bytes(certificates.key.read_bytes() + certificates.server.read_bytes())
    port, folder = free_port(), Path(tempfile.mkdtemp(prefix="holdfast-kafka-"))
    server = KafkaServer(folder)
    plain, controller = f"PLAINTEXT://127.0.0.1:{server.port}", f"CONTROLLER://127.0.0.1:{server.controller}"
    login = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    settings = {  # the last line of a name counts
        "listeners": f"{plain},SASL_SSL://localhost:{port},{controller}",
        "advertised.listeners": f"{plain},SASL_SSL://localhost:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": login,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(own),
    }
    with (folder / "server.properties").open("a") as file:
        file.writelines(f"{name}={value}\n" for name, value in settings.items())
    try:
        server.start()
        mechanism = kafka_admin.ScramCredentialInfo(kafka_admin.ScramMechanism.SCRAM_SHA_512, 4096)
        user = kafka_admin.UserScramCredentialUpsertion("shop", mechanism, b"word")
        client = kafka_admin.AdminClient({"bootstrap.servers": f"127.0.0.1:{server.port}"})
        client.alter_user_scram_credentials([user])["shop"].result(30)
        yield SecureBroker(port, certificates)
    finally:
        server.close()


async def test_events_are_appended_and_consumed_through_tls_and_scram(broker: SecureBroker):
    handled: list[Any] = []
    async with app_with(broker.url()) as app:

        @app.consumer("billing", category="orders", poll_interval=0.2)
        async def billing(event: Event) -> None:
            handled.append(event.payload)

        await app.append("orders", stream="a", name="placed", payload=1)
        await app.append_many("orders", [{"stream": "a", "name": "placed", "payload": n} for n in (2, 3)])
        async with app.working():
            await until(lambda: handled == [1, 2, 3])


async def test_a_wrong_password_is_refused(broker: SecureBroker):
    async with app_with(broker.url("shop:wrong")) as app, asyncio.timeout(60):
        with pytest.raises(ConfigError, match="check user, password and rights"):
            await app.append("orders", stream="a", name="placed")


async def test_a_broker_of_another_authority_is_refused(broker: SecureBroker, tmp_path: Path):
    other = make_certificates(tmp_path / "other").authority
    async with app_with(broker.url(authority=other)) as app, asyncio.timeout(60):
        with pytest.raises(ConfigError, match=r"TLS failed, check tls= and ca= in the URL: .*verif"):
            await app.append("orders", stream="a", name="placed")
