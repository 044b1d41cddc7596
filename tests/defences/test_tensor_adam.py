import torch

from attention_cem.defences.tensor_adam import TensorAdam


def test_tensor_adam__equals_torch_adam():
    torch.manual_seed(0)
    ours = [torch.nn.Parameter(torch.randn(4, 3)), torch.nn.Parameter(torch.randn(5))]
    theirs = [torch.nn.Parameter(parameter.detach().clone()) for parameter in ours]
    adam, reference = TensorAdam(size=17, lr=0.01), torch.optim.Adam(theirs, lr=0.01)
    for _ in range(100):
        gradients = [torch.randn_like(parameter) for parameter in ours]
        adam.update(ours, torch.cat([gradient.flatten() for gradient in gradients]))
        for parameter, gradient in zip(theirs, gradients, strict=True):
            parameter.grad = gradient
        reference.step()
    for left, right in zip(ours, theirs, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-5, atol=1e-6)


def test_tensor_adam__state_is_three_tensors():
    assert set(TensorAdam(size=3, lr=0.1).state_dict()) == {"first_moment", "second_moment", "steps"}
