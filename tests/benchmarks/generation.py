"""Greedy text from a network of the paper's size, one sequence and eight, against transformers' generate.

transformers' port of GPT-1 has no cache of keys and values (it takes use_cache and reads the whole text again for each
token), so its port of GPT-2 stands beside it: of the same sizes, with a cache.
"""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel, OpenAIGPTConfig, OpenAIGPTLMHeadModel

from gptcore.config import ModelConfig
from gptcore.models.incremental import open_reader
from gptcore.models.transformer import GPT
from tests.benchmarks.table import Work, beside

_PROMPT, _NEW = 32, 64  # tokens


def run(seconds: float, _folder: Path) -> None:
    """Row 9."""
    config = ModelConfig()
    ours = GPT(config, torch.Generator().manual_seed(0)).eval()
    gpt_1 = OpenAIGPTLMHeadModel(OpenAIGPTConfig()).eval()
    rows = config.n_vocab + config.n_special
    gpt_2 = GPT2LMHeadModel(
        GPT2Config(vocab_size=rows, n_positions=config.n_ctx, bos_token_id=None, eos_token_id=None)
    ).eval()
    for batch, target in ((1, ">= 5x"), (8, ">= 2x")):
        prompts = torch.randint(config.n_vocab, (batch, _PROMPT), generator=torch.Generator().manual_seed(0))
        what = "greedy text, paper size, " + ("one sequence" if batch == 1 else f"{batch} sequences")
        without = (_theirs(gpt_1, prompts), target, "transformers; its GPT-1 has no cache")
        cached = (_theirs(gpt_2, prompts), ">= 1.3x", "its GPT-2 of that size, with a cache")
        beside("9", what, "tokens/s", seconds, _ours(ours, prompts), without, cached)


def _ours(model: GPT, prompts: torch.Tensor) -> Work:
    @torch.inference_mode()
    def read() -> float:
        reader = open_reader(model, len(prompts))
        logits = reader.feed(prompts.tolist())
        for _ in range(_NEW - 1):
            logits = reader.feed(logits.argmax(dim=-1, keepdim=True).tolist())
        return len(prompts) * _NEW

    return read


def _theirs(model: OpenAIGPTLMHeadModel | GPT2LMHeadModel, prompts: torch.Tensor) -> Work:
    def read() -> float:
        model.generate(prompts, max_new_tokens=_NEW, min_new_tokens=_NEW, do_sample=False, use_cache=True)
        return prompts.shape[0] * _NEW

    return read
