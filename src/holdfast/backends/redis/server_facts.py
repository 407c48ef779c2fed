"""What a server reports about itself: INFO, and CONFIG GET where that is allowed."""

from __future__ import annotations

import msgspec

from holdfast.backends.redis.durability import Persistence, lacks
from holdfast.backends.redis.error_map import REMEDIES
from holdfast.backends.redis.location import RedisLocation
from holdfast.backends.redis.wire import AsyncWire
from holdfast.errors import ConfigError, PrivilegeMissing, SchemaMismatch, StoreError, StoreUnavailable

OLDEST = {"redis": (7, 0), "valkey": (7, 2)}
_SETTINGS = ("appendfsync", "no-appendfsync-on-rewrite", "min-replicas-to-write", "busy-reply-threshold")
_SHOWN = (
    *("role", "used_memory", "maxmemory", "maxmemory_policy", "total_system_memory", "evicted_keys"),
    *("aof_enabled", "aof_last_write_status", "aof_last_bgrewrite_status", "rdb_last_bgsave_status"),
    *("latest_fork_usec", "cluster_enabled"),
)


class ServerReport(msgspec.Struct, frozen=True):
    """`info` is empty before the server was asked; `settings` is None where they may not be read."""

    info: dict[str, str] = {}
    settings: dict[str, str] | None = None

    @property
    def kind(self) -> str:
        """The name of the server."""
        return "valkey" if "valkey_version" in self.info else "redis"

    @property
    def version(self) -> str:
        """Its version."""
        return self.info.get("valkey_version") or self.info.get("redis_version", "0")

    @property
    def persistence(self) -> Persistence:
        """How it keeps its data."""
        return Persistence.of(self.info, self.settings)

    def check(self, location: RedisLocation) -> None:
        """Raise if such a server cannot have a store, or cannot yet."""
        if self.info.get("loading") == "1":  # until it has, it says that it has no append-only file
            raise StoreUnavailable(f"{location.url}: {REMEDIES['LOADING']}")
        if tuple(int(part) for part in self.version.split(".")[:2]) < OLDEST[self.kind]:
            needed = "Redis 7.0 or Valkey 7.2 is needed, for scripts with flags"
            raise SchemaMismatch(f"{location.url} is {self.kind} {self.version}: {needed}")
        if self._evicts and location.eviction != "allow":
            raise ConfigError(
                f"{location.url} deletes keys when its memory is full ({self.info['maxmemory_policy']}): set "
                "maxmemory-policy noeviction, or accept the loss of jobs with eviction=allow in the URL"
            )

    @property
    def _evicts(self) -> bool:
        """Whether it may delete keys without a time to live, as all of a store's are."""
        return self.info.get("maxmemory_policy", "").startswith("allkeys")

    def facts(self, location: RedisLocation) -> dict[str, str]:
        """Return what `holdfast doctor` judges."""
        found = self.persistence
        facts = {name: self.info[name] for name in _SHOWN if name in self.info}
        facts |= {
            "server": self.kind,
            "version": self.version,
            "replicas": str(found.replicas),
            "replicas_needed": str(location.replicas),
            "evicts": "yes" if self._evicts else "no",
            **{name.replace("-", "_"): text for name, text in (self.settings or {}).items()},
        }
        missing = next(lacks(location, found), None)
        if missing is not None:
            facts |= {
                "durability_lack": missing.text,
                "durability_remedy": missing.remedy[:1].upper() + missing.remedy[1:],
                "durability_verdict": "missing" if found.level else "unknown",
            }
        if location.completed_bytes is not None:
            facts["completed_bytes_limit"] = str(location.completed_bytes)
        return facts


async def ask_server(wire: AsyncWire) -> ServerReport:
    """Ask a server about itself."""
    text: bytes = await wire.ask("INFO")
    return ServerReport(_pairs(text), await _settings(wire))


def _pairs(text: bytes) -> dict[str, str]:
    pairs = (line.split(":", 1) for line in text.decode("utf-8", "replace").splitlines() if ":" in line)
    return {line[0]: line[1] for line in pairs}


async def _settings(wire: AsyncWire) -> dict[str, str] | None:
    try:
        words: list[bytes] = await wire.ask("CONFIG", "GET", *_SETTINGS)
    except PrivilegeMissing:
        return None
    except StoreUnavailable:
        raise
    except StoreError:  # a managed service may have no such command
        return None
    texts = [word.decode("utf-8", "replace") for word in words]
    return dict(zip(texts[::2], texts[1::2], strict=True))
