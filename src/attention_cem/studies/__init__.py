"""Studies: a matrix of runs, done once each wherever there is a machine, and the comparison of methods.

Names are imported on first use: reading and comparing studies imports neither torch nor Optuna.
"""

from typing import TYPE_CHECKING

from attention_cem.lazy_names import lazy_names

if TYPE_CHECKING:
    from attention_cem.studies.cell_run import CellPlace as CellPlace
    from attention_cem.studies.cell_run import Runner as Runner
    from attention_cem.studies.cell_run import run_cell as run_cell
    from attention_cem.studies.comparison import COMPARISON_FILE as COMPARISON_FILE
    from attention_cem.studies.comparison import COMPARISON_FORMAT as COMPARISON_FORMAT
    from attention_cem.studies.comparison import COMPARISON_VERSION as COMPARISON_VERSION
    from attention_cem.studies.comparison import compare as compare
    from attention_cem.studies.curves import accuracy_range as accuracy_range
    from attention_cem.studies.curves import common_range as common_range
    from attention_cem.studies.curves import hypervolume as hypervolume
    from attention_cem.studies.curves import mse_at_accuracy as mse_at_accuracy
    from attention_cem.studies.curves import pareto_front as pareto_front
    from attention_cem.studies.flow_chart import draw_flow_chart as draw_flow_chart
    from attention_cem.studies.gathering import comparison_of as comparison_of
    from attention_cem.studies.gathering import write_comparison as write_comparison
    from attention_cem.studies.pipeline import Pipeline as Pipeline
    from attention_cem.studies.pipeline import describe_pipeline as describe_pipeline
    from attention_cem.studies.plan import Cell as Cell
    from attention_cem.studies.plan import Study as Study
    from attention_cem.studies.plan import load_study as load_study
    from attention_cem.studies.progress import StudyProgress as StudyProgress
    from attention_cem.studies.progress import progress_of as progress_of
    from attention_cem.studies.results import read_result as read_result
    from attention_cem.studies.running import run_studies as run_studies
    from attention_cem.studies.running import run_study as run_study
    from attention_cem.studies.searching import SweepPoint as SweepPoint
    from attention_cem.studies.searching import sweep as sweep
    from attention_cem.studies.store import CellState as CellState
    from attention_cem.studies.store import Claim as Claim
    from attention_cem.studies.store import ClaimLostError as ClaimLostError
    from attention_cem.studies.store import ClaimStore as ClaimStore
    from attention_cem.studies.verdicts import Matched as Matched
    from attention_cem.studies.verdicts import compare_at as compare_at
    from attention_cem.studies.verdicts import overlap as overlap
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "cell_run": ["CellPlace", "Runner", "run_cell"],
            "comparison": ["COMPARISON_FILE", "COMPARISON_FORMAT", "COMPARISON_VERSION", "compare"],
            "curves": ["accuracy_range", "common_range", "hypervolume", "mse_at_accuracy", "pareto_front"],
            "flow_chart": ["draw_flow_chart"],
            "gathering": ["comparison_of", "write_comparison"],
            "pipeline": ["Pipeline", "describe_pipeline"],
            "plan": ["Cell", "Study", "load_study"],
            "progress": ["StudyProgress", "progress_of"],
            "results": ["read_result"],
            "running": ["run_studies", "run_study"],
            "searching": ["SweepPoint", "sweep"],
            "store": ["CellState", "Claim", "ClaimLostError", "ClaimStore"],
            "verdicts": ["Matched", "compare_at", "overlap"],
        },
    )
