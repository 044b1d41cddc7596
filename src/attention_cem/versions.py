"""Which versions computed a result."""

import platform

from attention_cem import __version__


def program_versions() -> dict[str, str]:
    """Versions of this package, of torch and of Python, as results keep them.

    >>> sorted(program_versions())
    ['attention_cem', 'python', 'torch']
    """
    import torch  # here, so that asking for anything else does not import it

    return {"attention_cem": __version__, "torch": str(torch.__version__), "python": platform.python_version()}
