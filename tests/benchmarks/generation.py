"""Greedy text from a network of the paper's size, one sequence and eight, against transformers' generate.

transformers' port of GPT-1 has no cache of keys and values (it takes use_cache and reads the whole text again for each
token), so its port of GPT-2 stands beside it: of the same sizes, with a cache.
"""

from __future__ import annotations

import os

import torch
from transformers import GPT2Config, GPT2LMHeadModel, OpenAIGPTConfig, OpenAIGPTLMHeadModel

from gptcore.config import ModelConfig
from gptcore.models.incremental import open_reader
from gptcore.models.transformer import GPT
from tests.benchmarks.table import Work, in_turns, line

_PROMPT, _NEW = 32, 64  # tokens


def run(seconds: float) -> None:
    """Row 9."""
    torch.set_num_threads(os.cpu_count() or 1)
    config = ModelConfig()
    ours = GPT(config, torch.Generator().manual_seed(0)).eval()
    gpt_1 = OpenAIGPTLMHeadModel(OpenAIGPTConfig()).eval()
    rows = config.n_vocab + config.n_special
    gpt_2 = GPT2LMHeadModel(
        GPT2Config(vocab_size=rows, n_positions=config.n_ctx, bos_token_id=None, eos_token_id=None)
    ).eval()
    for batch, target in ((1, ">= 5x"), (8, ">= 2x")):
        prompts = torch.randint(config.n_vocab, (batch, _PROMPT), generator=torch.Generator().manual_seed(0))
        works = {"ours": _ours(ours, prompts), "gpt-1": _theirs(gpt_1, prompts), "gpt-2": _theirs(gpt_2, prompts)}
        found = in_turns(works, seconds)
        what = "greedy text, paper size, " + ("one sequence" if batch == 1 else f"{batch} sequences")
        line("9", what, found["ours"], found["gpt-1"], "tokens/s", target, "transformers; its GPT-1 has no cache")
        line("9", what, found["ours"], found["gpt-2"], "tokens/s", "", "its GPT-2 of that size, with a cache")


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
