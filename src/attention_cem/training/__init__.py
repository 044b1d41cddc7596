"""Training: the split trainer and its parts."""

from attention_cem.training.cut_gradient import backward_at_cut, detach_at_cut

__all__ = ["backward_at_cut", "detach_at_cut"]
