"""Recovery times: how long it took until jobs of a dead worker were claimed again, from the history."""

from __future__ import annotations

from pathlib import Path

from holdfast.torture.checker.holding import MAY_BE_DONE
from holdfast.torture.events import Claimed, EffectCommitted, Exited, Finished, Released
from holdfast.torture.history import History


def recoveries(directory: Path) -> list[float]:
    """Return the seconds from the death of each killed worker to the next claim of each job that it held."""
    history = History(directory)
    deaths = {event.process: event.at_us for _, event in history.of(Exited) if event.signal is not None}
    held: dict[str, int] = {}
    for file in history.files:
        if file.stem in deaths:
            for job in _held_at_the_end(history, file):
                held[job] = max(held.get(job, 0), deaths[file.stem])
    back: dict[str, int] = {}
    for _, claim in history.of(Claimed):
        died_us = held.get(claim.job)
        if died_us is not None and claim.at_us > died_us:
            back[claim.job] = min(back.get(claim.job, claim.at_us), claim.at_us)
    return sorted((at_us - held[job]) / 1e6 for job, at_us in back.items())


def _held_at_the_end(history: History, file: Path) -> set[str]:
    held: set[str] = set()
    for _, event in history.records(file):
        if isinstance(event, Claimed):
            held.add(event.job)
        elif isinstance(event, EffectCommitted) or (
            isinstance(event, Finished | Released) and event.verdict in MAY_BE_DONE
        ):
            held.discard(event.job)
    return held
