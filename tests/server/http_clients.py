"""Many workers over HTTP in one process, which record what they see for the checker of the torture.

`python -m tests.server.http_clients '{…}'`. Some attempts end otherwise than by completion, some are extended, and
some wait past the end of their lease as a frozen worker would. A finish whose answer was lost is repeated.
"""

from __future__ import annotations

import asyncio
import random
import signal
import sys
from typing import Any

import httpx
import msgspec

from holdfast.runtime.parent_death import die_with
from holdfast.torture.events import Claimed, ExtendAnswered, Finished, Released
from holdfast.torture.history import Writer, now_us

ENDS = {"complete": "completed", "retry": "retried", "fail": "failed", "release": "released"}
SHARES = (88, 6, 3, 3)
WAIT = 3.0
AGAIN = 0.2


class ClientsSettings(msgspec.Struct, frozen=True):
    """What the process needs to know."""

    url: str
    history: str
    name: str
    parent: int
    clients: int
    lease: float
    queue: str
    task: str


class Client:
    """One worker: claims, works, and ends what it has claimed."""

    def __init__(self, settings: ClientsSettings, http: httpx.AsyncClient, writer: Writer, number: int) -> None:
        self.settings = settings
        self.http = http
        self.writer = writer
        self.worker_id = f"{writer.process}.{number}"
        self.chance = random.Random()

    async def run(self, is_stopping: asyncio.Event) -> None:
        while not is_stopping.is_set():
            body = {
                "queues": [self.settings.queue],
                "tasks": [self.settings.task],
                "worker_id": self.worker_id,
                "limit": self.chance.randint(1, 2),
                "lease_seconds": self.settings.lease,
                "wait_seconds": WAIT,
            }
            sent_us = now_us()
            answer = await self.asked("claim", body)
            if answer is None:  # what was claimed is rescued when its lease expires
                await asyncio.sleep(AGAIN)
                continue
            at_us = now_us()
            for claimed in answer["leases"]:
                self.record_claim(claimed, sent_us, at_us)
            await asyncio.gather(*(self.work(claimed["lease"]) for claimed in answer["leases"]))

    async def asked(self, verb: str, body: dict[str, Any]) -> Any:
        """Return the answer; None if it was lost, or the server has none."""
        try:
            response = await self.http.post(f"/v1/leases/{verb}", json=body)
        except httpx.TransportError:
            return None
        if response.status_code in {408, 503}:  # 408: this process was stopped while it sent the request
            return None
        response.raise_for_status()
        return response.json()

    def record_claim(self, claimed: Any, sent_us: int, at_us: int) -> None:
        self.writer.write(
            Claimed(
                at_us=at_us,
                job=claimed["job"]["id"],
                fence=int(claimed["lease"]["fence"]),
                attempt=claimed["job"]["attempt"],
                worker=self.worker_id,
                queue=claimed["job"]["queue"],
                task=claimed["job"]["task"],
                sent_us=sent_us,
                lease_us=round(claimed["lease_seconds"] * 1e6),
                direct=True,
            )
        )

    async def work(self, lease: Any) -> None:
        await asyncio.sleep(self.chance.random() * 0.2)
        drawn = self.chance.random()
        if drawn < 0.02:
            await asyncio.sleep(self.settings.lease * 1.5)  # frozen: what it writes afterwards may be stale
        elif drawn < 0.1:
            for _ in range(3):
                if not await self.extended(lease):
                    return
                await asyncio.sleep(self.settings.lease / 2)
        await self.end(lease, self.chance.choices(list(ENDS), SHARES)[0])

    async def extended(self, lease: Any) -> bool:
        sent_us = now_us()
        body = {"leases": [{"lease": lease}], "lease_seconds": self.settings.lease, "worker_id": self.worker_id}
        answer = await self.asked("extend", body)
        verdict = "unknown" if answer is None else answer["verdicts"][0]["verdict"]
        self.writer.write(
            ExtendAnswered(
                at_us=now_us(),
                job=lease["job_id"],
                fence=int(lease["fence"]),
                verdict={"extended": "done"}.get(verdict, verdict),
                sent_us=sent_us,
                lease_us=round(self.settings.lease * 1e6),
            )
        )
        return verdict != "lost"

    async def end(self, lease: Any, how: str) -> None:
        """End an attempt; repeat until there is an answer."""
        job, fence = lease["job_id"], int(lease["fence"])
        while True:
            sent_us = now_us()
            if how == "release":
                answer = await self.asked("release", {"leases": [lease], "started": True})
            else:
                item = {"lease": lease, "outcome": how}
                if how != "complete":
                    item["error"] = {"class": "Unlucky", "message": "as drawn"}
                if how == "retry":
                    item["delay_seconds"] = 0
                answer = await self.asked("finish", {"leases": [item]})
            verdict = "unknown" if answer is None else answer["verdicts"][0]["verdict"]
            at_us = now_us()
            if how == "release":
                self.writer.write(
                    Released(at_us=at_us, job=job, fence=fence, started=True, verdict=verdict, sent_us=sent_us)
                )
            else:
                self.writer.write(
                    Finished(at_us=at_us, job=job, fence=fence, outcome=ENDS[how], verdict=verdict, sent_us=sent_us)
                )
            if answer is not None:
                return
            await asyncio.sleep(AGAIN)


async def main(settings: ClientsSettings, writer: Writer) -> None:
    is_stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, is_stopping.set)
    limits = httpx.Limits(max_connections=2 * settings.clients)
    async with httpx.AsyncClient(base_url=settings.url, timeout=WAIT + 20, limits=limits) as http:
        clients = [Client(settings, http, writer, number) for number in range(settings.clients)]
        await asyncio.gather(*(client.run(is_stopping) for client in clients))


if __name__ == "__main__":
    given = msgspec.json.decode(sys.argv[1], type=ClientsSettings)
    die_with(given.parent)
    history = Writer(given.history, run="http", role="worker", name=given.name)
    asyncio.run(main(given, history))
    history.close()
