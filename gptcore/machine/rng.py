"""Random states: generators seeded by name, and every one captured into JSON and put back bit for bit."""

from __future__ import annotations

import base64
import random
from typing import Any

import numpy as np
import torch

from gptcore.base.seeds import derive_seed as derive_seed  # for those who have torch at hand


def seed_everything(seed: int) -> None:
    """Seed the default generators of python, numpy and torch (CPU and every GPU)."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # numpy's legacy generator takes 32 bits
    torch.manual_seed(seed)


def generator(seed: int, *names: str | int) -> torch.Generator:
    """A CPU generator seeded with :func:`derive_seed`."""
    return torch.Generator().manual_seed(derive_seed(seed, *names))


def capture() -> dict[str, Any]:
    """The states of the default generators of python, numpy, torch and the current GPU, as JSON values."""
    version, internal, gauss = random.getstate()
    kind, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    return {
        "python": [version, list(internal), gauss],
        "numpy": [kind, np.asarray(keys).tolist(), position, has_gauss, cached],
        "torch": _encode(torch.get_rng_state()),
        "cuda": _encode(torch.cuda.get_rng_state()) if torch.cuda.is_available() else None,
    }


def restore(states: dict[str, Any]) -> None:
    """Put back what :func:`capture` gave. A GPU state is ignored where there is no GPU, and the other way round."""
    version, internal, gauss = states["python"]
    random.setstate((version, tuple(internal), gauss))
    kind, keys, position, has_gauss, cached = states["numpy"]
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), position, has_gauss, cached))
    torch.set_rng_state(_decode(states["torch"]))
    if states["cuda"] is not None and torch.cuda.is_available():
        torch.cuda.set_rng_state(_decode(states["cuda"]))


def _encode(state: torch.Tensor) -> str:
    return base64.b64encode(state.numpy().tobytes()).decode("ascii")


def _decode(text: str) -> torch.Tensor:
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8)
