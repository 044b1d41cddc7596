import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from attention_cem import __version__
from attention_cem.cli.main import COMMANDS, main
from attention_cem.training import TrainingInterrupted


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"]])
def test_help__comes_quickly_and_without_torch(arguments: list[str]) -> None:
    code = f"import sys; sys.argv[1:] = {arguments!r}\nfrom attention_cem.cli.main import main\n"
    code += "try: main()\nexcept SystemExit: pass\nsys.exit('torch' in sys.modules or 'rich' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    times = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)  # seconds of the processor: others may keep it busy
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        assert done.returncode == 0 and "attention-cem" in done.stdout
    print(f"{' '.join(arguments)}: {min(times):.2f} s")
    assert min(times) < 0.5


def test_main__version_and_overview(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0 and __version__ in capsys.readouterr().out
    assert main(["--help"]) == 0
    overview = capsys.readouterr().out
    assert all(command in overview for command in COMMANDS)
    assert main([]) == 2


def test_main__an_unknown_command_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trian"]) == 2
    assert capsys.readouterr().err == "attention-cem: unknown command 'trian'; did you mean 'train'?\n"


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("CUDA out of memory. Tried to allocate 9 GiB.\nProcess 1")]
)
def test_main__memory_that_does_not_suffice_is_one_line(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(arguments: Sequence[str]) -> int:
        raise error

    monkeypatch.setattr("attention_cem.cli.data.main", fails)
    assert main(["data"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("attention-cem data: out of memory") and said.count("\n") == 1 and "smaller batches" in said


def test_main__any_other_error_is_not_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(arguments: Sequence[str]) -> int:
        raise RuntimeError("shapes do not match")

    monkeypatch.setattr("attention_cem.cli.data.main", fails)
    with pytest.raises(RuntimeError, match="shapes do not match"):
        main(["data"])


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), TrainingInterrupted("advice/whole")])
def test_main__ctrl_c_is_one_line(
    stop: KeyboardInterrupt, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # broke: Ctrl-C in advise, export, report or while torch was loaded ended in a traceback
    def stopped(arguments: Sequence[str]) -> int:
        raise stop

    monkeypatch.setattr("attention_cem.cli.data.main", stopped)
    assert main(["data"]) == 130
    assert capsys.readouterr().err == "\nattention-cem data: stopped\n"


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["train", "--print-config"], ["data", "list"]])
def test_main__a_reader_that_has_gone_is_no_traceback(arguments: list[str]) -> None:
    # broke: `attention-cem train --print-config | head -1`
    reader, writer = os.pipe()
    os.close(reader)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-m", "attention_cem.cli.main", *arguments]
    try:
        done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, env=environment, check=False)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


def run_main(*arguments: str, **how: Any) -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    environment |= how.pop("environment", {})
    command = [sys.executable, "-m", "attention_cem.cli.main", *arguments]
    return subprocess.run(command, stderr=subprocess.PIPE, env=environment, check=False, **how)


@pytest.mark.parametrize("arguments", [["train", "--help"], ["explain", "--image-shape", "3,32,32", "--out", "λ.svg"]])
def test_main__what_the_terminal_cannot_show_is_escaped(arguments: list[str]) -> None:
    # broke: an audit's page, printed after hours where the encoding is not UTF-8, was a UnicodeEncodeError
    done = run_main(*arguments, stdout=subprocess.PIPE, environment={"PYTHONIOENCODING": "latin-1"})
    assert (done.returncode, done.stderr) == (0, b"") and b"\\u03bb" in done.stdout


def test_main__a_name_that_is_no_text_is_escaped() -> None:
    done = run_main("explain", "--image-shape", "3,32,32", "--out", os.fsdecode(b"\xff.svg"), stdout=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, b"") and done.stdout == b"\\udcff.svg\n"


@pytest.mark.parametrize("closed", [1, 2])
def test_main__a_closed_stream_is_no_traceback(closed: int) -> None:
    # broke: `attention-cem data list >&-` was an AttributeError, and so was `train 2>&-`
    command = f'exec "$0" "$@" {closed}>&-'
    done = subprocess.run(
        ["sh", "-c", command, sys.executable, "-m", "attention_cem.cli.main", "data", "list"],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"") and (b"synthetic" in done.stdout) == (closed == 2)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a full disk")
@pytest.mark.parametrize("arguments", [["--help"], ["data", "list"]])
def test_main__output_to_a_full_disk_is_one_line(arguments: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        done = run_main(*arguments, stdout=full)
    assert done.returncode == 1 and done.stderr.count(b"\n") == 1 and b"No space left on device" in done.stderr


def test_main__a_place_that_cannot_be_read_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # broke: `data list`, `explain` and `challenge` with a folder of somebody else's ended in a traceback
    def fails(arguments: Sequence[str]) -> int:
        raise PermissionError(13, "Permission denied", "data/train")

    monkeypatch.setattr("attention_cem.cli.data.main", fails)
    assert main(["data"]) == 1
    printed = capsys.readouterr()
    assert printed.err.startswith("attention-cem data: data/train: Permission denied") and printed.out == ""


def test_main__a_broken_connection_of_a_command_is_not_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(arguments: Sequence[str]) -> int:
        raise BrokenPipeError("the server hung up")

    monkeypatch.setattr("attention_cem.cli.data.main", fails)
    with pytest.raises(BrokenPipeError, match="hung up"):
        main(["data"])
