"""Learning rates that fall from layer to layer, the linear layer's being the highest (ELECTRA, appendix A).

A fine-tuned network of blocks 1 to L at the rate r with decay d:

    linear layer   r
    pooler         r * d               where there is one
    block l        r * d^(L + 1 - l)   one power more under a pooler
    embeddings     r * d^(L + 1)       one power more under a pooler

The released code leaves the pooler's power in where the pooler is gone (original code), so that the last block of
ELECTRA has r * d^2; ``layer_decay_original`` does so, too.
"""

from __future__ import annotations

from gptcore.config import FinetuneConfig
from gptcore.models.classifier import Classifier
from gptcore.training.optim import Rated


def rates_by_depth(model: Classifier, config: FinetuneConfig) -> list[Rated] | None:
    """Each parameter's share of the learning rate, the linear layer's first; None where all have one rate."""
    if config.layer_decay is None:
        return None
    depths = model.network.parameters_by_depth()
    below = {parameter for depth in depths for parameter in depth}
    rates = [Rated(1.0, [parameter for parameter in model.parameters() if parameter not in below])]
    left_out = int(config.layer_decay_original and not model.network.pools)
    for power, depth in enumerate(reversed(depths), start=1 + left_out):
        rates.append(Rated(config.layer_decay**power, depth))
    return rates
