"""Every example, run as a subprocess by the command its own first lines give, judged by what it prints."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = ROOT / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))
CPU_SECONDS = 60


def header(script: Path) -> dict[str, str]:
    """The lines ``Run:``, ``Test:`` and ``Needs:`` of the script's docstring."""
    told = ast.get_docstring(ast.parse(script.read_text())) or ""
    return dict(re.findall(r"^(Run|Test|Needs): +(.+)$", told, re.MULTILINE))


def run(name: str, tmp_path: Path, line: str = "Run") -> str:
    """What the example prints when run as it says; it must end well, on one core, in a minute of CPU time."""
    paths = os.pathsep.join([str(ROOT / "src"), *(path for path in sys.path if path)])
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": paths,
        "TMPDIR": str(tmp_path),
    }
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        header(EXAMPLES / name)[line].split(),
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert after.ru_utime - before.ru_utime < CPU_SECONDS
    return done.stdout


def needs(package: str) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")


def share(text: str) -> float:
    return float(text.rstrip("%")) / 100


def test_examples__each_says_how_to_run_it_and_the_readme_repeats_it() -> None:
    page = (EXAMPLES / "README.md").read_text()
    cut = [line.split("|") for line in page.splitlines() if line.count("|") == 5]
    rows = {cells[1].split("]")[0].strip(" ["): cells for cells in cut}
    for script in SCRIPTS:
        lines = header(script)
        assert lines["Needs"].startswith("pip install -e "), script.name
        name, english, chinese, command = (cell.strip() for cell in rows[script.name][1:5])
        assert name == f"[{script.name}]({script.name})"
        assert command == f"`{lines['Run']}`"
        assert len(english.split()) > 5 and re.search(r"[\u4e00-\u9fff]{4}", chinese)
        if "Test" in lines:
            assert f"`{lines['Test']}`" in page
    assert {name for name in rows if name.endswith(".py")} == {script.name for script in SCRIPTS}


@pytest.mark.slow
def test_plain_loop__surrogate_shrinks_the_spread_and_the_alarm_tells_the_dead_one(tmp_path: Path) -> None:
    told = run("plain_loop.py", tmp_path)
    rows = re.findall(r"^(.+?) +([01]\.0) +([\d.]+%) +([\d.]+)   (.+)$", told, re.MULTILINE)
    assert [row[0] for row in rows] == ["slot mixture, not used", "slot mixture", "as in the source documents"]
    spread = [float(row[3]) for row in rows]
    assert spread[1] < 0.3 * spread[0]
    assert abs(spread[2] / spread[0] - 1) < 0.3
    assert min(share(row[2]) for row in rows) > 0.7
    assert [row[4] == "silent" for row in rows] == [True, True, False]
    assert "shut off on 100%" in rows[2][4]


@pytest.mark.slow
def test_torchrun__two_processes_train_and_one_speaks(tmp_path: Path) -> None:
    told = run("torchrun_two_ranks.py", tmp_path)
    epochs = re.findall(r"^epoch (\d).*spread ([\d.]+) +λ ([\d.]+)$", told, re.MULTILINE)
    assert [row[0] for row in epochs] == list("123456")
    assert [float(row[2]) for row in epochs] == [0.0, 0.0, 0.3, 0.3, 0.3, 0.3]
    assert float(epochs[-1][1]) < 0.8 * float(epochs[1][1])
    processes, accuracy = re.findall(r"^processes: (\d) +test accuracy ([\d.]+%)$", told, re.MULTILINE)[0]
    assert processes == "2" and share(accuracy) > 0.6
    (folder,) = re.findall(r"attention-cem audit (\S+) --budget quick", told)
    assert Path(folder).parent == tmp_path and (Path(folder) / "config.toml").is_file()


@pytest.mark.slow
def test_custom_defence__is_trained_by_name_and_certified(tmp_path: Path) -> None:
    told = run("custom_defence.py", tmp_path)
    rows = re.findall(r"^(\w+) +test accuracy ([\d.]+%).*record: (.+)$", told, re.MULTILINE)
    assert [row[0] for row in rows] == ["nothing", "rounding"]
    assert [row[2] for row in rows] == ["none", "['stochastic_rounding (step 0.5)']"]
    assert min(share(row[1]) for row in rows) > 0.6
    assert re.search(r"^12 passed in", run("custom_defence.py", tmp_path, "Test"), re.MULTILINE)


