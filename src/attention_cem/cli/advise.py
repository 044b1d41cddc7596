"""``attention-cem advise``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from attention_cem.budget_names import BUDGETS
from attention_cem.cli.remedies import check_folder_place, os_words
from attention_cem.cli.requests import fail, refuse
from attention_cem.training.config_checks import ConfigError

if TYPE_CHECKING:
    from attention_cem.shipping.advisor import Advice


def main(arguments: Sequence[str]) -> int:
    """Parse, measure every cut, print the table and the recommendation."""
    given = _parser().parse_args(list(arguments))

    from attention_cem.data import MissingDataError
    from attention_cem.shipping.advice_files import table, write_advice

    try:
        _check(given)
        advice = _advice(given)
        write_advice(advice, given.out)
    except (MissingDataError, ValueError) as error:
        return refuse("advise", error)
    except OSError as error:
        return fail("advise", os_words(error))
    print(table(advice))
    print(f"Written to {given.out}.")
    return 0


def _check(given: argparse.Namespace) -> None:
    """Refuse what can be refused without data and model: training takes minutes."""
    from attention_cem.shipping.advisor import check_settings

    check_folder_place(given.out)
    if given.out.exists() and any(given.out.iterdir()):
        raise ConfigError(f"{given.out} is not empty; name another folder with -o")
    if given.base_epochs < 1:
        raise ConfigError(f"expected base_epochs ≥ 1, received {given.base_epochs}")
    check_settings(
        most=given.most,
        epochs=given.epochs,
        sigma=given.sigma,
        accuracy_slack=given.accuracy_slack,
        most_client_ms=given.most_client_ms,
    )


def _advice(given: argparse.Namespace) -> Advice:
    from attention_cem.data import load_data
    from attention_cem.shipping.advisor import advise, check_cuts
    from attention_cem.shipping.whole_model import trained_backbone, untrained_backbone

    def tell(text: str) -> None:
        if not given.quiet:
            print(text, file=sys.stderr, flush=True)

    data = load_data(given.data, given.data_root, limit=given.limit)
    if given.cuts is not None:
        check_cuts(untrained_backbone(given.model, data), given.cuts, data.image_shape)
    tell(f"training {given.model} as a whole, {given.base_epochs} epochs")
    model = trained_backbone(given.model, data, given.out / "whole", epochs=given.base_epochs, seed=given.seed)
    return advise(
        model,
        data,
        given.out / "cuts",
        cuts=given.cuts,
        most=given.most,
        epochs=given.epochs,
        sigma=given.sigma,
        budget=given.budget,
        accuracy_slack=given.accuracy_slack / 100,
        most_client_ms=given.most_client_ms,
        seed=given.seed,
        progress=tell,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="attention-cem advise",
        description="Where to cut a model: for each candidate the client's cost, the accuracy after a short "
        "fine-tuning and what a quick audit recovers; then a recommendation. The figures rank cuts; train and audit "
        "the chosen one before you rely on it.",
    )
    parser.add_argument("model", metavar="MODEL", help="backbone, e.g. vgg11_bn, resnet20, mobilenet_v2, tiny_cnn")
    parser.add_argument("--data", default="synthetic", help="data set; `attention-cem data list` [%(default)s]")
    parser.add_argument("--data-root", metavar="FOLDER", help="folder with the data files")
    parser.add_argument("--limit", type=int, default=4000, metavar="N", help="images of each kind [%(default)s]")
    parser.add_argument("-o", "--out", type=Path, default=Path("advice"), metavar="FOLDER", help="[%(default)s]")
    parser.add_argument("--cuts", nargs="+", metavar="LAYER", help="layers to compare; otherwise chosen by depth")
    parser.add_argument("--most", type=int, default=6, metavar="N", help="candidates at most [%(default)s]")
    parser.add_argument("--base-epochs", type=int, default=10, metavar="N", help="of the whole model [%(default)s]")
    parser.add_argument("--epochs", type=int, default=3, metavar="N", help="of fine-tuning a cut [%(default)s]")
    parser.add_argument("--sigma", type=float, default=0.025, metavar="X", help="noise on z, 0 for none [%(default)s]")
    parser.add_argument("--budget", choices=BUDGETS, default="quick", help="[%(default)s]")
    parser.add_argument(
        "--accuracy-slack", type=float, default=2.0, metavar="POINTS", help="accuracy that may be lost [%(default)s]"
    )
    parser.add_argument("--most-client-ms", type=float, metavar="X", help="longest client time for one image")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="[%(default)s]")
    parser.add_argument("--quiet", action="store_true", help="only the result")
    return parser
