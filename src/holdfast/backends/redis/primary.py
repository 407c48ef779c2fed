"""Where the primary of a store is: found for each new connection, and noted at faults and redirections.

```text
   one server    the address in the URL
   sentinels     the address that the first sentinel to answer names
   a cluster     the address that MOVED named last, or else those in the URL, one after another
```

A connection is used only if its server says that it is a primary: a replica answers reads with an older state. In a
cluster nothing is asked: a replica answers MOVED.
"""

from __future__ import annotations

import asyncio
import socket
import time
from types import ModuleType
from typing import Any

from redis import connection as blocking
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import MovedError, ReadOnlyError, RedisError
from redis.retry import Retry

from holdfast.backends.redis.error_map import is_reply
from holdfast.backends.redis.location import Address, RedisLocation

CONNECT_TIMEOUT = 5.0
_SENTINEL_TIMEOUT = 1.0
_LEAST = 0.01
_NOWHERE = Address("", 0)
# A machine that is gone closes no connection, and one that listens sends nothing: the kernel finds out within 25 s.
_KEEPALIVE = {"socket_keepalive_options": {socket.TCP_KEEPIDLE: 10, socket.TCP_KEEPINTVL: 5, socket.TCP_KEEPCNT: 3}}


class TimeLeft:
    """The time in which a connection is made; an address that does not answer leaves some of it for the others."""

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds

    def part(self, steps: int, most: float) -> float:
        """Return the seconds for the first of so many steps, at most `most`."""
        return max(_LEAST, min(most, (self._until - time.monotonic()) / steps))


class Primary:
    """The way to the primary of a store, for the connections of one process; `address` is that of the newest one.

    Connections to another address are out of date.
    """

    def __init__(self, location: RedisLocation) -> None:
        self.location = location
        self.address = _NOWHERE
        self._known = location.addresses
        self.attempts = 1
        """Of one connection, each at another address: the one that was right so far may be that of a lost primary."""
        if location.service is not None or location.is_cluster:
            self.attempts += len(location.addresses) if location.is_cluster else 1

    def is_current(self, address: Address) -> bool:
        """Whether a connection to this address may still be used."""
        return address is self.address or address == self.address

    async def found(self) -> Address:
        """Return the address of the primary; errors of the driver pass through."""
        if self.location.service is not None and self.address is _NOWHERE:
            return await asyncio.to_thread(self.find, TimeLeft(CONNECT_TIMEOUT))
        return self.find(TimeLeft(CONNECT_TIMEOUT))

    def find(self, left: TimeLeft, steps: int = 0) -> Address:
        """Return the address of the primary, with blocking calls; the time left is shared with `steps` more."""
        if self.address is _NOWHERE:
            self.address = self._known[0] if self.location.service is None else self._ask_sentinels(left, steps)
        return self.address

    def _ask_sentinels(self, left: TimeLeft, steps: int) -> Address:
        reasons: list[str] = []
        for others, sentinel in zip(reversed(range(len(self._known))), self._known, strict=True):
            try:
                answer = self._ask_sentinel(sentinel, left.part(1 + others + steps, _SENTINEL_TIMEOUT))
            except (RedisError, OSError) as error:
                answer, reason = None, str(error) or type(error).__name__
            else:
                reason = f"it monitors no service {self.location.service}"
            if answer is not None:
                return answer
            reasons.append(f"{sentinel.host}:{sentinel.port}: {reason}")
            self._put_last(sentinel)
        raise RedisConnectionError(f"no sentinel names a primary: {'; '.join(reasons)}")

    def _ask_sentinel(self, sentinel: Address, timeout: float) -> Address | None:
        location = self.location
        connection = _new(
            blocking,
            location,
            sentinel,
            username=location.sentinel_username,
            password=location.sentinel_password,
            socket_connect_timeout=timeout,
            socket_timeout=timeout,
        )
        try:
            connection.connect()
            connection.send_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", location.service)
            found = connection.read_response()
        finally:
            connection.disconnect()
        return None if found is None else Address(found[0].decode(), int(found[1]))

    def connection(
        self, module: ModuleType, address: Address, connect_timeout: float, socket_timeout: float | None
    ) -> Any:
        """Return a connection to a server, not yet opened, of the driver's async or blocking module."""
        location = self.location
        return _new(
            module,
            location,
            address,
            db=location.db,
            username=location.username,
            password=location.password,
            client_name=f"holdfast.{location.name}",  # shown by CLIENT LIST
            socket_connect_timeout=connect_timeout,
            socket_timeout=socket_timeout,
        )

    @property
    def question(self) -> tuple[str, ...]:
        """The words with which a new connection asks for the role of its server; none in a cluster."""
        return () if self.location.is_cluster else ("INFO", "replication")

    def require_primary(self, reply: Any) -> None:
        """Raise `ReadOnlyError` if the reply to `question` is that of a replica; raise the reply if it is an error."""
        if isinstance(reply, Exception):
            raise reply
        facts = dict(line.split(":", 1) for line in reply.decode().splitlines() if ":" in line)
        if facts.get("role") == "slave":
            raise ReadOnlyError(f"a replica of {facts.get('master_host')}:{facts.get('master_port')}")

    def note_fault(self, error: BaseException, address: Address) -> bool:
        """Note a fault of a connection; return whether the call was not carried out and another server will."""
        if isinstance(error, MovedError) and self.location.path is None:
            named: Any = error
            self.address = Address(named.host or address.host, int(named.port))
            return True
        is_elsewhere = self.location.service is not None or self._known != (address,)
        if isinstance(error, ReadOnlyError) or (is_elsewhere and not is_reply(error)):
            if self.is_current(address):
                self.address = _NOWHERE
            self._put_last(address)
        return False

    def _put_last(self, address: Address) -> None:
        """The next question goes to another one of the addresses in the URL."""
        if address in self._known:
            self._known = (*(each for each in self._known if each != address), address)


def connect_blocking(primary: Primary, timeout: float) -> tuple[Any, Address]:
    """Open a blocking connection to the primary; errors of the driver pass through.

    It gives up after about the `timeout`, however many addresses do not answer.
    """
    left = TimeLeft(min(timeout, CONNECT_TIMEOUT * primary.attempts))
    for others in reversed(range(primary.attempts)):
        address = primary.find(left, 1 + others)
        try:
            return _connected(primary, address, left.part(1 + others, CONNECT_TIMEOUT)), address
        except (RedisError, OSError):
            if not others:
                raise
    raise AssertionError


def _connected(primary: Primary, address: Address, timeout: float) -> Any:
    connection = primary.connection(blocking, address, timeout, timeout)
    try:
        connection.connect()
        if primary.question:
            connection.send_command(*primary.question)
            primary.require_primary(connection.read_response())
    except BaseException as error:
        primary.note_fault(error, address)
        connection.disconnect()
        raise
    return connection


def _new(module: ModuleType, location: RedisLocation, address: Address, **settings: Any) -> Any:
    settings |= {"protocol": 2, "retry": Retry(NoBackoff(), 0)}
    if location.path is not None:
        return module.UnixDomainSocketConnection(path=location.path, **settings)
    settings |= {"host": address.host, "port": address.port, "socket_keepalive": True, **_KEEPALIVE}
    if location.tls:
        return module.SSLConnection(ssl_ca_certs=location.ca, ssl_check_hostname=True, **settings)
    return module.Connection(**settings)
