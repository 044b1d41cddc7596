"""``attention-cem challenge``."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path

from attention_cem.cli.remedies import check_folder_place, os_words, weights_words
from attention_cem.cli.requests import command_parser, fail, parse_strictly, positive, refuse
from attention_cem.training.config_checks import ConfigError

_EXAMPLES = """examples:
  attention-cem challenge runs/my-run
  attention-cem challenge runs/my-run -o my-challenge --black-box --limit 1000
"""


def main(arguments: Sequence[str]) -> int:
    """Parse, write, print."""
    try:
        given = parse_strictly(_parser(), arguments)
        if not (Path(given.run) / "config.toml").is_file():
            raise ConfigError(f"{given.run} is no run folder: it has no config.toml")
        if given.out is not None:
            check_folder_place(given.out)
    except ConfigError as error:
        return refuse("challenge", error)
    return _challenge(given)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "challenge",
        "RUN [-o DIR] [--black-box] [--limit N]",
        "Write what an attacker is given: features of the test images behind the run's defences, the images the\n"
        "attacker owns and, unless --black-box, the client. Everything is hashed; anybody can attack it.",
        _EXAMPLES,
    )
    parser.add_argument("run", metavar="RUN", help="folder of a trained run")
    parser.add_argument("-o", "--out", metavar="DIR", help="folder to write, must not exist [RUN/challenge]")
    parser.add_argument("--black-box", action="store_true", help="keep the client and its defences back")
    parser.add_argument("--limit", type=positive, metavar="N", help="at most N attacker and N test images [all]")
    parser.add_argument("--device", metavar="NAME", help="cpu, cuda or cuda:N [the GPU if there is one]")
    parser.add_argument("--data-root", metavar="DIR", help="folder with the data files [as in the run]")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the randomness in the features [0]")
    return parser


def _challenge(given: argparse.Namespace) -> int:
    # torch is imported here, after everything that can be refused without it was.
    from attention_cem.attacks import Challenge
    from attention_cem.auditing import challenge_from_run
    from attention_cem.training import CheckpointError

    try:
        folder = challenge_from_run(
            given.run,
            given.out,
            white_box=not given.black_box,
            limit=given.limit,
            device=given.device,
            data_root=given.data_root,
            seed=given.seed,
        )
    except (ValueError, FileNotFoundError) as error:
        return refuse("challenge", error)
    except CheckpointError as error:
        return fail("challenge", weights_words(given.run, error))
    except OSError as error:
        return fail("challenge", os_words(error))
    challenge = Challenge(folder)
    manifest = challenge.manifest
    size = sum(entry["bytes"] for entry in manifest["files"].values())
    print(f"challenge         {folder} ({size / 1e6:,.1f} MB, {len(manifest['files'])} files)")
    print(f"to be rebuilt     {manifest['test_images']:,} images, each released {_times(manifest, 'test_draws')}")
    print(f"attacker owns     {manifest['attacker_images']:,} images and their releases")
    print(f"client            {'included' if challenge.white_box else 'kept back (black-box)'}")
    print(f"sha256            {challenge.id}")
    print(f"answers           {folder / 'answers'}: for the scorer; leave it out when you pass the challenge on")
    print(f"score it with     attention-cem audit {shlex.quote(str(folder))}")
    return 0


def _times(manifest: dict[str, dict[str, int]], key: str) -> str:
    count = manifest["threat_model"][key]
    return "once" if count == 1 else f"{count} times"
