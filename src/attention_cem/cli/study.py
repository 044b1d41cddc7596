"""``attention-cem study``: run, sweep, status, report-data."""

from __future__ import annotations

import argparse
import dataclasses
import shlex
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any

from attention_cem.cli.remedies import check_folder_place, os_words
from attention_cem.cli.settings import SettingsParser
from attention_cem.training.config_checks import ConfigError

if TYPE_CHECKING:
    from attention_cem.studies.store import CellState

_EXAMPLES = """examples:
  attention-cem study run studies/slots-synthetic.toml --workers 2
  attention-cem study run studies/main-short-cifar10.toml --data-root DATA --workers 8 --seconds 1500
  attention-cem study run studies/main-short-cifar10.toml --data-root DATA --out SHARED/main   (on each machine)
  attention-cem study status studies/slots-synthetic.toml
  attention-cem study report-data studies/slots-synthetic.toml
  attention-cem study sweep studies/sweep-synthetic.toml --trials 30
"""


def main(arguments: Sequence[str]) -> int:
    """Parse, run, print. Exit code 1: some cells failed or are missing; 130: stopped."""
    try:
        given = _parser().parse_args(list(arguments), argparse.Namespace(typed=shlex.join(arguments)))
        code: int = given.do(given)
        return code
    except ValueError as error:
        from attention_cem.studies.results import ResultError

        remedy = "; delete it and call study run again: the cell is run once more"
        return _refuse(f"{error}{remedy if isinstance(error, ResultError) else ''}")
    except OSError as error:
        return _refuse(os_words(error))
    except RuntimeError as error:
        from attention_cem.studies.store import DeviceLostError

        if not isinstance(error, DeviceLostError):
            raise
        print(f"\n{error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(
            f"\nStopped. Continue with the same command: attention-cem study {shlex.join(arguments)}", file=sys.stderr
        )
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = SettingsParser(
        prog="attention-cem study",
        description="Train and audit every run of a study file, on one machine or many, and compare the methods.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION", parser_class=SettingsParser)
    run = _action(actions, "run", _run, "run all cells that have no result yet; call it again to continue")
    run.add_argument("--workers", type=int, default=1, metavar="N", help="cells at a time on this machine [1]")
    run.add_argument(
        "--seconds", type=float, metavar="S", help="begin no cell after S seconds; cells in work are finished"
    )
    run.add_argument(
        "--only", action="append", metavar="METHOD", help="only the cells of this method; may be given several times"
    )
    run.add_argument("--retry-failed", action="store_true", help="try cells again that were given up")
    run.add_argument(
        "--grace-seconds", type=float, default=120.0, metavar="X", help="silence before a worker counts as dead [120]"
    )
    search = _action(actions, "sweep", _sweep, "let Optuna search the ranges of the file's [sweep] table")
    search.add_argument("--trials", type=int, default=30, metavar="N", help="settings to try in all [30]")
    search.add_argument("--seed", type=int, default=0, metavar="N", help="of the search [0]")
    for each in (run, search):
        each.add_argument(
            "--device", default="auto", help="auto, cpu, cuda or cuda:N; several for several workers: cuda:0,cuda:1"
        )
        each.add_argument("--data-root", metavar="FOLDER", help="folder with the data files")
    _action(actions, "status", _status, "say where every cell stands")
    _action(actions, "report-data", _report_data, "write comparison.json and print the verdicts")
    return parser


