"""The time for the head of a request: uvicorn limits only the pauses between requests, so a head could be sent forever.

```text
   connected, or the first bytes of a further request ──▶ head complete: the limits of the request apply
                                                     └──▶ too late: the connection is closed
```
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.auto import AutoHTTPProtocol

_TIME: Final = 10.0  # seconds


class _HeadLimit(asyncio.Protocol):
    """The part before a protocol of uvicorn, whose `cycle` is the request that it has read last."""

    cycle: Any
    _late: asyncio.TimerHandle | None = None
    _transport: asyncio.BaseTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._transport = transport
        self._begin()

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            self._end()
        elif self._late is None and before is not None and before.response_complete:
            self._begin()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()
        super().connection_lost(exc)

    def _begin(self) -> None:
        self._late = asyncio.get_running_loop().call_later(_TIME, self._transport.close)

    def _end(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


HTTP_PROTOCOL: Final[type[asyncio.Protocol]] = type("LimitedHttpProtocol", (_HeadLimit, AutoHTTPProtocol), {})
"""The protocol that uvicorn would choose, with the limit."""
