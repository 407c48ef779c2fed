"""Bars from the counts per minute: the geometry of charts that the templates draw as SVG."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from holdfast.store.values import Count

WINDOWS: Final = {"1h": timedelta(hours=1), "6h": timedelta(hours=6), "24h": timedelta(hours=24)}
"""What a chart may cover. A week of minutes would be too many rows to read for one page."""
_STEPS: Final = {"1h": timedelta(minutes=1), "6h": timedelta(minutes=5), "24h": timedelta(minutes=20)}
_STEP_NAMES: Final = {"1h": "minute", "6h": "5 minutes", "24h": "20 minutes"}
SERIES: Final[tuple[str, ...]] = ("completed", "retried", "failed")
"""From the bottom of a stack to its top."""
WIDTH, HEIGHT = 720, 120
_GAP: Final = 1.5


class Segment(msgspec.Struct, frozen=True):
    """A part of a bar: one series."""

    series: str
    y: float
    height: float


class Bar(msgspec.Struct, frozen=True):
    """What happened within one step of time; `title` says it in words."""

    x: float
    width: float
    title: str
    segments: tuple[Segment, ...]


class BarChart(msgspec.Struct, frozen=True):
    """A stacked bar chart: `top` is the value at its upper edge; `totals` are the sums of the series."""

    window: str
    bars: tuple[Bar, ...]
    top: int
    totals: dict[str, int]
    step: str
    start_at: datetime
    middle_at: datetime
    end_at: datetime
    width: int = WIDTH
    height: int = HEIGHT

    @property
    def is_empty(self) -> bool:
        """Whether nothing happened."""
        return not any(self.totals.values())


def throughput(counts: Iterable[Count], window: str, now: datetime) -> BarChart:
    """Return what happened to jobs within a window that ends now."""
    step = _STEPS[window]
    steps = WINDOWS[window] // step
    last = _floor(now, step)
    first = last - step * (steps - 1)
    sums: list[dict[str, int]] = [dict.fromkeys(SERIES, 0) for _ in range(steps)]
    for count in counts:
        place = (count.minute_at - first) // step
        if 0 <= place < steps:
            for series in SERIES:
                sums[place][series] += getattr(count, series)
    top = _rounded_up(max(sum(each.values()) for each in sums))
    width = WIDTH / steps
    bars = tuple(_bar(each, place * width, width, top, first + place * step) for place, each in enumerate(sums))
    totals = {series: sum(each[series] for each in sums) for series in SERIES}
    return BarChart(window, bars, top, totals, _STEP_NAMES[window], first, first + step * (steps // 2), last)


def _bar(sums: dict[str, int], x: float, width: float, top: int, at: datetime) -> Bar:
    segments: list[Segment] = []
    y = float(HEIGHT)
    for series in SERIES:
        height = sums[series] * HEIGHT / top
        if height:
            height = max(height, 1.0)  # one failure among thousands must be seen
            y -= height
            segments.append(Segment(series, round(max(y, 0.0), 2), round(height, 2)))
    words = ", ".join(f"{sums[series]:,} {series}" for series in SERIES if sums[series]) or "nothing"
    return Bar(round(x + _GAP / 2, 2), round(width - _GAP, 2), f"{at:%H:%M} UTC: {words}", tuple(segments))


def _floor(instant: datetime, step: timedelta) -> datetime:
    midnight = instant.replace(hour=0, minute=0, second=0, microsecond=0)
    return midnight + (instant - midnight) // step * step


def _rounded_up(value: int) -> int:
    """Return the next round number: 1, 2, 3, 4, 6 or 8 times a power of ten. So no chart is half empty."""
    size = 1
    while True:
        for factor in (1, 2, 3, 4, 6, 8):
            if factor * size >= value:
                return factor * size
        size *= 10


class Sparkline(msgspec.Struct, frozen=True):
    """Small bars without axes; `title` says what they show."""

    bars: tuple[Bar, ...]
    title: str
    series: str
    width: int
    height: int

    @property
    def path(self) -> str:
        """All bars as one path: a page may show many such lines."""
        parts = [(bar, part) for bar in self.bars for part in bar.segments]
        return "".join(f"M{bar.x:g} {part.y:g}h{bar.width:g}v{part.height:g}h-{bar.width:g}z" for bar, part in parts)


SPARK_WIDTH, SPARK_HEIGHT = 96, 20


def sparkline(values: Sequence[int], series: str, title: str) -> Sparkline:
    """Return one small bar for each value."""
    top = max([*values, 1])
    width = SPARK_WIDTH / max(len(values), 1)
    bars: list[Bar] = []
    for place, value in enumerate(values):
        if value:
            height = max(value * SPARK_HEIGHT / top, 1.5)
            part = Segment(series, round(SPARK_HEIGHT - height, 2), round(height, 2))
            bars.append(Bar(round(place * width, 2), round(max(width - 1, 1), 2), f"{value:,}", (part,)))
    return Sparkline(tuple(bars), title, series, SPARK_WIDTH, SPARK_HEIGHT)


def per_minute(counts: Iterable[Count], of: str, now: datetime, minutes: int = 30) -> dict[str, list[int]]:
    """Return what happened in each queue in each of the last minutes, the oldest first."""
    first = _floor(now, timedelta(minutes=1)) - timedelta(minutes=minutes - 1)
    found: dict[str, list[int]] = {}
    for count in counts:
        place = (count.minute_at - first) // timedelta(minutes=1)
        if 0 <= place < minutes:
            found.setdefault(count.queue, [0] * minutes)[place] += getattr(count, of)
    return found
