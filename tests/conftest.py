from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from attention_cem.freed_memory import keep_freed_memory

keep_freed_memory()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Every test begins with the same random state, whichever tests its worker ran before it."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
