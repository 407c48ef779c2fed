"""What pages point out: schedules that are late, and the frames of a traceback that matter."""

from __future__ import annotations

import re
from datetime import timedelta

import msgspec

from holdfast.server.dashboard.formats import frames


async def test_the_overview_names_the_schedules_that_are_late(site, monkeypatch):
    await site.app.schedules.add("nightly", "send", "30 2 * * *", kwargs={"to": "x"})
    assert "nightly" not in await site.get("/")
    (view,) = await site.app.schedules.list()

    async def overdue() -> list[object]:
        return [msgspec.structs.replace(view, name=f"late-{n}", overdue=timedelta(hours=n)) for n in range(1, 9)]

    monkeypatch.setattr(site.app.schedules, "list", overdue)
    text = await site.get("/")

    assert re.findall(r"late-\d", text[text.index("Late schedules") :]) == [f"late-{n}" for n in (8, 7, 6, 5, 4)]
    assert "3 more" in text


def test_the_frames_of_the_program_itself_are_marked_in_a_traceback():
    text = (
        'Traceback (most recent call last):\n  File "/usr/lib/python3.11/asyncio/runners.py", line 1, in run\n    x\n'
        '  File "/srv/shop/<tasks>.py", line 7, in charge\n    pay()\nValueError: no'
    )

    marked = "<b>  File &#34;/srv/shop/&lt;tasks&gt;.py&#34;, line 7, in charge</b>\n<b>    pay()</b>\nValueError: no"
    assert str(frames(text)).endswith(marked)
    assert str(frames(text)).count("<b>") == 2
