"""The checks of `holdfast doctor` for settings of a MySQL or MariaDB server; other stores report no such facts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from holdfast.reports.finding import Finding, FindingLevel, fine

_OLD = 300  # seconds: a transaction that old keeps the rows of all jobs that have ended since


def examine_server(facts: Mapping[str, str]) -> Iterator[Finding]:
    """Yield the findings about the server's settings."""
    if "binlog_format" in facts:
        yield _binary_log(facts)
    if "other_engines" in facts:
        yield _engine(facts["other_engines"])
    if "read_only" in facts and facts["read_only"] not in {"0", "OFF"}:
        remedy = "Point the URL at the primary, or set read_only = off."
        yield Finding("writes", FindingLevel.BAD, "the server is read-only for users without special rights", remedy)
    if "default_transaction_isolation" in facts and "other_engines" in facts:
        yield _isolation(facts["default_transaction_isolation"].replace("-", " ").lower())
    if "oldest_transaction" in facts:
        yield _oldest(facts["oldest_transaction"])


def _binary_log(facts: Mapping[str, str]) -> Finding:
    form = facts["binlog_format"].upper()
    if facts.get("log_bin") != "1":
        return fine("binary log", "off: the server has no replicas")
    if form == "STATEMENT":
        text = "binlog_format is STATEMENT, under which the server refuses or misreplicates `skip locked`"
        return Finding("binary log", FindingLevel.BAD, text, "Set binlog_format = ROW or MIXED.")
    return fine("binary log", form)


def _engine(others: str) -> Finding:
    if others == "none":
        return fine("engine", "all tables are InnoDB")
    remedy = "Convert each with `alter table … engine = innodb`."
    return Finding("engine", FindingLevel.BAD, f"not InnoDB, so without transactions: {others}", remedy)


def _isolation(level: str) -> Finding:
    if level == "serializable":
        text = "sessions are serializable by default: a transaction given as using= locks all that it reads"
        return Finding("isolation", FindingLevel.WARN, text, "Open these transactions as read committed.")
    return fine("isolation", f"{level} by default; sessions of Holdfast are read committed")


def _oldest(seconds: str) -> Finding:
    if not seconds.isdigit():
        return fine("oldest transaction", seconds)
    text = f"open for {int(seconds):,} s"
    if int(seconds) < _OLD:
        return fine("oldest transaction", text)
    remedy = "End it (`kill`, see information_schema.innodb_trx): until then no ended job's row can be purged."
    return Finding("oldest transaction", FindingLevel.WARN, text, remedy)
