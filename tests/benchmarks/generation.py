"""Greedy text from a network of the paper's size, against transformers' generate with its cache."""

from __future__ import annotations

import os

import torch
from transformers import OpenAIGPTConfig, OpenAIGPTLMHeadModel

from gptcore.config import ModelConfig
from gptcore.models.incremental import open_reader
from gptcore.models.transformer import GPT
from tests.benchmarks.table import in_turns, line

_PROMPT, _NEW = 32, 64  # tokens


def run(seconds: float) -> None:
    """Row 9, one sequence."""
    torch.set_num_threads(os.cpu_count() or 1)
    config = ModelConfig()
    ours = GPT(config, torch.Generator().manual_seed(0)).eval()
    theirs = OpenAIGPTLMHeadModel(OpenAIGPTConfig()).eval()
    prompt = torch.randint(config.n_vocab, (1, _PROMPT), generator=torch.Generator().manual_seed(0))

    @torch.inference_mode()
    def read() -> float:
        reader = open_reader(ours)
        logits = reader.feed(prompt[0].tolist())
        for _ in range(_NEW - 1):
            logits = reader.feed([int(logits.argmax())])
        return _NEW

    def plain() -> float:
        theirs.generate(prompt, max_new_tokens=_NEW, min_new_tokens=_NEW, do_sample=False, use_cache=True)
        return _NEW

    found = in_turns({"ours": read, "plain": plain}, seconds)
    line(
        "9", "greedy text, paper size, one sequence", found["ours"], found["plain"], "tokens/s", ">= 5x", "transformers"
    )
