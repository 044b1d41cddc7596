"""Greedy k-means++ over remembered samples: starts that rarely miss a mode."""

import math

import torch
from torch import Tensor

from attention_cem.surrogates.noise import counter_uniform


def greedy_plus_plus(keys: Tensor, valid: Tensor, num_picks: int, seed: Tensor, step: Tensor) -> Tensor:
    """Pick samples far from one another, each the best of several draws; with one draw a mode is often missed.

    Args:
        keys: (R, K, d) of K samples in each of R classes. valid: (R, K), which of them count.
        num_picks: S. seed, step: int64 scalars that the draws depend on.

    Returns:
        (R, S) int64: positions among the K samples; meaningless where none counts.

    >>> keys = torch.tensor([[[0.0], [0.1], [9.0], [9.1]]])
    >>> picked = greedy_plus_plus(keys, torch.ones(1, 4).bool(), 2, torch.tensor(0), torch.tensor(0))
    >>> sorted((picked // 2).tolist()[0])
    [0, 1]
    """
    rows, size = valid.shape
    draws = min(size, 2 + int(math.log(num_picks)))
    uniform = counter_uniform(seed, step, num_picks * rows * size).view(num_picks, rows, size)
    gumbel = -(-uniform.log()).log()
    keys = keys - keys.mean(1, keepdim=True)
    length = keys.square().sum(-1)
    nearest = torch.full_like(length, torch.inf)
    picked = []
    for turn in gumbel:
        score = (nearest.double().clamp(1e-300, 1e300).log() + turn).masked_fill(~valid, -torch.inf)
        found, choice = score.topk(draws, 1)  # (R, L): drawn without replacement
        drawn = keys.gather(1, choice.unsqueeze(-1).expand(-1, -1, keys.shape[-1]))
        squared = length.unsqueeze(-1) - 2 * keys @ drawn.mT + length.gather(1, choice).unsqueeze(1)  # (R, K, L)
        left = torch.minimum(nearest.unsqueeze(-1), squared.clamp_min(0))
        cost = (left * valid.unsqueeze(-1)).sum(1).masked_fill(found == -torch.inf, torch.inf)
        best = cost.argmin(1, keepdim=True)  # (R, 1)
        picked.append(choice.gather(1, best))
        nearest = left.gather(2, best.unsqueeze(1).expand(-1, size, -1)).squeeze(-1)
    return torch.cat(picked, 1)
