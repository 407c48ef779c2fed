"""Type variables with a default: `Context` alone means `Context[Any]`, also for strict type checkers.

Python 3.11 and 3.12 have no defaults. Type checkers read them from `typing_extensions`, which they bring with them; at
run time the same variables exist without their defaults, and nothing has to be installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from typing_extensions import TypeVar

    Connection = TypeVar("Connection", default=Any)
    Result_co = TypeVar("Result_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    Connection = TypeVar("Connection")
    Result_co = TypeVar("Result_co", covariant=True)

__all__ = ["Connection", "Result_co"]
