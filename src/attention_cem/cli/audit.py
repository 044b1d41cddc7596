"""``attention-cem audit``."""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attention_cem.budget_names import BUDGETS
from attention_cem.cli.audit_text import audit_text
from attention_cem.cli.remedies import check_folder_place, os_words, weights_words
from attention_cem.cli.requests import command_parser, fail, parse_strictly, positive, refuse
from attention_cem.training.config_checks import ConfigError

if TYPE_CHECKING:
    from attention_cem.auditing import AuditObserver

_WIDEST = 110
_EXAMPLES = """budgets:
  quick      baselines and a short inverter: a first look, never a proof
  screening  baselines and the reference inverter for 15 epochs: to choose among many runs, never a proof
  compact    baselines and a small inverter that can converge: a receipt that can pass, in minutes on a CPU
  standard   inverters of two sizes, GAN inverter, search through the client: the reference protocol
  thorough   wide inverters trained to the end, restarts, the defender's own adversary refined
From compact on, inverters also train on cropped and mirrored images, if the client is in the challenge.

examples:
  attention-cem audit runs/my-run --budget quick
  attention-cem audit runs/my-run --budget thorough --device cuda
  attention-cem audit my-challenge -o my-audit
"""


def main(arguments: Sequence[str]) -> int:
    """Parse, audit, print."""
    try:
        given = parse_strictly(_parser(), arguments)
        is_run = _is_run(Path(given.folder))
        if not is_run and (given.limit is not None or given.data_root is not None):
            raise ConfigError(
                f"{given.folder} is a challenge: its images are fixed; --limit and --data-root need a run"
            )
        for place, option in ((given.out, "-o"), (given.calibration_cache, "--calibration-cache")):
            if place is not None:
                check_folder_place(place, option)
    except ConfigError as error:
        return refuse("audit", error)
    except OSError as error:
        return refuse("audit", OSError(os_words(error)))
    return _audit(given, arguments, is_run=is_run)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "audit",
        f"RUN|CHALLENGE [--budget {'|'.join(BUDGETS)}] [-o DIR] [--device NAME] [--identity] [--limit N]",
        "Attack a trained run, or a challenge somebody wrote, and report the worst case with receipts.\n"
        "Stopped at any moment, it goes on with the first unfinished attack when called again.",
        _EXAMPLES,
    )
    parser.add_argument("folder", metavar="RUN|CHALLENGE", help="folder of a trained run, or of a challenge")
    parser.add_argument("--budget", choices=BUDGETS, default="standard", help="how hard to attack [standard]")
    parser.add_argument("-o", "--out", metavar="DIR", help="folder of the record [RUN/audit, or CHALLENGE-audit]")
    parser.add_argument("--device", metavar="NAME", help="cpu, cuda or cuda:N [the GPU if there is one]")
    parser.add_argument("--identity", action="store_true", help="also: is the class (person) still recognised?")
    parser.add_argument("--limit", type=positive, metavar="N", help="at most N attacker and N test images [all]")
    parser.add_argument("--data-root", metavar="DIR", help="folder with the data files [as in the run]")
    parser.add_argument("--calibration-cache", metavar="DIR", help="share calibrations of audits with the same data")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of everything random in the attacks [0]")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    return parser


def _is_run(folder: Path) -> bool:
    if (folder / "manifest.json").is_file():
        return False
    if (folder / "config.toml").is_file():
        return True
    raise ConfigError(
        f"{folder} is neither a run folder (it has no config.toml) nor a challenge folder (it has no manifest.json)"
    )


def _audit(given: argparse.Namespace, arguments: Sequence[str], *, is_run: bool) -> int:
    # Imports torch; everything that can be refused without it was.
    from attention_cem.cli.audit_progress import watch_audit
    from attention_cem.training import CheckpointError

    try:
        with watch_audit(quiet=given.quiet) as watcher:
            record, out = _run(given, watcher, is_run=is_run)
    except KeyboardInterrupt:
        again = f"attention-cem audit {shlex.join(arguments)}"
        print(f"\nStopped; finished attacks are kept. Continue with:\n  {again}", file=sys.stderr)
        return 130
    except (FileNotFoundError, ValueError) as error:
        # Once attacks run the request was fine, and what goes wrong is a failure.
        return fail("audit", str(error)) if watcher.began else refuse("audit", error)
    except CheckpointError as error:
        return fail("audit", weights_words(given.folder, error))
    except OSError as error:
        return fail("audit", os_words(error))
    text = audit_text(record, min(shutil.get_terminal_size((_WIDEST, 24)).columns, _WIDEST))
    place = (Path(given.folder) if is_run and given.out is None else out) / "audit.json"
    pictures = f"{out / 'reconstructions.png'}: true images, then one row for each attack"
    print(f"{text}\n\nrecord    {place}\npictures  {pictures}")
    return 0


def _run(given: argparse.Namespace, watcher: AuditObserver, *, is_run: bool) -> tuple[dict[str, Any], Path]:
    from attention_cem.auditing import audit, audit_run

    shared: dict[str, Any] = {
        "budget": given.budget,
        "device": given.device,
        "identity": given.identity,
        "calibration_cache": given.calibration_cache,
        "seed": given.seed,
        "observer": watcher,
    }
    folder = Path(given.folder)
    if is_run:
        record = audit_run(folder, given.out, limit=given.limit, data_root=given.data_root, **shared)
        return record, Path(given.out) if given.out else folder / "audit"
    # A challenge is sealed: nothing can be written into it.
    out = Path(given.out) if given.out else folder.resolve().with_name(f"{folder.resolve().name}-audit")
    return audit(folder, out, **shared), out
