"""`holdfast doctor`: check the health of the store, its workers and its consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.json_output import json_option, show_json
from holdfast.cli.suggested_commands import runnable
from holdfast.cli.table import STYLES, Column, console, show_table
from holdfast.cli.target import StoreTarget, require_file, store_options
from holdfast.errors import HoldfastError
from holdfast.reports.doctor import examine, unavailable
from holdfast.reports.finding import Finding, FindingLevel
from holdfast.reports.text import mask
from holdfast.runtime.exit_code import ExitCode

if TYPE_CHECKING:
    from holdfast.app.app import App

_COLUMNS = (Column("check"), Column("verdict", coloured=True), Column("finding"))


@click.command()
@json_option
@store_options
def doctor(target: StoreTarget, *, as_json: bool) -> None:
    """Check the store and the workers.

    Checks version, durability, tables, clock, waiting jobs and their tasks, paused queues, expired leases and dead
    workers; and for consumers: lag, pauses, parked events and dead nodes. Exits with code 1 if a check is bad, with 0
    if there are only warnings. The report contains no passwords, arguments or error messages.
    """
    app = target.app()

    async def look(app: App) -> list[Finding]:
        try:
            require_file(app)
        except HoldfastError as error:
            return [unavailable(error)]
        return await examine(app)

    # A missing store is a finding here, not an error: the checks look for it themselves.
    findings = target.run(look, app=app, creates=True)
    worst = max((finding.verdict for finding in findings), default=FindingLevel.OK)
    if as_json:
        show_json({"verdict": worst.word, "checks": [_document(finding) for finding in findings]})
    else:
        show_table(_COLUMNS, [(finding.check, finding.verdict.word, _sentence(finding)) for finding in findings])
        out = console()
        if out.is_terminal:
            out.print(f"\n{_SUMMARIES[worst]}", style=STYLES[worst.word])
    if worst is FindingLevel.BAD:
        click.get_current_context().exit(ExitCode.WRONG)


_SUMMARIES = {
    FindingLevel.OK: "All checks passed.",
    FindingLevel.WARN: "No check failed; see the warnings.",
    FindingLevel.BAD: "At least one check failed.",
}


def _sentence(finding: Finding) -> str:
    return mask(runnable(f"{finding.text}. {finding.remedy}" if finding.remedy else finding.text))


def _document(finding: Finding) -> dict[str, str | None]:
    return {
        "check": finding.check,
        "verdict": finding.verdict.word,
        "finding": mask(runnable(finding.text)),
        "remedy": None if finding.remedy is None else runnable(finding.remedy),
    }
