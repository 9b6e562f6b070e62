"""How fast this machine multiplies matrices, which is what a training's time is estimated from.

    python -m gptcore.machine.speed

Prints {"device": "cpu" or the GPU's name, "precision": str, "flops": operations a second}, of one GPU or of all cores.
"""

from __future__ import annotations

import json
import time

import torch

from gptcore.machine.device import device_name, pick_device, pick_dtype

_WIDTH = {"cpu": 1024, "cuda": 8192}
"""Of square matrices: wide enough that the device is busy with products, small enough that one takes milliseconds."""
_SECONDS = 0.3


def matrix_product_speed() -> dict[str, str | float]:
    """The device, the precision that it trains in, and the operations a second of its matrix products in that."""
    device = pick_device(0)
    dtype = pick_dtype("auto", device)
    width = _WIDTH[device.type]
    factor = torch.ones(width, width, device=device, dtype=dtype)
    _timed(factor, 1)  # kernels are chosen, threads started
    count, seconds = 1, 0.0
    while seconds < _SECONDS:
        count *= 2
        seconds = _timed(factor, count)
    flops = 2.0 * width**3 * count / seconds
    return {"device": device_name(device), "precision": str(dtype).removeprefix("torch."), "flops": flops}


def _timed(factor: torch.Tensor, count: int) -> float:
    """Seconds of ``count`` products."""
    start = time.perf_counter()
    for _ in range(count):
        torch.mm(factor, factor)
    if factor.is_cuda:
        torch.cuda.synchronize(factor.device)
    return time.perf_counter() - start


if __name__ == "__main__":
    print(json.dumps(matrix_product_speed()))
