"""Merge the task's and the surrogate's gradients at the cut, and run the client's backward once."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn


def detach_at_cut(z: Tensor) -> Tensor:
    """What the server receives: the values of z as a leaf that collects the gradient the server sends back."""
    return z.detach().requires_grad_()


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
    if not feature.is_leaf or not feature.requires_grad:
        raise ValueError("feature must come from detach_at_cut(z): a leaf tensor that requires a gradient")
    if feature.shape != z.shape:
        raise ValueError(f"feature has shape {tuple(feature.shape)}, but z has {tuple(z.shape)}")
    parameters = estimator.parameters() if isinstance(estimator, nn.Module) else estimator
    learned = [p for p in parameters if p.requires_grad]
    gradients = torch.autograd.grad(rob_loss, [feature, *learned], allow_unused=True, retain_graph=False)
    present = [g for g in gradients if g is not None]
    finite = torch.stack([torch.isfinite(t).all() for t in (rob_loss.detach(), *present)]).all()

    task_loss.backward()
    at_cut = torch.zeros_like(z) if feature.grad is None else feature.grad
    if gradients[0] is not None:
        at_cut = at_cut + lambd * torch.where(finite, gradients[0], 0)
    factor = lambd if plain_sum else 1
    for parameter, gradient in zip(learned, gradients[1:], strict=True):
        if gradient is not None:
            gradient = factor * torch.where(finite, gradient, 0)
            parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
    z.backward(at_cut)
    return ~finite
