"""Studies: a matrix of runs, done once each wherever there is a machine, and the comparison of methods.

Names are imported on first use: reading and comparing studies imports neither torch nor Optuna.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attention_cem.studies.cell_run import CellPlace, Runner, run_cell
    from attention_cem.studies.comparison import COMPARISON_FILE, COMPARISON_FORMAT, COMPARISON_VERSION, compare
    from attention_cem.studies.curves import (
        accuracy_range,
        common_range,
        hypervolume,
        mse_at_accuracy,
        pareto_front,
    )
    from attention_cem.studies.flow_chart import draw_flow_chart
    from attention_cem.studies.gathering import comparison_of, write_comparison
    from attention_cem.studies.pipeline import Pipeline, describe_pipeline
    from attention_cem.studies.plan import Cell, Study, load_study
    from attention_cem.studies.results import read_result
    from attention_cem.studies.running import StudyProgress, progress_of, run_study
    from attention_cem.studies.searching import SweepPoint, sweep
    from attention_cem.studies.store import CellState, Claim, ClaimLostError, ClaimStore
    from attention_cem.studies.verdicts import Matched, compare_at, overlap

_HOME = {
    "COMPARISON_FILE": "comparison",
    "COMPARISON_FORMAT": "comparison",
    "COMPARISON_VERSION": "comparison",
    "Cell": "plan",
    "CellPlace": "cell_run",
    "CellState": "store",
    "Claim": "store",
    "ClaimLostError": "store",
    "ClaimStore": "store",
    "Matched": "verdicts",
    "Pipeline": "pipeline",
    "Runner": "cell_run",
    "Study": "plan",
    "StudyProgress": "running",
    "SweepPoint": "searching",
    "accuracy_range": "curves",
    "common_range": "curves",
    "compare": "comparison",
    "compare_at": "verdicts",
    "comparison_of": "gathering",
    "describe_pipeline": "pipeline",
    "draw_flow_chart": "flow_chart",
    "hypervolume": "curves",
    "load_study": "plan",
    "mse_at_accuracy": "curves",
    "overlap": "verdicts",
    "pareto_front": "curves",
    "progress_of": "running",
    "read_result": "results",
    "run_cell": "cell_run",
    "run_study": "running",
    "sweep": "searching",
    "write_comparison": "gathering",
}

__all__ = [
    "COMPARISON_FILE",
    "COMPARISON_FORMAT",
    "COMPARISON_VERSION",
    "Cell",
    "CellPlace",
    "CellState",
    "Claim",
    "ClaimLostError",
    "ClaimStore",
    "Matched",
    "Pipeline",
    "Runner",
    "Study",
    "StudyProgress",
    "SweepPoint",
    "accuracy_range",
    "common_range",
    "compare",
    "compare_at",
    "comparison_of",
    "describe_pipeline",
    "draw_flow_chart",
    "hypervolume",
    "load_study",
    "mse_at_accuracy",
    "overlap",
    "pareto_front",
    "progress_of",
    "read_result",
    "run_cell",
    "run_study",
    "sweep",
    "write_comparison",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"attention_cem.studies.{_HOME[name]}"), name)
    raise AttributeError(f"module 'attention_cem.studies' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
