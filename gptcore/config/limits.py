"""What the settings of a network and of a training have to be for either to make sense."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gptcore.base.errors import InputError

PAIRS = ("none", "nsp", "sop")
"""What the second of two segments is: it goes on with the first; with p 1/2 a random one (next-sentence prediction);
with p 1/2 swapped with the first (sentence-order prediction)."""
DECAYS = ("cosine", "linear")
OPTIMIZERS = ("adam", "muon")
REPLACED_OBJECTIVES = ("electra", "electra-15", "replace-mlm", "all-tokens-mlm")
"""ELECTRA and the controls that explain what it gains (section 3.4)."""
SHORTEST = 8  # tokens of a sequence of two segments: below, there is no room for both and a word to hide
LONGEST_NGRAM = 16
PRECISIONS = ("auto", "float32", "bfloat16")
LARGEST_SIZE = (1 << 24) - 1  # of a network; the bytes of a tensor with two such sides still fit 63 bits


def require_sizes(config: Any, positive: Sequence[str], others: Sequence[str]) -> None:
    """Refuse sizes that no network has, and rates that are none.

    :raises InputError: naming the first.
    """
    for name in (*positive, *others):
        if not (least := int(name in positive)) <= (found := getattr(config, name)) <= LARGEST_SIZE:
            raise InputError(f"model.{name} = {found}: expected {least} to {LARGEST_SIZE}")
    for name in ("embd_pdrop", "attn_pdrop", "resid_pdrop"):
        if not 0 <= (rate := getattr(config, name, 0.0)) < 1:
            raise InputError(f"model.{name} = {rate}: expected 0 or more, and less than 1")
    if not 0 <= config.init_std < math.inf:
        raise InputError(f"model.init_std = {config.init_std}: expected a finite number, 0 or more")


_TRAINING_LIMITS = {
    "lr": math.inf,
    "warmup_steps": math.inf,
    "warmup": 1,
    "beta1": 1,
    "beta2": 1,
    "epsilon": math.inf,
    "weight_decay": math.inf,
    "lm_coef": math.inf,
    "clf_pdrop": 1,
}
"""Settings of a training, none of them below 0 -> what they are less than."""
_TRAINING_COUNTS = {
    "batch_size": 1,
    "micro_batch_size": 1,
    "accumulation": 1,
    "block_size": 2,
    "steps": 1,
    "eval_every": 1,
    "eval_tokens": 1,
    "eval_blocks": 1,
    "evaluations": 1,
    "checkpoint_every": 1,
    "keep_checkpoints": 1,
    "max_train_rows": 1,
    "max_eval_rows": 1,
    "n_transfer": -1,
    "snapshot": 1,
    "layer_epochs": 1,
    "augmentation": 1,
    "repeating_steps": 1,
}
"""Whole numbers among the settings of a training -> the least that makes sense, where they are not None."""


def require_training(config: Any, section: str) -> None:
    """Refuse settings under which no training makes sense.

    :raises InputError: naming the first.
    """
    for name in ("lr", "epochs", "clip_norm"):
        if not (value := getattr(config, name)) > 0:
            raise InputError(f"{section}.{name} = {value}: expected more than 0")
    for name, below in _TRAINING_LIMITS.items():
        if not 0 <= (value := getattr(config, name, 0)) < below:
            bound = f", and less than {below:g}" if below < math.inf else ""
            raise InputError(f"{section}.{name} = {value}: expected 0 or more{bound}")
    for name, least in _TRAINING_COUNTS.items():
        if (count := getattr(config, name, None)) is not None and count < least:
            raise InputError(f"{section}.{name} = {count}: expected {least} or more")
    for name, known in (("decay", DECAYS), ("optimizer", OPTIMIZERS)):
        if (value := getattr(config, name, None)) is not None and value not in known:
            raise InputError(f"{section}.{name} = {value!r}: expected one of {', '.join(known)}")
    if config.precision not in PRECISIONS:
        raise InputError(f"{section}.precision = {config.precision!r}: expected one of {', '.join(PRECISIONS)}")


def require_objective(config: Any) -> None:
    """Refuse settings of what pre-training learns under which nothing is learnt.

    :raises InputError: naming the first.
    """
    bounds: dict[str, tuple[float, float]] = {
        "short_length": (SHORTEST, LARGEST_SIZE),
        "mask_ngrams": (1, LONGEST_NGRAM),
        "mask_copies": (1, LARGEST_SIZE),
        "replaced_weight": (0, 1e6),
        "entity_weight": (0, 1e6),
    }
    for name, (least, most) in bounds.items():
        if (value := getattr(config, name)) is not None and not least <= value <= most:
            raise InputError(f"pretrain.{name} = {value}: expected {least:g} to {most:g}")
    for name in ("mask_share", "short_share", "hidden_share", "repeating_share"):
        if (value := getattr(config, name)) is not None and not 0 < value < 1:
            raise InputError(f"pretrain.{name} = {value}: expected more than 0, and less than 1")
    for name, known in (("pairs", PAIRS), ("replaced_objective", REPLACED_OBJECTIVES)):
        if (value := getattr(config, name)) is not None and value not in known:
            raise InputError(f"pretrain.{name} = {value!r}: expected one of {', '.join(known)}")
    if config.short_share is not None and config.short_length is None:
        raise InputError(f"pretrain.short_share = {config.short_share} without pretrain.short_length, expected both")