@pytest.mark.slow
def test_custom_surrogate__is_trained_by_name_and_certified(tmp_path: Path) -> None:
    told = run("custom_surrogate.py", tmp_path)
    rows = re.findall(r"^λ = ([\d.]+): test accuracy ([\d.]+%), .* ([\d.]+)$", told, re.MULTILINE)
    assert [row[0] for row in rows] == ["0.0", "1.0"]
    assert min(share(row[1]) for row in rows) > 0.7
    assert float(rows[1][2]) < 0.3 * float(rows[0][2])
    assert re.search(r"^12 passed in", run("custom_surrogate.py", tmp_path, "Test"), re.MULTILINE)


@pytest.mark.slow
def test_attack_own_checkpoint__prints_a_worst_case_with_a_passing_receipt(tmp_path: Path) -> None:
    told = run("attack_own_checkpoint.py", tmp_path)
    mse = {name: float(value) for name, value in re.findall(r"^(\w+): MSE ([\d.]+) ", told, re.MULTILINE)}
    assert list(mse) == ["class_mean", "nearest_neighbour", "inverter"]
    assert mse["inverter"] < mse["nearest_neighbour"] < mse["class_mean"]
    assert told.count("receipt: passed") == 3
    assert f"worst case: inverter, MSE {mse['inverter']:.4f}, receipt passed" in told
    floor = float(re.findall(r"^one who sees nothing: MSE ([\d.]+)$", told, re.MULTILINE)[0])
    assert mse["class_mean"] < floor
    assert re.search(r"^challenge sha256 [0-9a-f]{16}…, accuracy \d", told, re.MULTILINE)


@pytest.mark.slow
def test_lightning__callback_shrinks_the_spread_of_an_unchanged_module(tmp_path: Path) -> None:
    needs("lightning")
    told = run("lightning_callback.py", tmp_path)
    without, defended = told.split("λ = 1.0")
    spreads = [[float(each) for each in re.findall(r"spread ([\d.]+)", part)] for part in (without, defended)]
    assert len(spreads[0]) == len(spreads[1]) == 8
    assert spreads[0][:2] == spreads[1][:2]  # warm-up: the same steps
    assert spreads[1][-1] < 0.3 * spreads[0][-1]
    assert min(share(each) for each in re.findall(r"test accuracy ([\d.]+%)", told)) > 0.75
    assert told.count("alarm silent") == 16


@pytest.mark.slow
def test_hugging_face__trainer_shrinks_the_spread(tmp_path: Path) -> None:
    needs("transformers")
    needs("accelerate")
    told = run("hugging_face_trainer.py", tmp_path)
    rows = re.findall(r"^λ = ([\d.]+): test accuracy ([\d.]+%), ([\d.]+) nats .* spread ([\d.]+)$", told, re.MULTILINE)
    assert [row[0] for row in rows] == ["0.0", "0.3"]
    assert min(share(row[1]) for row in rows) > 0.55
    assert float(rows[1][2]) < float(rows[0][2]) and float(rows[1][3]) < 0.3 * float(rows[0][3])


@pytest.mark.parametrize(
    ("script", "package", "extra"),
    [
        ("lightning_callback.py", "lightning", "lightning"),
        ("hugging_face_trainer.py", "transformers", "huggingface"),
        ("hugging_face_trainer.py", "accelerate", "huggingface"),
    ],
)
def test_missing_package__is_one_clear_line(script: str, package: str, extra: str) -> None:
    program = f"""
import runpy, sys
sys.modules[{package!r}] = None
runpy.run_path({str(EXAMPLES / script)!r}, run_name="__main__")
"""
    paths = os.pathsep.join([str(ROOT / "src"), *(path for path in sys.path if path)])
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert done.returncode == 1
    assert f'pip install -e ".[{extra}]"' in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
