"""Products of a few rows with a network's weights, as fast as the weights can be read.

A product of one row reads every weight once, and torch's float32 kernel does that at the memory's rate. With 2 to some
20 rows MKL first copies the weights into the order its kernel likes, each time: with eight rows that takes three times
as long as the product. Weights that oneDNN has put in order once need no such copy.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gptcore.models.language_model import LanguageModel

_MOST_ROWS = 64  # above, copying the weights is a small part of the product


class Products:
    """``x @ weight.T + bias`` with the weights of a network, for ``rows`` rows from a second copy in oneDNN's order.

    :param model: whose linear layers and word embedding are copied; None: nothing is.
    :param rows: how many rows the products have that are to be fast.
    """

    def __init__(self, model: LanguageModel | None = None, rows: int = 1) -> None:
        self._rows = rows
        self._packed: dict[Tensor, Tensor] = {}
        packs = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]  # torch's own annotation is missing
        if model is None or not 1 < rows <= _MOST_ROWS or not packs:
            return
        for weight in [model.tokens.weight, *(part.weight for part in model.modules() if isinstance(part, nn.Linear))]:
            if weight.device.type == "cpu" and weight.dtype == torch.float32:
                self._packed[weight] = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), rows)

    def __call__(self, linear: nn.Linear, x: Tensor) -> Tensor:
        """What ``linear`` makes of x: [..., in] -> [..., out]."""
        return self.with_weight(linear.weight, x, linear.bias)

    def with_weight(self, weight: Tensor, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """[..., in], weight [out, in] -> [..., out]."""
        packed = self._packed.get(weight) if x.numel() == self._rows * x.shape[-1] else None
        if packed is None:
            return F.linear(x, weight, bias)
        product: Tensor = torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")
        return product
