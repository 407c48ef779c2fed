from __future__ import annotations

from holdfast.testing.conformance.streams.commit import TestCommit, TestFetch, TestRelease

__all__ = ["TestCommit", "TestFetch", "TestRelease"]
