"""Shipped tests: certify your own surrogate against the same contract as ours."""

from attention_cem.testing.contract import SurrogateContract

__all__ = ["SurrogateContract"]
