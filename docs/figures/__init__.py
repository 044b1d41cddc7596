"""The handbook's figures, drawn from runs of the package itself; see ``python -m docs.figures --help``."""
