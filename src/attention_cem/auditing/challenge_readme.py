"""The text that travels with every challenge, for people who attack it without this library."""

CHALLENGE_README = """\
# A challenge: rebuild the images behind these features

A client computes z = client(x) for an image x, a defence turns z into what is released, and you see the release.
Rebuild x. Everything here is plain data: JSON and safetensors (https://github.com/huggingface/safetensors).

| file | tensors |
| --- | --- |
| `test_features.safetensors` | `features` float32 (draws, N, ...): releases of the N images to rebuild |
| `attacker_images.safetensors` | `images` uint8 (M, C, H, W), `labels` int64 (M,): images you own |
| `attacker_features.safetensors` | `features` float32 (draws, M, ...): releases of your images |
| `membership.safetensors` (optional) | `features`, `labels`, `logits`, `known` int8 (1 member, 0 not, -1 unknown) |
| `client.json`, `client.safetensors` (white-box only) | the client in evaluation mode, as steps and named weights |
| `defence.safetensors` (white-box only) | learned parts of the defence |
| `manifest.json` | shapes, class names, threat model, and size and SHA-256 of every file; check them first |

Membership candidates that are not members are test images: `membership.safetensors` shows their labels and a release of
their own. An attack that rebuilds images from it reads more than one release of each; say so.

A draw is one release with its own randomness. `manifest.json` describes the defence under `defence`.
Pixels are x = uint8 / 255, in [0, 1]; the client expects exactly that.

`client.json` lists `steps`, run in order. Kinds: `input` (the image), `layer` (a `torch.nn` class with its
`arguments`; its weights are the tensors whose names start with `weights` and a dot), `function` and `method` (named
as in torch, called with `inputs` and `options`), `tensor` (a stored tensor). `{"step": i}` stands for the result of
step i; `output` says which result is z.

Submit reconstructions as float32 (N, C, H, W) in [0, 1], in the order of the test features. They are scored once,
per image, against the images in `answers/`: mean squared error, PSNR and SSIM with data range 1, then averaged.
`answers/` is for the scorer. An attack that opens it proves nothing; it may be missing from your copy.
"""
