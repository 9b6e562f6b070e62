"""Adam with decoupled weight decay on all non bias or gain weights (section 4.1), alone or beside Muon; their rates.

A schedule is a function from the number of updates already made to a factor of the maximum rate.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Muon

from gptcore.base.errors import require
from gptcore.config import FinetuneConfig, TrainingConfig
from gptcore.machine.distributed import placed_like
from gptcore.models.classifier import Classifier
from gptcore.models.products import Linear

_NARROW = 16  # rows or columns, below which a matrix has no directions to balance


@dataclass(frozen=True)
class Rated:
    """Parameters that have a learning rate of their own."""

    factor: float
    """The learning rate of the parameters as a share of the scheduled one."""
    parameters: Sequence[nn.Parameter]


class _Adam(AdamW):
    """torch's own, called without what it wraps around these methods to keep its compiler out of them.

    That imports the compiler first: a quarter of the time that a short job takes to start. Nothing here is compiled.
    """

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters, as any optimiser does."""
        _inside(torch.optim.Optimizer.add_param_group)(self, param_group)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # no closure is ever used
        """Update the parameters by their gradients."""
        _inside(torch.optim.Adam.step)(self)


def _inside(method: Callable[..., Any]) -> Callable[..., Any]:
    """What a decorator was put around."""
    return getattr(method, "__wrapped__", method)


def adam(model: nn.Module, settings: TrainingConfig, rates: Sequence[Rated] | None = None) -> AdamW:
    """The optimiser for ``model``: parameters of more than one dimension decay, embeddings and positions included.

    The decay of an update is lr * weight_decay * p, scheduled with the rate (original code; Loshchilov and Hutter
    leave the unscheduled rate out of it). Gradients of embeddings are dense, so rows that a batch does not
    contain decay too (original code). torch's fused kernel: on two CPU cores 3 times faster than its loop.

    ``settings.original`` and ``settings.uncorrected`` add what else released ones do, see :func:`set_lr`.

    :param rates: every parameter of ``model`` once, the first at the full rate, which is the one that is logged; None:
        all at that rate.
    """
    groups, released = [], settings.original or settings.uncorrected
    for rated in [Rated(1.0, list(model.parameters()))] if rates is None else rates:
        parameters = [parameter for parameter in rated.parameters if parameter.requires_grad]
        decaying, others = [p for p in parameters if p.ndim > 1], [p for p in parameters if p.ndim <= 1]
        groups += [
            {
                "params": chosen,
                "factor": rated.factor,
                "weight_decay": decay,
                "released": (settings.epsilon, decay, settings.uncorrected) if released else None,
            }
            for chosen, decay in ((decaying, settings.weight_decay), (others, 0.0))
            if chosen
        ]
    return _Adam(
        groups,
        lr=settings.lr,
        betas=(settings.beta1, settings.beta2),
        eps=settings.epsilon,
        weight_decay=0.0,
        fused=True,
    )


class AdamAndMuon(torch.optim.Optimizer):
    """Two of torch's optimisers, each with parameters of its own, as one: of one rate and one state.

    :param fused: parameters that are several matrices, one below the other -> those of ``muon`` that stand for these;
        the state is that of the whole.
    """

    def __init__(self, adam: AdamW, muon: Muon, fused: Mapping[nn.Parameter, Sequence[nn.Parameter]]) -> None:
        # What torch's own __init__ sets up is there twice already.
        self._parts, self._fused = (adam, muon), fused
        self.param_groups = [*adam.param_groups, *muon.param_groups]
        self.state = muon.state = adam.state

    def step(self, closure: None = None) -> None:  # type: ignore[override]  # no closure is ever used
        """Update the parameters of both by their gradients."""
        for whole, matrices in self._fused.items():
            assert whole.grad is not None, "each of them is trained"
            kept = self.state[whole] = self.state[whole] or {"momentum_buffer": torch.zeros_like(whole)}
            sizes = [len(matrix) for matrix in matrices]
            rows = (each.split(sizes) for each in (whole.data, whole.grad, kept["momentum_buffer"]))
            for matrix, values, gradient, momentum in zip(matrices, *rows, strict=True):
                matrix.data, matrix.grad, self.state[matrix] = values, gradient, {"momentum_buffer": momentum}
        for part in self._parts:
            part.step()
        for matrix in itertools.chain.from_iterable(self._fused.values()):
            matrix.grad = None  # whose memory is the whole's


