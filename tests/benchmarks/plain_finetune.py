"""A plain script around transformers that fine-tunes a folder by the recipe of the preset `imported`: what ours is
beside (documentation, "A pre-trained encoder").

    python -m tests.benchmarks.plain_finetune FOLDER DATASETS rte,mrpc,stsb,cola

Mean of the last states, dropout, a linear layer; batches of 32, padded to their longest; AdamW at 1e-4 that rises for a
tenth of the updates and falls to 0; five epochs, of which the one is kept that is best on a tenth of the training rows;
bfloat16 by autocast. Prints the score of each epoch on these rows, and the dev score of the best one.
"""

from __future__ import annotations

import argparse
import copy
import random
import time
from collections.abc import Iterator, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AutoModel, AutoTokenizer, get_linear_schedule_with_warmup

from gptcore.nlu.metrics import score
from gptcore.nlu.readers import Example, load_task
from gptcore.nlu.registry import task_spec
from gptcore.nlu.spec import TaskSpec

_EPOCHS, _BATCH, _RATE = 5, 32, 1e-4


class Plain(nn.Module):
    """The trunk of a folder, and a linear layer over the mean of its states."""

    def __init__(self, folder: str, n_outputs: int) -> None:
        super().__init__()
        self.trunk = AutoModel.from_pretrained(folder)
        self.drop, self.head = nn.Dropout(0.1), nn.Linear(self.trunk.config.hidden_size, n_outputs)

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        states, mask = self.trunk(**batch)[0], batch["attention_mask"][..., None]
        logits: Tensor = self.head(self.drop((states * mask).sum(1) / mask.sum(1)))
        return logits.float()


def fine_tuned(folder: str, spec: TaskSpec, train: Sequence[Example], dev: Sequence[Example], seed: int) -> float:
    """The dev score x 100 of the epoch that is best on held-out rows."""
    torch.manual_seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = Plain(folder, len(spec.labels) or 1)
    rows = random.Random(seed).sample(list(train), len(train))
    held_out, learnt = rows[: len(rows) // 10], rows[len(rows) // 10 :]
    optimiser = torch.optim.AdamW(model.parameters(), lr=_RATE, weight_decay=0.01, fused=True)
    updates = _EPOCHS * -(-len(learnt) // _BATCH)
    schedule = get_linear_schedule_with_warmup(optimiser, updates // 10, updates)

    def batches(of: Sequence[Example]) -> Iterator[tuple[Tensor, Tensor]]:
        for start in range(0, len(of), _BATCH):
            part = of[start : start + _BATCH]
            texts = ([row.fields[at] for row in part] for at in range(len(part[0].fields)))
            batch = tokenizer(*texts, padding=True, truncation=True, return_tensors="pt")
            with torch.autocast("cpu", torch.bfloat16):
                yield model(batch), torch.tensor([row.label for row in part], dtype=torch.float64)

    def scored(of: Sequence[Example]) -> float:
        model.eval()
        with torch.no_grad():
            answers = [
                answer
                for logits, _ in batches(of)
                for answer in (logits.argmax(1) if spec.labels else logits[:, 0]).tolist()
            ]
        model.train()
        return 100 * score(spec, answers, [row.label for row in of])["score"]

    best, kept = -np.inf, copy.deepcopy(model.state_dict())
    for epoch in range(1, _EPOCHS + 1):
        for logits, labels in batches(random.Random(seed + epoch).sample(learnt, len(learnt))):
            loss = F.cross_entropy(logits, labels.long()) if spec.labels else F.mse_loss(logits[:, 0], labels.float())
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            schedule.step()
            optimiser.zero_grad()
        reached = scored(held_out)
        print(f"{spec.name}: epoch {epoch}, held-out rows {reached:.1f}", flush=True)
        if reached > best:
            best, kept = reached, copy.deepcopy(model.state_dict())
    model.load_state_dict(kept)
    return scored(dev)


def main() -> None:
    """Fine-tune on each task, one after the other."""
    parser = argparse.ArgumentParser(description="A plain script that fine-tunes a folder of transformers'.")
    parser.add_argument("folder")
    parser.add_argument("datasets")
    parser.add_argument("tasks")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for name in options.tasks.split(","):
        began, rows = time.monotonic(), [load_task(name, options.datasets, split=split) for split in ("train", "dev")]
        reached = fine_tuned(options.folder, task_spec(name), *rows, options.seed)
        print(f"{name}: dev {reached:.1f}, {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
