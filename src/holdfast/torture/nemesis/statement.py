"""Connections cut at an autocommitted statement, such as a claim, a completion or an extension."""

from __future__ import annotations

from typing import ClassVar

from holdfast.torture.nemesis.commit import CutAtCommit
from holdfast.torture.plan import Fault
from holdfast.torture.proxy import WRITES


class Statement(CutAtCommit):
    """Cuts the connection that sends the next autocommitted write: its request or its reply is lost."""

    kind: ClassVar[Fault] = Fault.STATEMENT
    pattern: ClassVar[str] = WRITES
    alone: ClassVar[bool] = True
