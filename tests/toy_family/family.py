"""A family of another package, of Llama's kind (Touvron et al. 2023; grouped heads: Ainslie et al. 2023).

Its settings know no torch, so that forms and plans of sweeps cost none; its network is :mod:`tests.toy_family.llama`.
"""

from __future__ import annotations

from dataclasses import dataclass

from gptcore.base.errors import InputError
from gptcore.base.settings import derived, size
from gptcore.config.network import TransformerConfig
from gptcore.families import Family

FAMILY = Family(
    "toyllama",
    "ToyLlama",
    "lower-case English",
    config="tests.toy_family.family:LlamaConfig",
    network="tests.toy_family.llama:Llama",
    objective="tests.toy_family.next_two:NEXT_TWO",
    objective_settings=(),
    inputs="tests.toy_family.next_two:LastWords",
    presets={"demo": {"model": {"n_head_keys": 1}}},
    tokenizer_recorded={},  # GPT-1's kind, whose tokenizers it shares
)


@dataclass(frozen=True)
class LlamaConfig(TransformerConfig):
    """A decoder's, whose heads share keys and values in groups."""

    n_head_keys: int = size(4)
    """How many heads of keys and values there are, each of which several heads of queries share."""
    family: str = derived("toyllama")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_head % self.n_head_keys:
            raise InputError(
                f"model.n_head = {self.n_head} is not a multiple of model.n_head_keys = {self.n_head_keys}"
            )
