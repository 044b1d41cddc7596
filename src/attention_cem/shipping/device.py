"""The client half on a device: ONNX Runtime, and noise that cannot be left out."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attention_cem.shipping.bundle import FEATURE, IMAGES_INPUT, Bundle, noise_name
from attention_cem.shipping.sessions import check_inputs, open_session
from attention_cem.shipping.system_noise import system_draw


class DefendedClient:
    """Turns images into what may leave the device.

    Every call draws fresh noise from the operating system (see `attention_cem.shipping.system_noise`). There is no
    argument, attribute or method that takes the noise from outside or returns the clean feature. Whoever owns the
    device can of course run the graph by other means; this class protects its user, not against its user.

    Sending one image twice releases it twice, and averaging many releases of one image removes the noise. A retry
    must therefore send the same bytes again, as `RemoteClassifier` does.

    Args:
        bundle: from `open_bundle`.
        threads: threads of ONNX Runtime; 0 takes every core.
    """

    def __init__(self, bundle: Bundle, threads: int = 1) -> None:
        self.image_shape = bundle.image_shape
        self.z_shape = bundle.z_shape
        self._draws = bundle.draws
        self._session = open_session(bundle.client_path, threads)
        noise = {noise_name(position): ("tensor(float)", *self.z_shape) for position in range(len(self._draws))}
        promised = {IMAGES_INPUT: ("tensor(uint8)", *self.image_shape), **noise}
        check_inputs(bundle.client_path, self._session, promised)

    def release(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        """The defended features ``(N, *z_shape)`` of images ``(N, C, H, W)``, with noise drawn in this call."""
        if not isinstance(images, np.ndarray) or images.dtype != np.uint8 or images.shape[1:] != self.image_shape:
            received = f"{images.dtype} {images.shape}" if isinstance(images, np.ndarray) else type(images).__name__
            raise ValueError(
                f"expected uint8 images of shape (N, {', '.join(map(str, self.image_shape))}), "
                f"received {received}; `read_images` prepares files"
            )
        if len(images) == 0:
            return np.zeros((0, *self.z_shape), np.float32)
        shape = (len(images), *self.z_shape)
        noise = {noise_name(position): system_draw(kind, shape) for position, kind in enumerate(self._draws)}
        released: NDArray[np.float32] = self._session.run([FEATURE], {IMAGES_INPUT: images, **noise})[0]
        if released.shape != shape:
            raise ValueError(f"the client graph gives {released.shape}, its manifest promises {shape}; export again")
        return released
