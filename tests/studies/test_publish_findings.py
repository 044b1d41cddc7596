"""Sentences on the index that say what was found: each only as long as the results bear it."""

import re
from pathlib import Path

import pytest
from studies.publish import publish
from studies.publish_settings import read_settings

from attention_cem.studies import Cell
from tests.studies.publishing import MAIN, ROOT, figures, fill, page, repository, summary

FINDING = """
[[finding]]
words = "Ours hides more"
words_zh = "我们隐藏得更多"
shown_by = [{ study = "main-cifar10", data = "cifar10", comparison = "sound_vs_kmeans_best", verdict = "better" }]
"""


def with_finding(tmp_path: Path, text: str = FINDING) -> Path:
    root = repository(tmp_path, MAIN)
    settings = root / "results" / "comparisons.toml"
    others = re.sub(r"\[\[finding\]\].*?\n\]\n", "", settings.read_text(encoding="utf-8"), flags=re.DOTALL)
    settings.write_text(others + text, encoding="utf-8")
    return root


def weaker(cell: Cell) -> tuple[float, float]:
    accuracy, mse = figures(cell)
    return accuracy, mse / (4 if cell.method == "sound" else 1)


def test_findings__are_said_with_what_bears_them_and_not_without(tmp_path: Path) -> None:
    root = with_finding(tmp_path)
    publish(root)
    assert "What was found" not in page(root, "README")
    fill(root, "main-cifar10")
    publish(root)
    told = page(root, "README")
    gain = summary(root)["comparisons"]["cifar10"]["sound_vs_kmeans_best"]["mse_gain"]
    assert "- **Ours hides more.** 我们隐藏得更多。\n  - " in told
    assert f"  - {gain:.2f}× (" in told and ", better: `sound` / `kmeans_" in told
    fill(root, "main-cifar10", weaker)
    publish(root)
    assert "Ours hides more" not in page(root, "README")


@pytest.mark.parametrize("broken", ["shown_by = []", 'shown_by = [{ study = "main-cifar10" }]'])
def test_findings__without_what_bears_them_are_refused(tmp_path: Path, broken: str) -> None:
    root = with_finding(tmp_path, f'[[finding]]\nwords = "a"\nwords_zh = "b"\n{broken}\n')
    with pytest.raises(ValueError, match="an entry is incomplete or of the wrong kind"):
        read_settings(root)


def test_findings__all_of_ours_are_borne_by_the_stored_results() -> None:
    """One that is not any more would leave the page without a word: it must be said anew."""
    settings, told = read_settings(ROOT), page(ROOT, "README")
    assert settings.findings
    by_study = summary(ROOT)["comparisons_by_study"]
    for finding in settings.findings:
        assert f"- **{finding.words}.** {finding.words_zh}。" in told
        for study, data, key, verdict in finding.shown_by:
            assert verdict.startswith(by_study[study][data][key]["outcome"])


def test_findings__speak_of_receipts_only_where_all_of_them_pass() -> None:
    settings = read_settings(ROOT)
    by_study = summary(ROOT)["comparisons_by_study"]
    assert settings.findings
    for finding in settings.findings:
        receipts = [by_study[study][data][key]["receipts"] for study, data, key, _ in finding.shown_by]
        proven = all(each["passed"] == each["runs"] > 0 for each in receipts)
        assert proven or not ("receipt" in finding.words or "凭据" in finding.words_zh), finding.words
