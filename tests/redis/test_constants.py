"""Numbers that the scripts and Python share."""

from __future__ import annotations

import re

from holdfast.backends.redis import children, job_reads, job_writes, jobs, record
from holdfast.backends.redis.scripts import ENQUEUE
from holdfast.model.instants import span_micros
from holdfast.model.turn import PRIORITY_STEP

LINE = re.compile(r"^local ([A-Z]+(?:, [A-Z]+)*) = (\d+(?:, \d+)*)$", re.MULTILINE)
ELSEWHERE = {
    "STEP": span_micros(PRIORITY_STEP),
    "SMALL": job_writes.SMALL,
    "CHUNK": job_reads.CHUNK,
    "DELAYED": jobs._DELAYED,
    "INSTANT": jobs._INSTANT,
    "WAITS": children.WAITS,
    "PARENT": children._PARENT,
}
OF_LUA = {"MINUTE", "WORDS"}  # Python has no such number


def test_the_scripts_have_the_numbers_of_python():
    lines = LINE.findall(ENQUEUE.text)
    pairs = [pair for names, numbers in lines for pair in zip(names.split(", "), numbers.split(", "), strict=True)]
    found = {name: int(number) for name, number in pairs}
    assert {*OF_LUA, *ELSEWHERE} < found.keys()
    known = {name: ELSEWHERE.get(name, getattr(record, name, None)) for name in found if name not in OF_LUA}
    assert known == {name: number for name, number in found.items() if name not in OF_LUA}
