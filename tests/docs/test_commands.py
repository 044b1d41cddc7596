"""Every block a reader would copy is run: each page from top to bottom, in a folder of its own.

The folder holds nothing but links to ``configs``, ``studies`` and ``examples``, as the root of a clone does.
The Chinese pages hold the same blocks (``test_pages.py``), so they are not run again.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ENGLISH, PAGES, ROOT, Block, code_blocks

SHARED = ("configs", "studies", "examples")
# What a page must leave behind, so that a command which does nothing is noticed.
LEAVES = {
    "start.md": ["report.html", "pipeline.svg", "runs/plain/audit.json", "runs/defended/audit.json"],
    "use/model.md": ["runs/my-net/report.html", "runs/my-net/audit.json", "my-bundle/client.onnx"],
    "use/data.md": ["runs/photos/run.json", "runs/tensors/run.json"],
    "use/gpus.md": ["runs/two/run.json", "study.html"],
    "use/ship.md": ["bundle/manifest.json", "predictions.jsonl", "advice"],
    "extend.md": ["audit/audit.json"],
}


def blocks_to_run(page: str) -> list[Block]:
    blocks = code_blocks((ENGLISH / page).read_text(encoding="utf-8"))
    return [
        block
        for block in blocks
        if not block.not_run and (block.caption is not None or block.language in ("sh", "python"))
    ]


def script(blocks: list[Block], folder: Path) -> str:
    """One bash script for a page; Python blocks with no command between them are one program."""
    lines = ["set -euo pipefail", "trap 'jobs -p | xargs -r kill 2>/dev/null; wait' EXIT"]
    program: list[str] = []

    def flush() -> None:
        if program:
            file = folder / f"block_{len(lines)}.py"
            file.write_text("\n".join(program), encoding="utf-8")
            lines.append(f"python {shlex.quote(file.name)}")
            program.clear()

    for block in blocks:
        if block.caption is not None:
            flush()
            (folder / block.caption).write_text(block.code, encoding="utf-8")
        elif block.language == "python":
            program.append(block.code)
        else:
            flush()
            lines.append(block.code)
    flush()
    return "\n".join(lines) + "\n"


def run_page(page: str, folder: Path, timeout: float) -> subprocess.CompletedProcess[str]:
    for name in SHARED:
        (folder / name).symlink_to(ROOT / name)
    environment = {
        **{key: value for key, value in os.environ.items() if key != "ATTENTION_CEM_DATA"},
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": str(ROOT / "src"),
        "OMP_NUM_THREADS": "1",
    }
    return subprocess.run(
        ["bash", "-c", script(blocks_to_run(page), folder)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if blocks_to_run(page)])
def test_page__every_block_works_as_printed(page: str, tmp_path: Path) -> None:
    done = run_page(page, tmp_path, timeout=600)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    assert "Traceback" not in done.stderr
    for left in LEAVES.get(page, []):
        assert (tmp_path / left).exists(), left


def test_pages__those_that_promise_commands_have_them() -> None:
    for page in LEAVES:
        assert blocks_to_run(page), page
    assert {block.language for page in PAGES for block in blocks_to_run(page)} >= {"sh", "python"}


def test_script__a_failing_command_fails_the_page(tmp_path: Path) -> None:
    blocks = [Block("sh", "false\n", None, False), Block("sh", "touch reached\n", None, False)]
    done = subprocess.run(["bash", "-c", script(blocks, tmp_path)], cwd=tmp_path, check=False)
    assert done.returncode != 0
    assert not (tmp_path / "reached").exists()


def test_script__python_blocks_share_names_until_a_command_comes(tmp_path: Path) -> None:
    blocks = [
        Block("python", "x = 1\n", None, False),
        Block("python", "open('seen', 'w').write(str(x))\n", None, False),
        Block("sh", "cat seen\n", None, False),
        Block("python", "print('x' in globals())\n", None, False),
    ]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script(blocks, tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["1False"]


def test_not_run__make_verbs_named_on_a_page_exist() -> None:
    verbs = {line.partition(":")[0] for line in (ROOT / "Makefile").read_text().splitlines() if ":" in line}
    for page in PAGES:
        for block in code_blocks((ENGLISH / page).read_text(encoding="utf-8")):
            for line in block.code.splitlines() if block.language == "sh" else []:
                if line.startswith("make "):
                    assert line.split()[1] in verbs, f"{page}: {line}"