def _action(actions: Any, name: str, do: Any, text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(name, help=text, description=text)
    parser.set_defaults(do=do)
    parser.add_argument("file", metavar="FILE", help="study file (TOML), e.g. one of studies/")
    parser.add_argument("--out", metavar="FOLDER", help="where runs and results go; otherwise as the file says")
    parser.add_argument("--store", metavar="URL", help="database for machines that share no folder; needs Optuna")
    return parser


def _run(given: argparse.Namespace) -> int:
    from attention_cem.studies.plan import load_study
    from attention_cem.studies.running import run_study

    study = load_study(given.file, given.out)
    if given.workers > 1:
        signal.signal(signal.SIGTERM, _interrupt)
    methods = sorted({cell.method for cell in study.cells})
    for wanted in given.only or ():
        if wanted not in methods:
            raise ConfigError(f"{given.file} has no method {wanted!r}; there are: {'; '.join(methods)}")
    chosen = tuple(cell for cell in study.cells if cell.method in (given.only or methods))
    states = run_study(
        dataclasses.replace(study, cells=chosen),
        workers=given.workers,
        store=given.store,
        device=given.device,
        data_root=given.data_root,
        retry_failed=given.retry_failed,
        seconds=given.seconds,
        grace_seconds=given.grace_seconds,
        tell=_tell,
    )
    return _conclude(study, states, f"attention-cem study {given.typed}")


def _sweep(given: argparse.Namespace) -> int:
    try:
        from attention_cem.studies.searching import sweep
    except ImportError:
        raise ConfigError("a sweep needs Optuna: pip install 'attention-cem[sweep]'") from None
    from attention_cem.studies.running import devices_of

    devices_of(given.device)
    if given.out is not None:
        check_folder_place(given.out, "--out")
    front = sweep(
        given.file,
        trials=given.trials,
        out=given.out,
        store=given.store,
        device=given.device,
        data_root=given.data_root,
        seed=given.seed,
        tell=_tell,
    )
    print("validation accuracy  worst-case MSE  settings")
    for point in front:
        settings = ", ".join(f"{name} {value}" for name, value in point.settings.items())
        print(f"{point.validation_accuracy:>19.2%}  {point.mse:>14.5f}  {settings}")
    return 0 if front else 1


def _status(given: argparse.Namespace) -> int:
    from attention_cem.studies.plan import load_study
    from attention_cem.studies.progress import progress_of
    from attention_cem.studies.running import study_states

    study = load_study(given.file, given.out)
    states = study_states(study, given.store)
    for cell, state in states.items():
        tried = f", {state.attempts} tries" if state.attempts > 1 else ""
        print(f"{state.status:<8} {cell}{tried}{f': {state.error}' if state.error else ''}")
    print(progress_of(states).line(study.name))
    if any(state.status == "failed" for state in states.values()):
        _say_how_to_retry(_run_command(given))
    return 0


def _report_data(given: argparse.Namespace) -> int:
    from attention_cem.studies.plan import load_study
    from attention_cem.studies.running import study_states

    study = load_study(given.file, given.out)
    return _conclude(study, study_states(study, given.store), _run_command(given))


def _conclude(study: Any, states: dict[str, CellState], again: str) -> int:
    """Write and print the comparison; failed and missing cells are named."""
    from attention_cem.studies.gathering import write_comparison
    from attention_cem.studies.plan import AXES

    content = write_comparison(study, states)
    for name, method in content["methods"].items():
        for point in method["curve"]:
            spread = "" if point["mse_std"] is None else f" ± {point['mse_std']:.5f}"
            mark = "" if point["receipt_ok"] else "  (no passing receipt: may be lower)"
            weight = point["settings"].get(AXES["leakage"])
            attacker = "" if weight is None else f"weight {weight:g}  "
            print(
                f"{name}  λ {point['lambda']:g}  σ {point['sigma'] or 0:g}  {attacker}"
                f"accuracy {point['accuracy']:.2%}  MSE {point['mse']:.5f}{spread}{mark}"
            )
    for pair in content["pairs"]:
        print(f"{pair['a']} against {pair['b']}: {pair['text']}")
        for caution in pair["cautions"]:
            print(f"  {caution}")
    for failed in content["cells"]["failed"]:
        print(f"failed: {failed['cell']}: {failed['error']}", file=sys.stderr)
    if content["cells"]["failed"]:
        _say_how_to_retry(again)
    left = len(content["cells"]["missing"])
    if left:
        print(f"{left} of {len(study.cells)} cells have no result yet; go on with: {again}", file=sys.stderr)
    print(study.out / "comparison.json")
    return 1 if left or content["cells"]["failed"] else 0


def _run_command(given: argparse.Namespace) -> str:
    """The command that runs the study another action was asked about."""
    options = (("--out", given.out), ("--store", given.store))
    chosen = [part for option, value in options if value is not None for part in (option, value)]
    return shlex.join(["attention-cem", "study", "run", given.file, *chosen])


def _say_how_to_retry(again: str) -> None:
    again = again if "--retry-failed" in shlex.split(again) else f"{again} --retry-failed"
    print(f"failed cells are not tried again by themselves; after repairing the cause: {again}", file=sys.stderr)


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _refuse(why: str) -> int:
    print(f"attention-cem study: error: {' '.join(why.split())}", file=sys.stderr)
    return 2
