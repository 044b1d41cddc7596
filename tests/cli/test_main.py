import os
import resource
import subprocess
import sys
from collections.abc import Sequence

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


def test_main__a_broken_connection_of_a_command_is_not_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(arguments: Sequence[str]) -> int:
        raise BrokenPipeError("the server hung up")

    monkeypatch.setattr("attention_cem.cli.data.main", fails)
    with pytest.raises(BrokenPipeError, match="hung up"):
        main(["data"])
