"""Connections cut around a statement that commits by itself, as claims, completions and extensions do."""

from __future__ import annotations

from typing import ClassVar

from holdfast.torture.nemesis.commit import CutAtCommit
from holdfast.torture.plan import Fault
from holdfast.torture.proxy import WRITES


class Statement(CutAtCommit):
    """Cuts the link that sends the next statement that writes outside of a transaction: its request, or its reply."""

    kind: ClassVar[Fault] = Fault.STATEMENT
    pattern: ClassVar[str] = WRITES
    alone: ClassVar[bool] = True
