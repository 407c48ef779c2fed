"""A store begins with the key `meta`: its version, and an id that tells it from a later one of the same name."""

from __future__ import annotations

import secrets

from holdfast.backends.redis.location import RedisLocation
from holdfast.backends.redis.scripts import ALL, INSTALL
from holdfast.backends.redis.wire import VERSION, AsyncWire
from holdfast.errors import ConfigError, SchemaMismatch
from holdfast.store.schema_version import require_version

OLDEST = {"redis": (7, 0), "valkey": (7, 2)}


class RedisSchema:
    """`Schema` on Redis."""

    def __init__(self, wire: AsyncWire, location: RedisLocation) -> None:
        self._wire = wire
        self._location = location
        self._meta = f"{location.prefix}meta"
        self.info: dict[str, str] = {}
        """What the server reported about itself when the store was opened."""

    async def open(self, *, install: bool = True) -> None:  # noqa: D102 - the port states the contracts
        self.info = await server_info(self._wire)
        _check_server(self.info, self._location.url)
        if install and self._location.install == "auto" and not await self._version():
            await self.install()
        await self.check()

    async def install(self, *, only_existing: bool = False) -> int:  # noqa: D102
        if only_existing:
            require_version(await self._version(), VERSION, self._keys)
        found = int(await self._wire.ask("EVAL", INSTALL, 1, self._meta, secrets.token_hex(8)))
        if found != VERSION:
            require_version(found, VERSION, self._keys)
        return found

    async def check(self) -> None:  # noqa: D102
        require_version(await self._version(), VERSION, self._keys)

    def script(self) -> str:  # noqa: D102
        return "\n".join([INSTALL, *(script.text for script in ALL)])

    @property
    def _keys(self) -> str:
        return f"the keys {self._location.prefix}* of {self._location.url}"

    async def _version(self) -> int:
        return int(await self._wire.ask("HGET", self._meta, "version") or 0)


async def server_info(wire: AsyncWire) -> dict[str, str]:
    """Return what the server reports about itself."""
    text: bytes = await wire.ask("INFO")
    pairs = (line.split(":", 1) for line in text.decode("utf-8", "replace").splitlines() if ":" in line)
    return {line[0]: line[1] for line in pairs}


def kind_of(info: dict[str, str]) -> tuple[str, str]:
    """Return the name of the server and its version."""
    if "valkey_version" in info:
        return "valkey", info["valkey_version"]
    return "redis", info.get("redis_version", "0")


def _check_server(info: dict[str, str], where: str) -> None:
    kind, version = kind_of(info)
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST[kind]:
        raise SchemaMismatch(f"{where} is {kind} {version}: Redis 7.0 or Valkey 7.2 is needed, for scripts with flags")
    policy = info.get("maxmemory_policy", "noeviction")
    if policy.startswith("allkeys") and info.get("maxmemory", "0") != "0":
        raise ConfigError(f"{where} deletes keys when its memory is full ({policy}): set maxmemory-policy noeviction")
