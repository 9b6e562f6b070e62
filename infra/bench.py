"""`make bench`: what this machine does a second, on generated (synthetic) text.

    python -m infra.bench [--seconds 5]

Cleaning and encoding run on one core, training on all. Machines are noisy: compare numbers of one run only.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from gptcore.config import ModelConfig, PretrainConfig, demo, small
from gptcore.losses import fused_language_model_loss
from gptcore.models.transformer import GPT
from gptcore.storyworld.write import generate
from gptcore.text.bpe import Tokenizer
from gptcore.text.clean import clean
from gptcore.training.device import autocast, pick_device
from gptcore.training.optim import adam


def rate(work: Callable[[], float], seconds: float) -> float:
    """Units a second of ``work``, which returns the units it did; the first call warms up and does not count."""
    work()
    done, start = 0.0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        done += work()
    return done / (time.perf_counter() - start)


def training(model: ModelConfig, batch: int, dtype: torch.dtype) -> Callable[[], float]:
    """One pre-training update (forward, backward, clip, Adam) a call; its units are tokens."""
    device = pick_device(0)
    network = GPT(model, torch.Generator().manual_seed(0)).to(device)
    optimizer = adam(network, PretrainConfig(lr=1e-4))
    draws = torch.Generator().manual_seed(1)
    tokens = torch.randint(model.n_vocab, (batch, model.n_ctx + 1), generator=draws).to(device)

    def update() -> float:
        with autocast(device, dtype):
            loss = fused_language_model_loss(network.hidden(tokens[:, :-1]), network.tokens.weight, tokens[:, 1:])
        loss.backward()  # type: ignore[no-untyped-call]  # torch's own annotation is missing
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return batch * model.n_ctx

    return update


def main() -> None:
    """Print one line a measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="length of each measurement (%(default)s)")
    seconds = parser.parse_args().seconds
    torch.set_num_threads(os.cpu_count() or 1)
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder) / "world", seed=1, books=4, characters=60_000)
        texts = [path.read_text(encoding="utf-8") for path in sorted((Path(folder) / "world" / "books").iterdir())]
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    cleaned = [clean(text) for text in texts]
    tokenizer = Tokenizer.train(cleaned, 2000)

    def clean_all() -> float:
        for text in texts:
            clean(text)
        return megabytes

    def encode_all() -> float:
        for text in cleaned:
            tokenizer.encode_clean(text)
        return megabytes

    print(f"clean             {rate(clean_all, seconds):10.1f} MB/s, one core, words seen before")
    print(f"encode            {rate(encode_all, seconds):10.1f} MB/s, one core, words seen before")
    for preset in (demo(), small()):
        model = dataclasses.replace(preset.model, n_vocab=preset.tokenizer.n_merges)
        for dtype in (torch.float32, torch.bfloat16):
            speed = rate(training(model, preset.pretrain.batch_size, dtype), seconds)
            shape = f"n_layer {model.n_layer}, n_embd {model.n_embd}, V {model.n_vocab}"
            print(f"train {preset.name:<5} {str(dtype)[6:]:<9}{speed:8,.0f} tokens/s, {shape}")


if __name__ == "__main__":
    main()
