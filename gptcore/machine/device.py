"""The machine under a training process: which device, which precision, how much memory, how fast it is.

    python -m gptcore.machine.device

measures how fast it multiplies matrices, which is what a training's time is estimated from: it prints {"device": "cpu"
or the GPU's name, "precision": str, "flops": operations a second}, of one GPU or of all cores.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec

import torch
import torch.utils.deterministic

from gptcore.base.errors import require

_DENSE_BF16_PEAKS = {
    # Dense bfloat16 FLOP/s from NVIDIA's data sheets. First match wins, so the slower variants come first.
    "H100 PCIe": 756e12,
    "H100 NVL": 835e12,
    "H100": 989e12,
    "H200": 989e12,
    "A100": 312e12,
}
_WIDTH = {"cpu": 1024, "cuda": 8192}
"""The width of square matrices: wide enough that the device is busy with products, small enough that one takes
milliseconds."""
_TIMED_SECONDS = 0.3
_COMPILED_OPERATIONS = {"cpu": 1e14, "cuda": 1e17}
"""Operations of a training, forward and backward: ten minutes of an H100 at 20 % of its peak, four of two cores of an
EPYC."""
_VECTOR_FUNCTIONS = ("exp", "expm1", "log", "log1p", "sqrt", "tanh", "erf", "sin", "cos")


def pick_device(local_rank: int) -> torch.device:
    """This process's GPU where there is one, else the CPU.

    A GPU is told to add in one order only (the backward passes of attention and cuBLAS otherwise do not), since a
    resumed run promises the bits of one that never stopped. What torch cannot do so raises RuntimeError there: were it
    to warn alone, attention would stay as it is; see :func:`order_unchecked`.
    """
    settle_vector_functions()
    if not torch.cuda.is_available():
        return torch.device("cpu")
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what cuBLAS asks for to be deterministic
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.allow_tf32 = False  # which torch leaves on where it is off for products; the LSTM is cuDNN's
    # on by default with the line above; it fills every new tensor with NaN, which nothing here reads
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # not in stubs
    device = torch.device("cuda", local_rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


@contextlib.contextmanager
def order_unchecked() -> Iterator[None]:
    """Let pass, inside the ``with`` block, what may add in any order on a GPU.

    For what torch refuses as a whole though the case at hand has one order: running sums along the rows of a matrix.
    """
    refused = torch.are_deterministic_algorithms_enabled()
    if refused:
        torch.use_deterministic_algorithms(False)
    try:
        yield
    finally:
        if refused:
            torch.use_deterministic_algorithms(True)


def settle_vector_functions() -> None:
    """Call each vector function of MKL once, on one thread, before two threads can be the first to call it.

    MKL 2024.2, which torch brings, chooses a function's kernel in its first call. Where two threads make that call, one
    of them may get a kernel of low accuracy, that once: 4 of 3,000 processes had another first `exp` on two busy cores,
    none after this (https://github.com/pytorch/pytorch/issues/188792).
    """
    for dtype in (torch.float32, torch.float64):
        one = torch.ones(1, dtype=dtype)
        for name in _VECTOR_FUNCTIONS:
            getattr(torch, name)(one)


def pick_dtype(precision: str, device: torch.device) -> torch.dtype:
    """The autocast type for a precision of "auto", "float32" or "bfloat16".

    "auto" means bfloat16 where the hardware multiplies it natively (a GPU of Ampere or later, a CPU with AVX512_BF16
    or AMX), where it is also the faster one at every width tried; float32 elsewhere.

    :raises InputError: for any other precision.
    """
    if precision == "auto":
        native = (
            torch.cuda.is_bf16_supported(including_emulation=False)
            if device.type == "cuda"
            else torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
        )
        return torch.bfloat16 if native else torch.float32
    require(precision in ("float32", "bfloat16"), f"precision = {precision!r}, expected auto, float32 or bfloat16")
    return torch.float32 if precision == "float32" else torch.bfloat16


def pays_to_compile(operations: float, device: torch.device, dtype: torch.dtype, drops: bool) -> bool:
    """Whether a training is so long that compiling its network gains more than it takes, half a minute at first.

    On an H100 an update of GPT-1 takes 0.8 of the time by it, on two cores of an EPYC one of the preset small 0.86.
    There neither float32 gains, whose products take nearly all of the time, nor a network with dropout, for which the
    draws of four elements at once would be lost. The answer hangs on the training and the machine alone, so that one
    that goes on gets the same bits; but for a machine that cannot compile, which is said.

    :param dtype: of the products.
    :param drops: whether the network has dropout.
    """
    if operations < _COMPILED_OPERATIONS[device.type]:
        return False
    if device.type == "cpu" and (dtype != torch.bfloat16 or drops):
        return False
    if not (has_compiler := compiles(device.type)):
        wanted = "C++" if device.type == "cpu" else "C, and Triton"
        print(f"nothing is compiled, for want of a compiler ({wanted}): updates take longer", file=sys.stderr)
    return has_compiler


def compiles(kind: str) -> bool:
    """Whether this machine has what torch compiles with for "cpu" or "cuda"."""
    if kind == "cpu":
        return shutil.which(os.environ.get("CXX", "g++")) is not None
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
    return find_spec("triton") is not None and compiler is not None


def autocast(device: torch.device, dtype: torch.dtype) -> contextlib.AbstractContextManager[object]:
    """Matrix products in ``dtype``; nothing to do for float32."""
    if dtype == torch.float32:
        return contextlib.nullcontext()
    return torch.autocast(device.type, dtype)


def peak_memory_bytes(device: torch.device) -> int:
    """The most memory this process has held: allocated on its GPU, or resident in RAM."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    unit = 1 if sys.platform == "darwin" else 1024  # getrusage(2): kilobytes on Linux, bytes on macOS
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def device_name(device: torch.device) -> str:
    """ "cpu", or the GPU's product name."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def model_flops_utilisation(
    flops_per_token: float, tokens_per_second: float, device: torch.device, dtype: torch.dtype, n_gpus: int
) -> float | None:
    """MFU: the share of the GPUs' dense bfloat16 peak that the model's own operations reach; None: peak unknown."""
    if device.type != "cuda" or dtype != torch.bfloat16:
        return None
    name = torch.cuda.get_device_name(device)
    peak = next((flops for key, flops in _DENSE_BF16_PEAKS.items() if key in name), None)
    return None if peak is None else tokens_per_second * flops_per_token / (peak * n_gpus)


def matrix_product_speed() -> dict[str, str | float]:
    """The device, the precision that it trains in, and the operations a second of its matrix products in that."""
    device = pick_device(0)
    dtype = pick_dtype("auto", device)
    width = _WIDTH[device.type]
    factor = torch.ones(width, width, device=device, dtype=dtype)
    _timed(factor, 1)  # kernels are chosen, threads started
    count, seconds = 1, 0.0
    while seconds < _TIMED_SECONDS:
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
