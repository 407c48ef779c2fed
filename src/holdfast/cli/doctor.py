"""`holdfast doctor`: is the store well, and does anybody work on it?"""

from __future__ import annotations

import click

from holdfast.app.app import App
from holdfast.cli.doctor_checks import examine
from holdfast.cli.doctor_finding import Finding, FindingLevel
from holdfast.cli.json_output import json_option, show_json
from holdfast.cli.table import STYLES, Column, console, show_table
from holdfast.cli.target import Target, store_options
from holdfast.cli.text import mask
from holdfast.runtime.exit_code import ExitCode

_COLUMNS = (Column("check"), Column("verdict", coloured=True), Column("finding"))


@click.command()
@json_option
@store_options
def doctor(target: Target, *, as_json: bool) -> None:
    """See whether the store is well and somebody works on it.

    Looks at version, durability, tables, clock, waiting jobs, paused queues, expired leases and dead workers; and at
    consumers: lag, pauses, parked events and dead nodes. Exit code 1 if something is bad; warnings alone are 0. The
    report shows no password, arguments or error texts.
    """
    app = target.app()

    async def look(app: App) -> list[Finding]:
        return await examine(app)

    # An absent store is a finding here, not a failure, so the doctor looks for itself.
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
    FindingLevel.OK: "All is well.",
    FindingLevel.WARN: "Nothing is bad; the warnings deserve a look.",
    FindingLevel.BAD: "Something is bad.",
}


def _sentence(finding: Finding) -> str:
    return mask(f"{finding.text}. {finding.remedy}" if finding.remedy else finding.text)


def _document(finding: Finding) -> dict[str, str | None]:
    return {
        "check": finding.check,
        "verdict": finding.verdict.word,
        "finding": mask(finding.text),
        "remedy": finding.remedy,
    }
