"""FollowedSolution: the solution of a linear system that moves a little at every step, for three products a step."""

from typing import Any

import torch
from torch import Tensor, nn

from attention_cem.surrogates.repetition import is_due

RENEW_EVERY = 10  # an inverse of some forty steps ago is too old where the client moves fast
RENEW_BESIDE_EVERY = 5  # it is in use one period later, so that it is never older than the other


class FollowedSolution(nn.Module):
    r"""Keeps :math:`W\approx A^{-1}C` while A and C move.

    A step goes from the last W down the gradient, multiplied by an inverse :math:`P` of A as it was up to 10 steps
    ago, as far as is best for each column (the line search of steepest descent):

    .. math:: R = C-AW,\quad D = PR,\quad W \leftarrow W + D\,\mathrm{diag}(\alpha),\quad
        \alpha_j = \frac{D_j\cdot R_j}{D_j\cdot AD_j} .

    No step can be too long, whatever P is: the error in the norm of A never grows by a step. Where W is not yet the
    best, :math:`2\,\mathrm{tr}(W^\top C)-\mathrm{tr}(W^\top AW)` says what it recovers, which is never more than
    what the best recovers.

    Args:
        width: rows of A. targets: columns of C.
    """

    weight: Tensor
    inverse: Tensor
    calls: Tensor

    def __init__(self, width: int, targets: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.zeros(width, targets))
        # Until it is renewed, plain steepest descent: slow, but who compiles and forgets `maintain` must not read zero.
        self.register_buffer("inverse", torch.eye(width))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self._calls = 0  # the same on the host, which need not ask the device
        self._begun: tuple[torch.cuda.Stream, Tensor] | None = None

    def forward(self, system: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
        """One step towards the solution of ``system`` (width, width), ``wanted`` (width, targets).

        Returns:
            W, and the scalar that it recovers.
        """
        if not (torch.compiler.is_compiling() or (system.is_cuda and torch.cuda.is_current_stream_capturing())):
            if self._calls == 0 or is_due(self._calls, RENEW_EVERY):
                self.renew(system)
            self._calls += 1
        self.calls.add_(1)
        reached = system @ self.weight
        missing = wanted - reached
        direction = self.inverse @ missing
        effect = system @ direction
        curvature = (direction * effect).sum(0)
        length = torch.where(curvature > 0, (direction * missing).sum(0) / curvature, 0)
        weight = self.weight + direction * length
        recovered = (weight * (2 * wanted - reached - effect * length)).sum()
        # a batch that is not finite shows in the output alone
        self.weight.copy_(torch.where(torch.isfinite(recovered), weight, self.weight))
        return weight, recovered

    def renew(self, system: Tensor) -> None:
        """Invert ``system`` for the steps to come; what is not positive definite leaves the inverse as it was."""
        self.inverse.copy_(self._inverted(system))

    def renew_beside(self, system: Tensor) -> None:
        """`renew`, on a CUDA device beside the steps to come: in use from the next call on, the first one at once."""
        if not system.is_cuda:
            self.renew(system)
            return
        steps = torch.cuda.current_stream(system.device)
        if self._begun is None:
            self.renew(system)
            beside = torch.cuda.Stream(system.device)
        else:
            beside, inverse = self._begun
            steps.wait_stream(beside)
            self.inverse.copy_(inverse)
        beside.wait_stream(steps)
        with torch.cuda.stream(beside):
            self._begun = (beside, self._inverted(system))
        system.record_stream(beside)  # its memory is not free before `beside` has read it

    def _inverted(self, system: Tensor) -> Tensor:
        factor, failed = torch.linalg.cholesky_ex(system)
        # not cholesky_inverse, which waits for the device to look for errors
        inverse = torch.cholesky_solve(torch.eye(len(system), dtype=system.dtype, device=system.device), factor)
        # by its squares: before anything was measured the system is next to nothing, and steps by its inverse overflow
        usable = (failed == 0) & torch.isfinite(inverse.square()).all()
        return torch.where(usable, inverse, self.inverse)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *args)
        self._calls = int(state_dict.get(prefix + "calls", 0))
