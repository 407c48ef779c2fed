"""What a group commits: an offset, and in its metadata the generation of the share.

The broker checks who commits, not which partitions it owns, and knows no generation. So a member that is assigned
a partition reads the generation, and commits the same offset with the next one before it begins. It grows as long as
only Holdfast commits: offsets that another program sets have no generation, and the next one is 1 again.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_MARK: Final = re.compile(r"holdfast generation (\d{1,18})")


class CommittedOffset(NamedTuple):
    """A position, and the generation under which it was committed."""

    position: int
    generation: int

    @property
    def metadata(self) -> str:
        """The text that is committed with the offset."""
        return f"holdfast generation {self.generation}"

    @classmethod
    def of(cls, offset: int, metadata: str | None) -> CommittedOffset | None:
        """Return what was committed, by Holdfast or by another program of the group; None if nothing was."""
        if offset < 0:
            return None
        found = _MARK.fullmatch(metadata or "")
        return cls(offset, 0 if found is None else int(found[1]))


def is_ours(metadata: str | None) -> bool:
    """Return whether Holdfast has committed this."""
    return _MARK.fullmatch(metadata or "") is not None
