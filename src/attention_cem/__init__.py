"""Attention-CEM: split inference whose features reveal the class and little else."""

__version__ = "0.1.0"
