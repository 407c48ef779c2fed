"""Parse a store URL: the servers, the name of the store on them, and how to connect.

```text
   redis://user:password@host:port/database           valkey://…, with TLS rediss:// and valkeys://
   unix:///path/to/socket?db=0
   redis+sentinel://host1:port,host2:port/service/database      the primary that these sentinels name
   redis+cluster://host1:port,host2:port              the node of a cluster that has the store's slot
```

Settings after `?`:

- `name=holdfast` names the store: all its keys begin with `{holdfast:NAME}:`, so they are in one hash slot;
- `install=auto|never`: whether opening may install the store on a server that has none of this name;
- `pool=32` limits the connections of one event loop;
- `reply_timeout=30`: the seconds after which a connection without a reply counts as broken;
- `completed_bytes=1000000000`: of completed jobs, the newest so many bytes of records and payloads are kept;
- `durability=volatile|1s|fsync|replicated`: what must survive a crash; see `durability.py`;
- `replicas=1`: so many replicas must have an enqueued job before it is acknowledged; 1 for `replicated`, else 0;
- `replica_timeout=1`: the seconds that an enqueue waits for them;
- `eviction=refuse|allow`: whether the store may be on a server that deletes any key when its memory is full;
- `sentinel_username=`, `sentinel_password=`: for sentinels that ask for them;
- `ca=<file>`: the certificates that sign the server's, for `rediss`.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

import msgspec

from holdfast.errors import ConfigError
from holdfast.store.url_settings import POSITIVE_SECONDS, Setting, read_settings

_TLS = {"rediss", "valkeys"}
_SERVER, _SENTINEL, _CLUSTER = "", "sentinel", "cluster"
SCHEMES = (
    "unix",
    *(
        f"{server}+{kind}" if kind else server
        for server in ("redis", "rediss", "valkey", "valkeys")
        for kind in (_SERVER, _SENTINEL, _CLUSTER)
    ),
)
_PORTS = {_SERVER: 6379, _SENTINEL: 26379, _CLUSTER: 6379}
_LAST_PORT = 65535
_EXAMPLE = "redis://localhost:6379/0?name=holdfast"
_SENTINEL_EXAMPLE = "redis+sentinel://host1:26379,host2:26379/mymaster/0"
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:,\s]+)(?::([0-9]{1,5}))?")
_SETTINGS = {
    "name": Setting("<name>", "[A-Za-z0-9_.-]{1,64}"),
    "install": Setting("auto|never", "auto|never"),
    "pool": Setting("<connections>", "0*[1-9][0-9]{0,5}", int),
    "reply_timeout": POSITIVE_SECONDS,
    "completed_bytes": Setting("<bytes>", "[0-9]{1,15}", int),
    "db": Setting("<number>", "[0-9]{1,5}", int),
    "ca": Setting("<file>", ".+"),
    "durability": Setting("volatile|1s|fsync|replicated", "volatile|1s|fsync|replicated"),
    "replicas": Setting("<number>", "[0-9]{1,2}", int),
    "replica_timeout": POSITIVE_SECONDS,
    "eviction": Setting("refuse|allow", "refuse|allow"),
    "sentinel_username": Setting("<name>", ".+"),
    "sentinel_password": Setting("<password>", ".+"),
}
_SECRETS = {"sentinel_password"}
_ENCODE = (
    "this is not a Redis URL: percent-encode the user name and the password: @ is %40, / is %2F, : is %3A, # is %23; "
    f"it must look like {_EXAMPLE}"
)


class Address(NamedTuple):
    """A host and a port."""

    host: str
    port: int


class RedisLocation(msgspec.Struct, frozen=True):
    """Which server and store, and how to connect. `full_url` has the password: for child processes, never shown.

    `addresses`: of the server, of the sentinels that know the primary of `service`, or of some nodes of the cluster.
    """

    url: str
    full_url: str
    addresses: tuple[Address, ...] = (Address("localhost", 6379),)
    path: str | None = None
    service: str | None = None
    is_cluster: bool = False
    db: int = 0
    username: str | None = None
    password: str | None = None
    tls: bool = False
    ca: str | None = None
    name: str = "holdfast"
    install: str = "auto"
    pool: int = 32
    reply_timeout: float = 30.0
    completed_bytes: int | None = None
    durability: str | None = None
    replicas: int = 0
    replica_timeout: float = 1.0
    eviction: str = "refuse"
    sentinel_username: str | None = None
    sentinel_password: str | None = None

    def __repr__(self) -> str:
        """Show the URL without the password."""
        return f"<RedisLocation {self.url}>"

    @property
    def prefix(self) -> str:
        """What every key of the store begins with; the braces make it one hash slot."""
        return f"{{holdfast:{self.name}}}:"

    @classmethod
    def parse(cls, url: str) -> RedisLocation:
        """Parse a URL; raise `ConfigError` if it is invalid. The error never contains any part of a password."""
        try:
            parts = urlsplit(url)
        except ValueError:
            raise ConfigError(_ENCODE) from None
        if parts.scheme not in SCHEMES or "#" in url or _is_suspect(parts):
            raise ConfigError(_ENCODE)
        shown = _shown(parts)
        server, _, kind = parts.scheme.partition("+")
        settings: dict[str, Any] = read_settings(parse_qsl(parts.query, keep_blank_values=True), _SETTINGS, shown)
        _check_replicas(settings, shown)
        if parts.scheme == "unix":
            if not parts.path.strip("/"):
                raise ConfigError(f"{shown} names no socket: it must look like unix:///run/redis.sock?db=0")
            settings["path"] = unquote(parts.path)
        else:
            settings["addresses"] = _addresses(parts, kind, shown)
            path = parts.path
            if kind == _SENTINEL:
                settings["service"], path = _service(path, shown)
            settings["db"] = _database(path, settings, shown)
        if kind == _CLUSTER and settings["db"]:
            raise ConfigError(f"{shown}: a cluster has only database 0")
        return cls(
            url=shown,
            full_url=url,
            username=None if not parts.username else unquote(parts.username),
            password=None if not parts.password else unquote(parts.password),
            tls=server in _TLS,
            is_cluster=kind == _CLUSTER,
            **settings,
        )


def _addresses(parts: SplitResult, kind: str, shown: str) -> tuple[Address, ...]:
    hosts = parts.netloc.rpartition("@")[2]
    if "," in hosts and not kind:
        raise ConfigError(f"{shown}: for several addresses the URL begins with redis+sentinel:// or redis+cluster://")
    several = hosts.split(",") if kind else [hosts]
    found = [_HOST.fullmatch(each) for each in several] if hosts else []
    if not all(each and int(each[2] or 1) <= _LAST_PORT for each in found):
        raise ConfigError(_ENCODE)
    if kind == _SENTINEL and not found:
        raise ConfigError(f"{shown} names no sentinel: it must look like {_SENTINEL_EXAMPLE}")
    addresses = tuple(Address(each[1].strip("[]"), int(each[2] or _PORTS[kind])) for each in found if each)
    return addresses or (Address("localhost", _PORTS[kind]),)


def _service(path: str, shown: str) -> tuple[str, str]:
    service, _, database = path.strip("/").partition("/")
    if not service:
        message = f"{shown} names no service, which the sentinels monitor: it must look like {_SENTINEL_EXAMPLE}"
        raise ConfigError(message)
    return unquote(service), database


def _check_replicas(settings: dict[str, Any], shown: str) -> None:
    if settings.get("durability") == "replicated" and settings.setdefault("replicas", 1) == 0:
        raise ConfigError(f"{shown}: durability=replicated needs at least one replica: drop replicas=0")


def _database(path: str, settings: dict[str, Any], shown: str) -> int:
    number = path.strip("/")
    if not number:
        return int(settings.get("db", 0))
    if not re.fullmatch("[0-9]{1,5}", number) or settings.get("db", int(number)) != int(number):
        raise ConfigError(f"{shown}: the path is the number of a database, as in {_EXAMPLE}")
    return int(number)


def _is_suspect(parts: SplitResult) -> bool:
    """Return whether the URL may have been split inside a password that is not percent-encoded."""
    user = parts.netloc.rpartition("@")[0]
    return "@" in user or "@" in parts.path or "@" in parts.query


def _shown(parts: SplitResult) -> str:
    user, at, host = parts.netloc.rpartition("@")
    given = parse_qsl(parts.query, keep_blank_values=True)
    query = urlencode([(name, "***" if name in _SECRETS else text) for name, text in given], quote_via=quote, safe="*")
    netloc = f"{user.partition(':')[0]}{at}{host}"
    return f"{parts.scheme}://{netloc}{parts.path}" + (f"?{query}" if query else "")
