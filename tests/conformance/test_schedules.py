from __future__ import annotations

from holdfast.testing.conformance.schedules import (
    TestDeclarations,
    TestDefinitions,
    TestFire,
    TestFireFromManyProcesses,
)

__all__ = ["TestDeclarations", "TestDefinitions", "TestFire", "TestFireFromManyProcesses"]
