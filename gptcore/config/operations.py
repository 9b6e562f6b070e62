"""Floating-point operations of trainings, from their settings; a network's own settings say what a token takes
(:meth:`gptcore.config.NetworkConfig.flops_per_token`).
"""

from __future__ import annotations

from gptcore.config.network import NetworkConfig
from gptcore.config.training import PretrainConfig


def pretraining_flops(
    model: NetworkConfig, config: PretrainConfig, total_steps: int, steps: float | None = None
) -> float:
    """Operations of a pre-training of ``total_steps`` updates; where a generator is trained, too, those of both.

    Of hidden words only the states at their positions reach the vocabulary. Padding counts as tokens.

    :param steps: of the first so many updates, in which sequences may be shorter; None: of all.
    """
    phases = _phases(model, config, total_steps, total_steps if steps is None else steps)
    return config.batch_size * sum(
        count * length * model.pretraining_flops_per_token(length, config) for count, length in phases
    )


def share_seen(model: NetworkConfig, config: PretrainConfig, total_steps: int, steps: float) -> float:
    """The share of a pre-training's positions that its first updates have read; the first may be shorter."""
    read, whole = (
        sum(count * length for count, length in _phases(model, config, total_steps, some))
        for some in (steps, total_steps)
    )
    return read / whole


def _phases(
    model: NetworkConfig, config: PretrainConfig, total_steps: int, steps: float
) -> tuple[tuple[float, int], ...]:
    """How many of the first updates have short sequences, and how long these are; then the same of whole ones."""
    first_long = round(config.share_of_short * total_steps) if config.short_length is not None else 0
    n_short = min(steps, first_long)
    short = min(config.short_length or model.n_ctx, model.n_ctx)
    return (n_short, short), (steps - n_short, model.n_ctx)


_MANY = 1000  # updates


def operations_of_update(model: NetworkConfig, config: PretrainConfig) -> float:
    """Operations of an update, on the average of many; ``model`` has the vocabulary of its shards."""
    return pretraining_flops(model, config, _MANY) / _MANY


def updates_of(operations: float, model: NetworkConfig, config: PretrainConfig) -> int:
    """The updates, one at least, that come closest to a number of operations; ``model`` as above."""
    return max(1, round(operations / operations_of_update(model, config)))


def teaching_flops(
    model: NetworkConfig, teacher: NetworkConfig, config: PretrainConfig, total_steps: int, soft: bool
) -> float:
    """What a student's pre-training takes beside its own: the teacher's forward pass.

    :param soft: with soft targets, which ask for the product of every position of both with the vocabulary.
    """
    length = config.mean_length(model.n_ctx)
    own = model.flops_per_token(length) - model.flops_per_token(length, model.share_told(config)) if soft else 0.0
    its = teacher.flops_per_token(length, 1.0 if soft else 0.0) / 3
    return config.batch_size * length * total_steps * (own + its)
