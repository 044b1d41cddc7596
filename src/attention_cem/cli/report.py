"""``attention-cem report``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from attention_cem.cli.remedies import check_file_place, check_folder_place, os_words
from attention_cem.training.config_checks import ConfigError

_EXAMPLES = """examples:
  attention-cem report runs/my-run
  attention-cem report runs/plain runs/defended -o comparison.html
  attention-cem report studies/my-study --figures slides
"""


def main(arguments: Sequence[str]) -> int:
    """Parse, write the page, print where it is."""
    parser = argparse.ArgumentParser(
        prog="attention-cem report",
        description="Write one self-contained HTML page about runs and studies: what is sent, who could see it, "
        "what they get back. English and Chinese.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folders", nargs="+", type=Path, metavar="RUN|STUDY", help="run or study folders")
    parser.add_argument("-o", "--out", type=Path, metavar="FILE", help="the page [report.html in the first folder]")
    parser.add_argument("--figures", type=Path, metavar="DIR", help="also write the figures there, as SVG and PNG")
    given = parser.parse_args(list(arguments))
    try:
        from attention_cem.reporting import ReportError, write_report
    except ModuleNotFoundError as error:
        print(f"attention-cem report: {error.name} is missing: pip install 'attention-cem[report]'", file=sys.stderr)
        return 2
    try:
        if given.out is not None:
            check_file_place(given.out)
        if given.figures is not None:
            check_folder_place(given.figures, "--figures")
        page = write_report(given.folders, given.out or given.folders[0] / "report.html", figures=given.figures)
    except (ReportError, ConfigError) as error:
        print(f"attention-cem report: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"attention-cem report: {os_words(error)}", file=sys.stderr)
        return 2
    print(f"wrote {page}; open it in a browser")
    if given.figures is not None:
        print(f"wrote the figures to {given.figures}")
    return 0