def adam_and_muon(model: nn.Module, settings: TrainingConfig) -> AdamAndMuon:
    """Muon (Jordan et al. 2024) for the matrices inside the network, :func:`adam` for everything else.

    The momentum of a matrix, made orthogonal, is its step, so that no few directions outweigh the others. Its size
    is that of Adam's steps (0.2 times the root of the longer side; Liu et al. 2025), so that both have one rate.
    Embeddings, positions, norms, biases and narrow matrices, such as the head of two classes, are Adam's. Queries, keys
    and values are three matrices, though the network keeps them as one (as in the author's own runs).
    """
    inside = {
        id(parameter)
        for part in model.modules()
        if isinstance(part, nn.Linear | nn.RNNBase)
        for parameter in part.parameters(recurse=False)
        if parameter.ndim == 2 and min(parameter.shape) >= _NARROW
    }
    inside -= {id(part.weight) for part in model.modules() if isinstance(part, nn.Embedding)}  # a tied head
    mine = [p for p in model.parameters() if id(p) in inside and p.requires_grad]
    others = [p for p in model.parameters() if id(p) not in inside]
    joined = {part.weight: part.matrices for part in model.modules() if isinstance(part, Linear) and part.matrices}
    sizes = {p: [*joined[p]] for p in mine if p in joined}
    fused = {p: [nn.Parameter(rows) for rows in torch.split(p.data, sizes[p])] for p in sizes}
    group = {"params": [matrix for p in mine for matrix in fused.get(p, [p])], "factor": 1.0, "released": None}
    muon = Muon([group], lr=settings.lr, weight_decay=settings.weight_decay, adjust_lr_fn="match_rms_adamw")
    return AdamAndMuon(adam(model, settings, [Rated(1.0, others)]), muon, fused)


def set_lr(optimizer: torch.optim.Optimizer, lr: float, updates_made: int) -> None:
    """Use ``lr``, times a group's own factor, for the next update in every parameter group.

    The released Adam of GPT-1 (original code) takes the step

        r = lr * sqrt(1 - beta2^t) / (1 - beta1^t),    p <- p - r * m / (sqrt(v) + epsilon) - r * weight_decay * p

    so epsilon meets the uncorrected sqrt(v), and the decay carries the bias correction. torch's step is the same with
    epsilon / sqrt(1 - beta2^t) in the place of epsilon and weight_decay * r / lr in that of the decay. That of BERT and
    ELECTRA (original code) corrects nothing, r = lr: torch's with lr * lr / r in the place of lr, besides.
    """
    for group in optimizer.param_groups:
        group["lr"] = lr * group["factor"]
        if group.get("released"):
            epsilon, weight_decay, uncorrected = group["released"]
            beta1, beta2 = group["betas"]
            root = math.sqrt(1.0 - beta2 ** (updates_made + 1))
            group["eps"] = epsilon / root
            group["weight_decay"] = weight_decay * root / (1.0 - beta1 ** (updates_made + 1))
            if uncorrected:
                group["lr"] *= (1.0 - beta1 ** (updates_made + 1)) / root


