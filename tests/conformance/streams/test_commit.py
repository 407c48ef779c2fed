from __future__ import annotations

from holdfast.testing.conformance.streams.commit import TestCommit, TestFetch, TestShareRelease

__all__ = ["TestCommit", "TestFetch", "TestShareRelease"]
