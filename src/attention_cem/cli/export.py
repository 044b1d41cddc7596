"""``attention-cem export``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attention_cem.training.loading import TrainedRun


def main(arguments: Sequence[str]) -> int:
    """Parse, export, print."""
    given = _parser().parse_args(list(arguments))

    from attention_cem.cli.remedies import check_folder_place, os_words, weights_words
    from attention_cem.cli.requests import refuse
    from attention_cem.shipping.export import Halves, export_bundle
    from attention_cem.training.checkpoint import CheckpointError
    from attention_cem.training.loading import load_run

    try:
        check_folder_place(given.out)
        run = load_run(given.run, given.which)
        bundle = export_bundle(Halves.of(run), given.out, name=given.name)
    except CheckpointError as error:
        return refuse("export", CheckpointError(weights_words(given.run, error, given.which, choice=True)))
    except (ValueError, ImportError) as error:
        return refuse("export", error)
    except OSError as error:
        return refuse("export", OSError(os_words(error)))
    _warn_if_unfinished(run, given.which)
    checked = bundle.manifest["numerical_check"]
    print(f"bundle               {bundle.folder}")
    print(f"model name           {bundle.name}")
    print(f"image, z             {'×'.join(map(str, bundle.image_shape))}, {'×'.join(map(str, bundle.z_shape))}")
    for half in ("client", "server"):
        deviation, allowed = checked[half]["largest_deviation"], checked[half]["allowed"]
        print(f"{half} against torch  {deviation:.1e} (allowed {allowed:.1e})")
    if bundle.draws:
        print(f"noise                {', '.join(bundle.draws)}: inputs of the client graph, drawn by the runtime")
    else:
        print("warning: this run's defences draw no noise; the exported client releases z as it is", file=sys.stderr)
    return 0


def _warn_if_unfinished(run: TrainedRun, which: str) -> None:
    """One line on stderr where training has not ended: better weights may follow."""
    from attention_cem.training.run_folder import RunFolder

    if RunFolder(run.folder).result_file.is_file():
        return
    epoch = run.facts.get("best_epoch")
    if which == "last":
        # The newest checkpoint may lie within an epoch, whose number is one more than those that are complete.
        epoch = int(run.facts["epoch"]) + (int(run.facts["batch"]) > 0)
    print(f"warning: the run is not finished: these are the weights of epoch {epoch}", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="attention-cem export",
        description="Write a run as a bundle: the defended client and the server as ONNX, with a manifest. Training "
        "over the wire is out of scope: a bundle predicts.",
    )
    parser.add_argument("run", metavar="RUN", help="run folder")
    parser.add_argument("-o", "--out", required=True, metavar="FOLDER", help="bundle to write; must not exist")
    parser.add_argument("--name", default="attention_cem", help="the model's name on the wire [%(default)s]")
    parser.add_argument("--which", choices=("best", "last"), default="best", help="which weights [%(default)s]")
    return parser
