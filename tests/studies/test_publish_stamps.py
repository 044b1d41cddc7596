import os
import subprocess
import sys
from pathlib import Path

import pytest
from studies.publish import publish, stale_pages

from tests.studies.publishing import MAIN, ROOT, fill, repository

ALL = ("main", "stacked", "data", "sensitivity", "cost", "paper-table", "README")


@pytest.fixture
def done(tmp_path: Path) -> Path:
    """A repository with a base configuration, half of a study, and fresh pages."""
    root = repository(tmp_path, 'name = "main-cifar10"\nbase = "../base.toml"\n' + MAIN.split("\n", 2)[2])
    (root / "base.toml").write_text("[train]\nlr = 0.05\n")
    fill(root, "main-cifar10", keep=lambda cell: cell.config.train.seed == 0)
    publish(root)
    assert stale_pages(root) == []
    return root


def named(lines: list[str]) -> set[str]:
    return {line.split()[0] for line in lines}


def test_stale_pages__a_new_result_makes_every_page_stale_since_any_study_may_take_it(done: Path) -> None:
    fill(done, "main-cifar10")
    lines = stale_pages(done)
    assert named(lines) == {
        "results/summary.json",
        "README.md",
        "README.zh.md",
        *(f"results/{name}.md" for name in ALL),
    }
    assert "results/main.md is older than results/studies/main-cifar10: run `make results`" in lines
    publish(done)
    assert stale_pages(done) == []


@pytest.mark.parametrize("file", ["studies/main-cifar10.toml", "base.toml"])
def test_stale_pages__a_study_or_the_configuration_it_builds_on_has_changed(done: Path, file: str) -> None:
    with (done / file).open("a") as opened:
        opened.write("\n# another\n")
    lines = stale_pages(done)
    assert "results/main.md is older than studies/main-cifar10.toml: run `make results`" in lines


def test_stale_pages__other_settings_make_every_page_stale(done: Path) -> None:
    with (done / "results" / "comparisons.toml").open("a") as opened:
        opened.write("\n# another\n")
    assert {f"results/{name}.md" for name in ALL} <= named(stale_pages(done))


def test_stale_pages__a_new_study_of_a_page_counts(done: Path) -> None:
    (done / "studies" / "stacked-cifar10.toml").write_text(MAIN.replace("main-", "stacked-"))
    assert (
        "results/stacked.md is older than studies/stacked-cifar10.toml, results/studies/stacked-cifar10"
        in "\n".join(stale_pages(done))
    )


def test_stale_pages__a_study_that_no_page_shows_does_not_count_before_it_has_results(done: Path) -> None:
    (done / "studies" / "trial.toml").write_text(MAIN.replace("main-cifar10", "trial"))
    assert stale_pages(done) == []
    fill(done, "trial")
    assert "results/summary.json" in named(stale_pages(done))


@pytest.mark.parametrize("name", ["results/main.md", "results/summary.json", "README.md"])
def test_stale_pages__a_number_changed_by_hand_is_found(done: Path, name: str) -> None:
    file = done / name
    text = file.read_text()
    assert "87" in text or "0.0" in text or "2.00" in text
    file.write_text(text.replace("2.00", "9.99").replace("0.03", "0.99"))
    assert stale_pages(done) == [f"{name} was edited by hand: run `make results`"]


def test_stale_pages__text_outside_the_block_is_nobodys_business(done: Path) -> None:
    file = done / "README.md"
    file.write_text(file.read_text().replace("More.", "Less."))
    assert stale_pages(done) == []


def test_stale_pages__missing_and_unstamped_files_are_named(done: Path) -> None:
    (done / "results" / "main.md").unlink()
    (done / "results" / "data.md").write_text("# Data\n")
    (done / "results" / "summary.json").write_text("[")
    lines = stale_pages(done)
    assert "results/main.md is missing: run `make results`" in lines
    assert "results/data.md has no stamp that says what it was made from: run `make results`" in lines
    assert "results/summary.json has no stamp that says what it was made from: run `make results`" in lines


def test_stale_pages__needs_the_standard_library_only() -> None:
    code = "import sys, pathlib\nfrom studies.publish import stale_pages\nstale_pages(pathlib.Path('.'))\n"
    code += "sys.exit(' '.join({'torch', 'numpy', 'matplotlib', 'attention_cem'} & set(sys.modules)) or 0)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": "."},
    )
    assert (done.returncode, done.stderr.strip()) == (0, "")


def test_repository__its_own_pages_are_up_to_date() -> None:
    assert stale_pages(ROOT) == []
