"""What a job costs beside its updates: its start, its batches, the loop around them."""

from __future__ import annotations

import dataclasses
import os
import time
from pathlib import Path

import numpy as np
import torch

from gptcore.base.files import write_json_atomic
from gptcore.config import demo
from gptcore.data.sampler import WindowSampler
from gptcore.data.shards import Shards, write_shards
from tasks.jobs.launch import Records, run_job
from tests.benchmarks.step import ours
from tests.benchmarks.table import Rate, in_turns, line

_VOCABULARY = 2_086
_TOKENS = 4_000_000


def run(seconds: float, folder: Path) -> None:
    """Rows 2, 10 and 11."""
    tokens = np.random.default_rng(0).integers(0, _VOCABULARY, _TOKENS).astype(np.uint16)
    documents = [("book", [tokens[at : at + 100_000]]) for at in range(0, _TOKENS, 100_000)]
    for split in ("train", "validation"):
        chosen = documents if split == "train" else documents[:1]
        write_shards(iter(chosen), folder / split, n_vocab=_VOCABULARY, max_tokens=1 << 24)
    write_json_atomic(folder / "meta.json", {"tokenizer_digest": "bench", "n_vocab": _VOCABULARY})
    _sampler(folder, seconds)
    _job(folder, seconds)


def _sampler(folder: Path, seconds: float) -> None:
    preset = demo()
    sampler = WindowSampler(Shards(folder / "train"), preset.model.n_ctx, 0)
    step = iter(range(1 << 40))

    def batch() -> float:
        return sampler.batch(next(step), 64)[1].size

    line("10", "sampler, 64 windows", in_turns({"ours": batch}, seconds)["ours"], None, "tokens/s", ">= 20 M")


def _job(folder: Path, seconds: float) -> None:
    """A pre-training of the preset demo, started as the pipeline does: its first update, its speed."""
    preset = demo()
    model = dataclasses.replace(preset.model, n_vocab=_VOCABULARY)
    tokens = torch.randint(_VOCABULARY, (preset.pretrain.batch_size, model.n_ctx + 1))
    bare = ours(model, tokens, torch.float32)
    bare()
    starts, speeds, bares = [], [], []
    for turn in range(3):
        bares += in_turns({"bare": bare}, seconds, turns=1)["bare"].turns
        workspace = folder / f"work{turn}"
        settings = {"steps": 100, "batch_size": preset.pretrain.batch_size, "eval_every": 1000, "eval_tokens": 96}
        job = {
            "model": dataclasses.asdict(model),
            "pretrain": {**settings, "warmup_steps": 10, "precision": "float32"},
            "shards": str(folder),
            "tokenizer_digest": "bench",
            "workspace": str(workspace),
            "threads": os.cpu_count(),
        }
        records: Records = []
        began = time.time()
        result = run_job("gptcore.training.pretrain", job, workspace, on_metrics=records.extend)
        starts.append(records[0]["time"] - began)
        speeds.append(result["tokens_per_second"])
    rates = Rate(tuple(speeds)), Rate(tuple(bares))
    line("2", "the job, demo, float32", *rates, "tokens/s", ">= 0.95x", "its update alone")
    line("11", "a job from its start to its first update", Rate(tuple(starts)), None, "s", "< 2.5 s")
