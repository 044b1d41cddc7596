"""Merge the task's and the surrogate's gradients at the cut, and run the client's backward once."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn


def detach_at_cut(z: Tensor) -> Tensor:
    """What the server receives: the values of z as a leaf that collects the gradient the server sends back."""
    return z.detach().requires_grad_()


class RobGradients(NamedTuple):
    """The gradients of rob_loss, found before or beside those of the task loss."""

    at_cut: Tensor | None
    """Gradient with respect to the feature; None if rob_loss does not depend on it."""
    estimator: list[tuple[nn.Parameter, Tensor]]
    """The estimator's parameters with their gradients."""
    emission: list[tuple[nn.Parameter, Tensor]]
    """The same of what defences learn between the feature and the estimator: a part of the client."""
    finite: Tensor
    """() bool: whether rob_loss and all its gradients are finite."""


def rob_gradients(
    feature: Tensor,
    rob_loss: Tensor,
    estimator: nn.Module | Iterable[nn.Parameter] = (),
    emission: Iterable[nn.Parameter] = (),
) -> RobGradients:
    """Gradients of rob_loss; arguments as for `backward_at_cut`, of which this is the first half.

    ``emission`` are parameters of the client that lie behind the feature.
    """
    if not feature.is_leaf or not feature.requires_grad:
        raise ValueError("feature must come from detach_at_cut(z): a leaf tensor that requires a gradient")
    parameters = estimator.parameters() if isinstance(estimator, nn.Module) else estimator
    learned = [p for p in parameters if p.requires_grad]
    behind = list(emission)
    at_cut, *found = torch.autograd.grad(rob_loss, [feature, *learned, *behind], allow_unused=True, retain_graph=False)
    present = [g for g in (at_cut, *found) if g is not None]
    finite = torch.stack([torch.isfinite(t).all() for t in (rob_loss.detach(), *present)]).all()
    own, others = found[: len(learned)], found[len(learned) :]
    return RobGradients(at_cut, _present(learned, own), _present(behind, others), finite)


def merge_at_cut(
    z: Tensor, task_gradient: Tensor | None, rob: RobGradients, *, lambd: float | Tensor, plain_sum: bool = False
) -> Tensor:
    """The second half of `backward_at_cut`, after the task's backward: the sum at the cut, the client's backward.

    Args:
        z: the client's output, attached to the client's graph.
        task_gradient: what the server sent back, the feature's ``.grad``; None if it sent nothing.
        rob: from `rob_gradients`. lambd, plain_sum: as for `backward_at_cut`.

    Returns:
        () bool tensor: whether the surrogate was left out of this step.
    """
    at_cut = torch.zeros_like(z) if task_gradient is None else task_gradient
    if rob.at_cut is not None:
        at_cut = at_cut + lambd * torch.where(rob.finite, rob.at_cut, 0)
    for pairs, factor in ((rob.estimator, lambd if plain_sum else 1), (rob.emission, lambd)):
        for parameter, gradient in pairs:
            gradient = factor * torch.where(rob.finite, gradient, 0)
            parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
    z.backward(at_cut)
    return ~rob.finite


def backward_at_cut(
    z: Tensor,
    feature: Tensor,
    task_loss: Tensor,
    rob_loss: Tensor,
    *,
    lambd: float | Tensor,
    estimator: nn.Module | Iterable[nn.Parameter] = (),
    plain_sum: bool = False,
) -> Tensor:
    r"""Accumulate all gradients of one step with a single backward pass of the client.

    The client's gradient is linear in the gradient at the cut, so

    .. math::
        \nabla_\text{client} = J_z^\top(\partial L_D/\partial z + \lambda\,\partial\,\mathrm{rob}/\partial z).

    The server gets the gradient of the task loss alone, the estimator (the surrogate's own parameters) that of
    rob_loss, not scaled by λ. This equals the two-backward procedure to rounding, and is what a real pair does: the
    server returns :math:`\partial L_D/\partial z`, the client adds its own term.

    If rob_loss or any of its gradients is not finite, the step trains without it: its gradients are left out and
    the returned flag is true. Nothing here waits for the device.

    Args:
        z: the client's output, attached to the client's graph.
        feature: ``detach_at_cut(z)``; task_loss and rob_loss were computed from it.
        task_loss: scalar. rob_loss: scalar.
        lambd: λ, times any schedule factor.
        estimator: the surrogate, or its parameters.
        plain_sum: give the estimator λ times its gradient, as in the plain sum L = L_D + λ·rob.

    Returns:
        () bool tensor: whether the surrogate was left out of this step.

    >>> from attention_cem import GatedAttentionCEM
    >>> client, server = nn.Linear(5, 8), nn.Linear(8, 3)
    >>> surrogate = GatedAttentionCEM(feature_dim=8)
    >>> x, y = torch.randn(12, 5), torch.arange(12) % 3
    >>> z = client(x)
    >>> feature = detach_at_cut(z)
    >>> task_loss = nn.functional.cross_entropy(server(feature), y)
    >>> out = surrogate(feature, y)
    >>> skipped = backward_at_cut(z, feature, task_loss, out.rob_loss, lambd=16.0, estimator=surrogate)
    >>> bool(skipped), client.weight.grad.shape
    (False, torch.Size([8, 5]))
    """
    if feature.shape != z.shape:
        raise ValueError(f"feature has shape {tuple(feature.shape)}, but z has {tuple(z.shape)}")
    if not isinstance(lambd, Tensor) and not 0 <= lambd < float("inf"):
        raise ValueError(f"lambd must be a finite number from 0 on, got {lambd!r}")
    rob = rob_gradients(feature, rob_loss, estimator)
    task_loss.backward()
    return merge_at_cut(z, feature.grad, rob, lambd=lambd, plain_sum=plain_sum)


def _present(
    parameters: Sequence[nn.Parameter], gradients: Sequence[Tensor | None]
) -> list[tuple[nn.Parameter, Tensor]]:
    return [(p, g) for p, g in zip(parameters, gradients, strict=True) if g is not None]
