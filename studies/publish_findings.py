"""What the studies found, in sentences, each with the comparisons that bear it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from studies.publish_comparisons import Compared
from studies.publish_questions import audit_words, side_name
from studies.publish_settings import Finding, Settings
from studies.publish_tables import interval, verdict, verdict_across


def findings_block(settings: Settings, compared: Sequence[Compared]) -> list[str]:
    """Those findings that every comparison they name bears; nothing where there is none."""
    lines = []
    for finding in settings.findings:
        records = borne_out(finding, compared)
        if records is not None:
            lines.append(f"- **{finding.words}.** {finding.words_zh}。")
            lines += [f"  - {_told(record)}" for record in records]
    if not lines:
        return []
    return ["## What was found 主要发现", "\n".join(lines)]


def borne_out(finding: Finding, compared: Sequence[Compared]) -> list[Mapping[str, Any]] | None:
    """The comparisons that a finding names, as long as each has the verdict it is named for; else None."""
    by_study = {each.experiment: each.records for each in compared}
    records: list[Mapping[str, Any]] = []
    for study, data, key, wanted in finding.shown_by:
        record = by_study.get(study, {}).get(data, {}).get(key)
        if record is None or verdict(record) != wanted:
            return None
        records.append(record)
    return records


def _told(record: Mapping[str, Any]) -> str:
    ends = interval(record["ci95"], at_least=record["at_least"], digits=2)
    gain = f"{'≥ ' * record['at_least']}{record['mse_gain']:.2f}×"
    names = " / ".join(f"`{side_name(record, side)}`" for side in "ab")
    return f"{gain} ({ends}), {verdict_across(record)}: {names}, `{record['study']}`, {audit_words(record)}"
