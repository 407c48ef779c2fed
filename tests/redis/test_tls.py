"""TLS: the server's certificate is checked, and the whole path works over it. The wheel's Valkey has no TLS."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.redis.certificates import make_certificates
from tests.servers.redis import own_redis

from holdfast import App
from holdfast.app.open import open_backend
from holdfast.errors import StoreUnavailable
from holdfast.testing.conformance.base import LEASE, a_job, claim, enqueue, in_extender
from holdfast.testing.stores import open_store
from holdfast.testing.throw_away_server import free_port

pytestmark = pytest.mark.slow


class Secured(NamedTuple):
    """The URL of a server with TLS, and the certificate of its authority."""

    url: str
    authority: Path


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("certificates")
    made = make_certificates(folder)
    port = free_port()
    settings = {
        "tls_cert_file": str(made.server),
        "tls_key_file": str(made.key),
        "tls_ca_cert_file": str(made.authority),
    }
    with own_redis("redis", tls_port=str(port), tls_auth_clients="no", **settings):
        yield Secured(f"rediss://localhost:{port}/0?name=a", made.authority)


async def test_all_connections_use_tls(secured: Secured):
    async with open_store(f"{secured.url}&ca={secured.authority}") as backend:
        await enqueue(backend, a_job())
        (job,) = await claim(backend)
        assert (await in_extender(backend, lambda extender: extender.extend([job.lease], LEASE))).lost == []


async def test_a_worker_is_notified_over_tls(secured: Secured):
    async with App(f"{secured.url}&ca={secured.authority}") as app:

        @app.task
        async def double(number: int) -> int:
            return 2 * number

        async with app.working(concurrency=2):
            job = await double.enqueue(4)
            assert await job.result(timeout=20) == 8


async def test_a_certificate_of_an_unknown_authority_is_refused(secured: Secured):
    backend = open_backend(secured.url)
    with pytest.raises(StoreUnavailable, match="certificate verify failed"):
        await backend.open()
    await backend.close()


async def test_a_certificate_for_another_name_is_refused(secured: Secured):
    url = secured.url.replace("localhost", "127.0.0.1")
    backend = open_backend(f"{url}&ca={secured.authority}")
    with pytest.raises(StoreUnavailable, match="IP address mismatch"):
        await backend.open()
    await backend.close()
