"""Floating-point operations of trainings, from their settings alone: nothing here imports torch.

6 for each weight of a matrix product and token, forward and backward, as in "Scaling Laws for Neural Language Models"
(Kaplan et al. 2020, section 2.1), and those of the attention's two products. Look-ups, norms and what is done once a
sequence are left out.
"""

from __future__ import annotations

from gptcore.config.network import (
    GENERATOR_SHARE,
    EncoderConfig,
    LSTMConfig,
    ModelConfig,
    NetworkConfig,
    generator_config,
)
from gptcore.config.training import PretrainConfig

MASK_SHARE = 0.15
"""Of the positions, which are told in pre-training on hidden words (BERT, section 3.1)."""


def network_flops(model: NetworkConfig, n_positions: float, told: float = 1.0) -> float:
    """Operations of one trained token in a sequence of ``n_positions``.

    :param told: the share of the positions whose states reach the product with the vocabulary.
    """
    D, rows = model.n_embd, model.n_vocab + model.n_special
    if isinstance(model, LSTMConfig):  # the length makes no difference
        return 6.0 * (4 * model.n_units * (D + model.n_units) + model.n_units * D + told * rows * D)
    if isinstance(model, ModelConfig):
        weights = model.n_layer * (4 * D**2 + 2 * D * model.n_inner) + told * rows * D
        return 6.0 * weights + 12.0 * model.n_layer * n_positions * D
    if isinstance(model, EncoderConfig):
        E = model.width_of_words
        weights = float(model.n_layer * (4 * D**2 + 2 * D * model.n_inner))  # however many layers share them
        weights += E * D if model.n_embd_words is not None else 0
        weights += D * (D + 1) if model.replaced else 0
        weights += told * E * (D + rows) if model.words else 0
        return 6.0 * weights + 12.0 * model.n_layer * n_positions * D
    return 6.0 * (told * rows * D + 12 * model.layers * D**2)  # another package's: blocks as a Transformer's


def pretraining_flops(
    model: NetworkConfig, config: PretrainConfig, total_steps: int, steps: float | None = None
) -> float:
    """Operations of a pre-training of ``total_steps`` updates; where a generator is trained, too, those of both.

    Of hidden words only the states at their positions reach the vocabulary. Padding counts as tokens.

    :param steps: of the first so many updates, in which sequences may be shorter; None: of all.
    """
    phases = _phases(model, config, total_steps, total_steps if steps is None else steps)
    return config.batch_size * sum(count * length * _of_token(model, config, length) for count, length in phases)


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
    """Of the first updates how many have short sequences, and of which length; then the same of whole ones."""
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
    told = (MASK_SHARE if config.mask_share is None else config.mask_share) if isinstance(model, EncoderConfig) else 1.0
    own = network_flops(model, length) - network_flops(model, length, told) if soft else 0.0
    its = network_flops(teacher, length, 1.0 if soft else 0.0) / 3
    return config.batch_size * length * total_steps * (own + its)


def _of_token(model: NetworkConfig, config: PretrainConfig, n_positions: int) -> float:
    """Operations of one token in a sequence of a length."""
    told = MASK_SHARE if config.mask_share is None else config.mask_share
    if not isinstance(model, EncoderConfig):
        hidden = config.hidden_share or 0.0
        return network_flops(model, n_positions, 1 - hidden + hidden * told)
    objective = config.replaced_objective
    flops = network_flops(model, n_positions, 1.0 if objective == "all-tokens-mlm" else told)
    if model.replaced or objective is not None:
        flops += network_flops(generator_config(model, config.generator_share or GENERATOR_SHARE), n_positions, told)
    return flops
