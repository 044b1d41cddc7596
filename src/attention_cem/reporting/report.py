"""``write_report``: folders in, one HTML file out."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import jinja2
from markupsafe import Markup

import attention_cem
from attention_cem.reporting import texts
from attention_cem.reporting.run_section import RunSection, run_section
from attention_cem.reporting.side_by_side import comparison_strip, trade_off
from attention_cem.reporting.sources import ReportError, read_sources
from attention_cem.reporting.study_section import definitions_of, study_section
from attention_cem.reporting.words import WORDS
from attention_cem.training.files import write_atomically

LARGEST_PAGE = 5_000_000
_TEMPLATES = resources.files("attention_cem.reporting") / "templates"


def write_report(
    folders: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    figures: str | os.PathLike[str] | None = None,
) -> Path:
    """Write one self-contained page about runs and studies.

    Args:
        folders: run folders and study folders.
        out: the HTML file; its folder is made if need be.
        figures: also write the figures there, as SVG and PNG (needs matplotlib).

    Returns:
        The file.

    Raises:
        ReportError: a folder is neither a run nor a study, a file in it cannot be read, or the page would be too
            large to send around.
    """
    if not folders:
        raise ReportError("name at least one run or study folder")
    runs, studies = read_sources([Path(folder) for folder in folders])
    shown = [*runs, *(run for study in studies for run in study.runs)]
    names = [run.name for run in shown]
    sections = [run_section(run, index, names) for index, run in enumerate(shown)]
    page = _render(
        sections=sections,
        alarms=[(section.name, text) for section in sections for text in (*section.alerts, *section.health.bad)],
        studies=[study_section(study) for study in studies],
        strip=comparison_strip(shown) if shown else None,
        plot=trade_off(runs, studies),
        definitions=definitions_of(shown, studies),
    )
    content = page.encode("utf-8", errors="replace")
    if len(content) > LARGEST_PAGE:
        raise ReportError(
            f"the page would have {len(content):,} bytes, the limit is {LARGEST_PAGE:,}; name fewer folders at a time"
        )
    page_file = Path(out)
    page_file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(page_file, content)
    if figures is not None:
        from attention_cem.reporting.figures import write_figures

        write_figures(shown, studies, Path(figures))
    return page_file


def _render(*, sections: list[RunSection], **context: object) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: (_TEMPLATES / name).read_text(encoding="utf-8")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    script = (_TEMPLATES / "page.js").read_text(encoding="utf-8")
    style = (_TEMPLATES / "page.css").read_text(encoding="utf-8")
    # Only this very script may run: even if some value slipped through unescaped, the browser would not execute it.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template("page.html").render(
        sections=sections,
        script=Markup(script),
        style=Markup(style),
        script_hash=f"sha256-{digest}",
        version=attention_cem.__version__,
        say=texts.say,
        words=WORDS,
        sentence=texts.sentence,
        figure=texts.figure,
        percent=texts.percent,
        decibel=texts.decibel,
        **context,
    )