def optimizer_tensors(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """The optimiser's state as flat named tensors, e.g. "tokens.weight/exp_avg"; empty before the first update."""
    return {
        f"{name}/{key}": value
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Put back what :func:`optimizer_tensors` gave, where each parameter is."""
    parameters = dict(model.named_parameters())
    optimizer.state.clear()
    for path, value in tensors.items():
        name, key = path.rsplit("/", 1)
        parameter = parameters[name]
        optimizer.state[parameter][key] = placed_like(parameter, value)


def rates_by_depth(model: Classifier, config: FinetuneConfig) -> list[Rated] | None:
    """Each parameter's share of the learning rate, the linear layer's first; None where all have one rate.

    Rates fall from layer to layer, the linear layer's being the highest (ELECTRA, appendix A). A fine-tuned network of
    blocks 1 to L at the rate r with decay d:

        linear layer   r
        pooler         r * d               where there is one
        block l        r * d^(L + 1 - l)   one power more under a pooler
        embeddings     r * d^(L + 1)       one power more under a pooler

    The released code leaves the pooler's power in where the pooler is gone (original code), so that the last block of
    ELECTRA has r * d^2; ``layer_decay_original`` does so, too.
    """
    if config.layer_decay is None:
        return None
    depths = model.network.parameters_by_depth()
    found = f"finetune.layer_decay = {config.layer_decay}: found a network whose layers are not told apart"
    require(len(depths) > 1, f"{found}, expected none")
    below = {parameter for depth in depths for parameter in depth}
    head = Rated(1.0, [parameter for parameter in model.parameters() if parameter not in below])
    left_out = int(config.layer_decay_original and not model.network.pools)
    powers = enumerate(reversed(depths), start=1 + left_out)
    return [head, *(Rated(config.layer_decay**power, depth) for power, depth in powers)]


Schedule = Callable[[int], float]


def warmup_cosine(warmup_steps: int, total_steps: int) -> Schedule:
    """Pre-training (section 4.1): linear from zero over ``warmup_steps`` updates, then a cosine down to 0."""

    def factor(step: int) -> float:
        if step < warmup_steps:
            return step / warmup_steps
        progress = (step - warmup_steps) / max(1, total_steps - warmup_steps)
        return 0.5 * (1.0 + math.cos(math.pi * min(1.0, progress)))

    return factor


def warmup_steps_linear(warmup_steps: int, total_steps: int) -> Schedule:
    """Pre-training of BERT (appendix A.2): linear from zero over ``warmup_steps`` updates, then linear decay.

    The decay is counted from the first update of all, so that the rate steps down where the warm-up ends (original
    code); at the last update it is all but 0.
    """
    return lambda step: step / warmup_steps if step < warmup_steps else max(0.0, 1.0 - step / total_steps)


def pretraining_schedule(decay: str | None, warmup_steps: int, total_steps: int) -> Schedule:
    """The schedule that the setting `pretrain.decay` names; None: the cosine."""
    if decay == "linear-product":
        return warmup_linear(warmup_steps / total_steps, total_steps)
    if decay == "constant":
        return warmup_constant(warmup_steps)
    return (warmup_steps_linear if decay == "linear" else warmup_cosine)(warmup_steps, total_steps)


def warmup_constant(warmup_steps: float) -> Schedule:
    """All trainings of ERNIE (original code): linear from zero over ``warmup_steps`` updates, then all of the rate."""
    return lambda step: min(1.0, step / warmup_steps) if warmup_steps else 1.0


def warmup_linear(warmup: float, total_steps: int) -> Schedule:
    """Fine-tuning (section 4.1), and all trainings of ELECTRA: linear warm-up over a share, then linear decay.

    s(x) = (x / warmup if x <= warmup else 1) * (1 - x) with x the share of updates already made (original code),
    so the two ramps multiply and the first update of all has the rate 0.
    """

    def factor(step: int) -> float:
        x = step / total_steps
        return (x / warmup if warmup > 0 and x <= warmup else 1.0) * (1.0 - x)

    return factor


def finetuning_schedule(config: FinetuneConfig, n_layer_steps: int, total_steps: int) -> Schedule:
    """Fine-tuning as its settings say, behind as many updates at a rate of their own in which layers are learnt."""
    warmup, rest = config.warmup, max(1, total_steps - n_layer_steps)
    after = warmup_steps_linear(int(warmup * rest), rest) if config.decay == "linear" else warmup_linear(warmup, rest)
    if config.decay == "constant":
        after = warmup_constant(warmup * rest)
    layers = warmup_constant(warmup * n_layer_steps)

    def factor(step: int) -> float:
        if step >= n_layer_steps:
            return after(step - n_layer_steps)
        return layers(step) if config.layer_lr is None else config.layer_lr / config.lr

    return factor
