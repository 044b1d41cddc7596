"""``attention-cem``: finds the command, hands it its arguments, turns known errors into one line."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module

import attention_cem
from attention_cem.cli.remedies import memory_words, os_words
from attention_cem.freed_memory import keep_freed_memory
from attention_cem.nearest_names import did_you_mean
from attention_cem.standard_streams import prepare_streams

# Each module has `main(arguments) -> exit code`; it is imported only when its command is called.
COMMANDS = {
    "train": ("attention_cem.cli.train", "train a split model with defences and a surrogate"),
    "challenge": ("attention_cem.cli.challenge", "write what an attacker of a run is given, for anybody to attack"),
    "audit": ("attention_cem.cli.audit", "attack a run or a challenge: the worst case, with receipts"),
    "report": ("attention_cem.cli.report", "write one page about runs and studies that a reviewer can read"),
    "study": ("attention_cem.cli.study", "run a matrix of trainings and audits, on one machine or many, and compare"),
    "explain": ("attention_cem.cli.explain", "draw the configured pipeline with its tensor shapes"),
    "data": ("attention_cem.cli.data", "list the data sets: which are found where, how to get the rest"),
    "export": ("attention_cem.cli.export", "write a run as a bundle: defended client and server as ONNX"),
    "serve": ("attention_cem.cli.serve", "answer requests with a bundle's server half"),
    "predict": ("attention_cem.cli.predict", "classify images with the client half here and the server elsewhere"),
    "advise": ("attention_cem.cli.advise", "say where to cut a model: cost, accuracy and leakage of each cut"),
}

_TAKE_MANY_STEPS = ("train", "audit", "study", "advise")
"""They train something, and end; a server keeps what one large request took no longer than it must."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the return value is the exit code (2: the request was wrong, 1: it failed).

    As for any tool of the shell: 130 after Ctrl-C, 141 where whoever read the output has gone (``| head``).
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    prepare_streams()
    try:
        code = _run(given)
        sys.stdout.flush()  # a reader that has gone is noticed here, not in the interpreter's last words
    except KeyboardInterrupt:  # of those commands that have nothing to say about how to continue
        print(f"\nattention-cem {given[0]}: stopped", file=sys.stderr)
        return 130
    except OSError as error:
        if error.filename is None and isinstance(_broken_output(), BrokenPipeError):
            return 141
        if error.strerror is None:  # not the system's: a mistake of ours, or a connection's
            raise
        print(f"{' '.join(['attention-cem', *given[:1]])}: {os_words(error)}", file=sys.stderr)
        return 1
    return code


def _run(given: Sequence[str]) -> int:
    if not given or given[0] in ("-h", "--help"):
        print(_overview())
        return 0 if given else 2
    if given[0] == "--version":
        print(f"attention-cem {attention_cem.__version__}")
        return 0
    if given[0] not in COMMANDS:
        hint = did_you_mean(given[0], COMMANDS, otherwise=f"; there are: {', '.join(COMMANDS)}")
        print(f"attention-cem: unknown command '{given[0]}'{hint}", file=sys.stderr)
        return 2
    module, _ = COMMANDS[given[0]]
    if given[0] in _TAKE_MANY_STEPS:
        keep_freed_memory()
    try:
        code: int = import_module(module).main(given[1:])
    except (MemoryError, RuntimeError) as error:
        words = memory_words(error)
        if words is None:
            raise
        print(f"attention-cem {given[0]}: {words}", file=sys.stderr)
        return 1
    return code


def _broken_output() -> OSError | None:
    """What is wrong with standard output, if anything; then the rest of it is dropped."""
    try:
        print(flush=True)  # not only flush: unbuffered, there is nothing left to flush
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return error
    return None


def _overview() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {summary}" for name, (_, summary) in COMMANDS.items()]
    return "\n".join(
        [
            "usage: attention-cem COMMAND [options]",
            "",
            "Split inference that reveals the class and little else.",
            "",
            "commands:",
            *lines,
            "",
            "attention-cem COMMAND --help describes a command; --version prints the version.",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
