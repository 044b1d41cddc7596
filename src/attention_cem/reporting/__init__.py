"""The report: one self-contained page from run and study folders. It formats figures and computes none."""

from attention_cem.reporting.report import write_report
from attention_cem.reporting.sources import ReportError, RunView, StudyView, read_sources

__all__ = ["ReportError", "RunView", "StudyView", "read_sources", "write_report"]
