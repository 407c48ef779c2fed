"""An appender of a stream run: `python -m holdfast.torture.programs.appender '{…}'`."""

from __future__ import annotations

import asyncio

from holdfast.torture.programs.appending import Appending
from holdfast.torture.programs.opening import opened
from holdfast.torture.programs.pace import ProducerPace
from holdfast.torture.programs.settings import Produced, ProducerSettings
from holdfast.torture.streams.app import app


async def append(settings: ProducerSettings) -> None:
    """Append until SIGTERM."""
    luck = settings.chance("luck")
    appending = Appending(settings.name, settings.chance(), luck, rate=settings.rate, events=settings.jobs)
    pace = ProducerPace(settings)

    def produced() -> Produced:
        return Produced(appending.appended, appending.calls)

    try:
        while not pace.is_over:
            await appending.once()
            await pace.keep(produced())
        pace.report(produced())
    finally:
        await app.close()


def main() -> None:
    """Run the appender described by the argument."""
    with opened(ProducerSettings) as settings:
        asyncio.run(append(settings))


if __name__ == "__main__":
    main()
