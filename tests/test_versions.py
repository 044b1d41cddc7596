from __future__ import annotations

import json
import subprocess
import sys

import torch

import attention_cem
from attention_cem.versions import program_versions


def test_program_versions__are_those_at_work_and_plain_text() -> None:
    found = json.loads(json.dumps(program_versions()))
    python = ".".join(map(str, sys.version_info[:3]))
    assert found == {"attention_cem": attention_cem.__version__, "torch": str(torch.__version__), "python": python}


def test_versions__importing_it_does_not_import_torch() -> None:
    code = "import sys, attention_cem.versions; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
