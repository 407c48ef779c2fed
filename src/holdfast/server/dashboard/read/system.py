"""The store, the versions, and what doctor finds."""

from __future__ import annotations

from datetime import timedelta
from importlib.metadata import PackageNotFoundError, version
from platform import python_version
from typing import TYPE_CHECKING

import msgspec

from holdfast.reports.doctor import examine
from holdfast.reports.finding import Finding, FindingLevel
from holdfast.server.dashboard.read.query import MOST_COUNTED
from holdfast.store.capabilities import Capabilities

if TYPE_CHECKING:
    from holdfast.app.app import App


class SystemScreen(msgspec.Struct, frozen=True):
    """What the page shows of the store and of this server."""

    url: str
    app_name: str
    capabilities: Capabilities
    findings: tuple[Finding, ...]
    level: FindingLevel
    facts: tuple[tuple[str, str], ...]
    retention: tuple[tuple[str, timedelta | None], ...]
    versions: tuple[tuple[str, str], ...]


async def read_system(app: App) -> SystemScreen:
    """Run doctor's checks and read the facts of the store."""
    findings = await examine(app, most=MOST_COUNTED)
    facts = await app.backend.insight.facts()
    return SystemScreen(
        app.backend.url,
        app.name,
        app.backend.capabilities,
        tuple(findings),
        max((finding.verdict for finding in findings), default=FindingLevel.OK),
        tuple(sorted((name, value) for name, value in facts.items() if name != "now_us")),
        tuple(msgspec.structs.asdict(app.retention).items()),
        (("holdfast", _version("holdfast")), ("python", python_version()), ("starlette", _version("starlette"))),
    )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "not installed"
