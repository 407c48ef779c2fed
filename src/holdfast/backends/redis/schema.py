"""A store begins with the key `meta`: its version, and an id that a later store of the same name does not have."""

from __future__ import annotations

import logging
import secrets

from holdfast.backends.redis.durability import require
from holdfast.backends.redis.location import RedisLocation
from holdfast.backends.redis.scripts import ALL, INSTALL
from holdfast.backends.redis.server_facts import ServerReport, ask_server
from holdfast.backends.redis.wire import VERSION, AsyncWire
from holdfast.store.schema_version import require_version

_logger = logging.getLogger("holdfast.redis")


class RedisSchema:
    """`Schema` on Redis."""

    def __init__(self, wire: AsyncWire, location: RedisLocation) -> None:
        self._wire = wire
        self._location = location
        self._meta = f"{location.prefix}meta"
        self.report = ServerReport()
        """What the server reported about itself when the store was opened."""

    async def open(self, *, install: bool = True) -> None:  # noqa: D102 - the port states the contracts
        found = await self._version()  # first: in a cluster it finds the node that has the store, for what names no key
        self.report = await ask_server(self._wire)
        self.report.check(self._location)
        for warning in require(self._location, self.report.persistence):
            _logger.warning("%s", warning)
        if install and self._location.install == "auto" and not found:
            await self.install()
            _logger.info("%s: installed an empty store: there was none of this name", self._location.url)
        await self.check()

    async def install(self, *, only_existing: bool = False) -> int:  # noqa: D102
        if only_existing:
            require_version(await self._version(), VERSION, self._keys)
        found = int(await self._wire.ask("EVAL", INSTALL, 1, self._meta, secrets.token_hex(8)))
        if found != VERSION:
            require_version(found, VERSION, self._keys)
        return found

    async def check(self) -> int:  # noqa: D102
        require_version(await self._version(), VERSION, self._keys)
        return VERSION

    def script(self) -> str:  # noqa: D102
        return "\n".join([INSTALL, *(script.text for script in ALL)])

    @property
    def _keys(self) -> str:
        return f"the keys {self._location.prefix}* of {self._location.url}"

    async def _version(self) -> int:
        return int(await self._wire.ask("HGET", self._meta, "version") or 0)
