"""Slot attention: a few slots per class compete for the class's samples."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attention_cem.surrogates.segments import class_scores, class_sum, class_weighted_sums


class SlotAttention(nn.Module):
    r"""Slots that summarise each class (Locatello et al., NeurIPS 2020), all classes of a batch at once.

    With :math:`k_n = W_k\mathrm{LN}(x_n)`, :math:`v_n = W_v\mathrm{LN}(x_n)`, repeat T times

    .. math::
        q_k &= W_q \mathrm{LN}(s_k) / \sqrt d, \quad
        a_{nk} = \mathrm{softmax}_k(k_n^\top q_k / d^{1/4}) + \varepsilon, \\
        u_k &= \sum_n a_{nk} v_n / \sum_n a_{nk}, \quad
        s_k \leftarrow \mathrm{GRU}(u_k, s_k), \quad s_k \leftarrow s_k + \mathrm{MLP}(\mathrm{LN}(s_k)),

    where sums run over the samples of one class. Slots start at :math:`\mu + e^{\log\sigma}\epsilon`, with the same
    :math:`\epsilon` for every class, so that neither the order nor the names of the classes matter.

    Args:
        dim: d, width of samples and slots.
        num_slots: S.
        num_iterations: T.
        mlp_ratio: hidden width of the MLP as a multiple of d.
        eps: added to the attention before it is normalised over the samples.
    """

    def __init__(
        self, dim: int, num_slots: int = 8, num_iterations: int = 3, mlp_ratio: float = 2.0, eps: float = 1e-8
    ) -> None:
        super().__init__()
        self.num_slots, self.num_iterations, self.eps = num_slots, num_iterations, eps
        self.slot_mean = nn.Parameter(torch.randn(dim) * dim**-0.5)
        self.slot_log_std = nn.Parameter(torch.zeros(dim))
        self.norm_inputs, self.norm_slots, self.norm_mlp = (nn.LayerNorm(dim) for _ in range(3))
        self.to_key, self.to_value, self.to_query = (nn.Linear(dim, dim, bias=False) for _ in range(3))
        self.update = nn.GRUCell(dim, dim)
        hidden = max(1, int(mlp_ratio * dim))
        self.mlp = nn.Sequential(nn.Linear(dim, hidden), nn.ReLU(), nn.Linear(hidden, dim))

    def initial_slots(self, noise: Tensor) -> Tensor:
        """Slots before the first round from standard normal ``noise`` (S, d)."""
        return self.slot_mean + self.slot_log_std.exp() * noise

    def forward(self, x: Tensor, row: Tensor, num_rows: int, noise: Tensor) -> Tensor:
        """Summarise samples x (N, d) of classes ``row`` (N,) into slots (R, S, d), from ``noise`` (S, d)."""
        width = x.shape[-1]
        x = self.norm_inputs(x)
        key, value = self.to_key(x), self.to_value(x)
        slots = self.initial_slots(noise).expand(num_rows, -1, -1)
        for _ in range(self.num_iterations):
            query = self.to_query(self.norm_slots(slots)) / width**0.5
            attention = (class_scores(key, query, row) / width**0.25).softmax(-1) + self.eps  # (N, S)
            total = class_sum(attention, row, num_rows)
            total = torch.where(total > 0, total, 1)  # rows without samples
            update = class_weighted_sums(attention, value, row, num_rows) / total.unsqueeze(-1)
            slots = gru_update(self.update, update.flatten(0, 1), slots.flatten(0, 1)).view_as(update)
            slots = slots + self.mlp(self.norm_mlp(slots))
        return slots


def gru_update(cell: nn.GRUCell, x: Tensor, state: Tensor) -> Tensor:
    """One step of ``cell``: its own fused kernel in eager mode, its equations where a compiler fuses them itself."""
    if not torch.compiler.is_compiling():
        return cell(x, state)
    reset_x, update_x, new_x = F.linear(x, cell.weight_ih, cell.bias_ih).chunk(3, -1)
    reset_h, update_h, new_h = F.linear(state, cell.weight_hh, cell.bias_hh).chunk(3, -1)
    update = torch.sigmoid(update_x + update_h)
    new = torch.tanh(new_x + torch.sigmoid(reset_x + reset_h) * new_h)
    return new + update * (state - new)
