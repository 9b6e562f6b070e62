"""What a preset's models need besides their size to answer from prompts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Examples need room: more positions than the demo's tasks do. A page of the generated web fills them.
PROMPT_SETTINGS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "demo": {
        "tokenizer": {"n_merges": 1500},  # the web's small language has hardly more
        "model": {"n_ctx": 256},
        "pretrain": {"batch_size": 8, "steps": 2400, "warmup_steps": 100, "eval_every": 600, "checkpoint_every": 600},
    },
    "small": {},
    "paper": {},
}
