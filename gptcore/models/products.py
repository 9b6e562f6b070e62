"""Products of matrices by the library that is the fastest on the machine."""

from __future__ import annotations

import copy
import functools
from typing import Any, NamedTuple, Self, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

Network = TypeVar("Network", bound=nn.Module)
_SMALL_PRODUCT = 1 << 21  # multiplications, below which what is around a product takes as long as it
_SMALL_ROW = 1 << 18  # the same of a single row
_MOST_ROWS = 64  # above, putting the weights in order is a small part of the product


class Packed(NamedTuple):
    """A second copy of a weight in oneDNN's order, for products with a number of rows.

    With 2 to some 20 rows putting the weight in order each time takes half of the product's time.
    """

    weight: Tensor
    rows: int

    @classmethod
    def of(cls, weight: Tensor, rows: int) -> Self | None:
        """The copy of a weight; None where it would not make products of ``rows`` rows faster."""
        here = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]  # torch's own annotation is missing
        if not here or not 1 < rows <= _MOST_ROWS or weight.device.type != "cpu" or weight.dtype != torch.float32:
            return None
        return cls(torch.ops.mkldnn._reorder_linear_weight(weight.detach(), rows), rows)


class Linear(nn.Linear):
    """torch's layer, multiplied by :func:`linear`."""

    packed: Packed | None = None
    matrices: tuple[int, ...] = ()
    """The rows of each of several matrices that are kept as one; empty: it is one."""

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] -> [..., out]."""
        return linear(x, self.weight, self.bias, self.packed)


def packed(network: Network, rows: int) -> Network:
    """A network on the same weights whose products of ``rows`` rows are fast; where none would be, itself."""
    if not 1 < rows <= _MOST_ROWS:
        return network
    twin = copy.deepcopy(network, {id(tensor): tensor for tensor in (*network.parameters(), *network.buffers())})
    for part in twin.modules():
        if isinstance(part, Linear):
            part.packed = Packed.of(part.weight, rows)
    return twin


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, packed: Packed | None = None) -> Tensor:
    """What :func:`torch.nn.functional.linear` computes, by oneDNN where that is faster: [..., in] -> [..., out].

    :param packed: a copy of ``weight`` that is taken where x has the number of rows that it is for.
    """
    if packed is not None and x.numel() == packed.rows * x.shape[-1]:
        return _onednn(x, packed.weight, bias)
    dtype, learns = product_dtype(x), torch.is_grad_enabled()
    n_products = x.numel() * len(weight)
    if not learns and x.numel() == x.shape[-1] and n_products > _SMALL_ROW and _mkl_multiplies(weight, dtype):
        row = _row(x, weight)
        return (row if bias is None else row + bias).view(*x.shape[:-1], -1)
    if not _onednn_is_faster(n_products, weight, dtype):
        return F.linear(x, weight, bias)
    rows = x.reshape(-1, x.shape[-1])
    if learns:
        product: Tensor = _Linear.apply(rows, weight, bias, dtype)  # type: ignore[no-untyped-call]  # not annotated
    else:
        product = _onednn(rows.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype))
    return product.view(*x.shape[:-1], -1)


def _row(x: Tensor, weight: Tensor) -> Tensor:
    """The product of a single row with a weight [out, in]: [out].

    MKL multiplies one row on one thread, at half of the rate that it reads weights at. As a batch of products, one for
    each thread, of weights times a column, it reads them as fast as the memory goes.
    """
    n_out, width = weight.shape
    parts = max(2, torch.get_num_threads())
    whole, column = n_out // parts * parts, x.reshape(1, width).t()  # strides of 1 and 1 lead MKL another, slow way
    product = torch.bmm(weight[:whole].view(parts, -1, width), column.expand(parts, width, 1)).view(whole)
    return product if whole == n_out else torch.cat([product, (weight[whole:] @ column).view(-1)])


def product_dtype(x: Tensor) -> torch.dtype:
    """What x is multiplied in: the autocast type, where there is one."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype


def product(a: Tensor, b: Tensor) -> Tensor:
    """a @ b.T without a gradient: [n, k] and [m, k] -> [n, m]."""
    if not _onednn_is_faster(a.numel() * len(b), b, a.dtype):
        return a @ b.t()
    return _onednn(a, b)


def slopes_of_weight(slopes: Tensor, x: Tensor) -> Tensor:
    """slopes.T @ x, the gradient of a weight: [n, out] and [n, in] -> [out, in].

    oneDNN reads the first factor row by row; of the two, the smaller one is turned for it.
    """
    if slopes.dtype != torch.float32 or not _onednn_is_faster(slopes.numel() * x.shape[1], x, x.dtype):
        return slopes.t() @ x
    if slopes.shape[1] < x.shape[1]:
        return _onednn(slopes.t(), x.t())
    return _onednn(x.t(), slopes.t()).t()


def _onednn_is_faster(n_products: int, weight: Tensor, dtype: torch.dtype) -> bool:
    """In bfloat16 oneDNN multiplies under torch's own functions, too, which copy the bias first. In float32 MKL does,
    which has no AVX-512 for processors that are not Intel's: on an EPYC (Zen 5) 200 to 220 GFLOP/s where oneDNN has 400
    to 500.
    """
    if n_products < _SMALL_PRODUCT:
        return False
    if dtype == torch.float32:
        return _mkl_multiplies(weight, dtype)
    runs_here = weight.device.type == "cpu" and not torch.compiler.is_compiling()
    return runs_here and dtype == torch.bfloat16 and weight.dtype != torch.float64


def _mkl_multiplies(weight: Tensor, dtype: torch.dtype) -> bool:
    """Whether MKL would multiply, and slowly."""
    runs_here = weight.device.type == "cpu" and not torch.compiler.is_compiling()
    return runs_here and dtype == torch.float32 and weight.dtype == dtype and _mkl_lags()


@functools.cache
def _mkl_lags() -> bool:
    machine = torch.cpu.get_capabilities()
    return bool(machine.get("avx512_f")) and "Intel" not in str(machine.get("cpu_name"))


def _onednn(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    product: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return product


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
        rows, w = x.to(dtype), weight.to(dtype)
        ctx.save_for_backward(rows, w)
        ctx.dtypes = x.dtype, weight.dtype, None if bias is None else bias.dtype
        return _onednn(rows, w, None if bias is None else bias.to(dtype))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slopes: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        rows, w = ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.dtypes
        slopes = slopes.contiguous()
        d_x = _onednn(slopes, w.t()).to(of_x) if ctx.needs_input_grad[0] else None
        d_weight = slopes_of_weight(slopes, rows).to(of_weight) if ctx.needs_input_grad[1] else None
        d_bias = slopes.sum(0).to(of_bias) if ctx.needs_input_grad[2] else None
        return d_x, d_weight, d_bias, None
