"""A flipped bit, a file cut short: refused by its name or stepped over, never computed with."""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.trials.chaos.fixture import JOBS, LIMIT_SECONDS, Fixture, come_to, end_all
from tests.trials.scenarios import Trial

_CHECKPOINTS = ".work/pretrain/*/checkpoints/step-*"


@dataclass(frozen=True)
class Wound:
    """What is damaged, and who would read it next."""

    what: str
    pattern: str
    """Files of the store; one of them is drawn."""
    first: str
    """The stage that reads it: what comes before it is in the store."""
    cut: bool = False
    """Cut the file in half; else flip one bit of it."""


WOUNDS = (
    Wound("corpus, a bit", "corpus/*/train/*.arrow", "tokenizer"),
    Wound("corpus, a bit, for the shards", "corpus/*/train/*.arrow", "shards"),
    Wound("tokenizer, a bit", "tokenizer/*/merges.txt", "dataset"),
    Wound("task's rows, a bit", "dataset/*/train.arrow", "finetune"),
    Wound("shard, a bit", "shards/*/train/*.arrow", "pretrain"),
    Wound("shard, a bit, for the n-grams", "shards/*/train/*.arrow", "ngrams"),
    Wound("shard, cut", "shards/*/train/*.arrow", "pretrain", cut=True),
    Wound("model, a bit", "pretrain/*/model/model.safetensors", "finetune"),
    Wound("model, cut", "pretrain/*/model/model.safetensors", "finetune", cut=True),
)
"""Of finished artifacts."""
CHECKPOINTS = (
    Wound("newest checkpoint's weights, a bit", f"{_CHECKPOINTS}/model.safetensors", "pretrain"),
    Wound("newest checkpoint's moments, cut", f"{_CHECKPOINTS}/optimizer.safetensors", "pretrain", cut=True),
    Wound("newest checkpoint's state, a bit", f"{_CHECKPOINTS}/state.json", "pretrain"),
    Wound("newest checkpoint's manifest, cut", f"{_CHECKPOINTS}/manifest.json", "pretrain", cut=True),
)
"""Of a training that was killed."""


def wound_artifact(fixture: Fixture, name: str, wound: Wound, seed: str) -> tuple[str, list[str]]:
    """Damage a finished artifact: made again, or refused in one line that names it; deleted as told, all is well."""
    trial = fixture.trial(name, wound.first)
    victim = _damage(trial, wound, seed)
    code = trial.start().wait(LIMIT_SECONDS)
    if code == 0:
        return "made again", fixture.faults(trial)
    said = (trial.folder / "err.txt").read_text(encoding="utf-8", errors="replace").rstrip().splitlines()
    artifact = Path(*victim.parts[: victim.parts.index("store") + 3])
    faults = []
    if code != 2 or str(artifact) not in said[-1] or len([line for line in said if "gptmill:" in line]) != 1:
        faults.append(f"exit code {code}, and not one line that names {artifact}: {said[-8:]}")
    shutil.rmtree(artifact)
    if again := trial.start().wait(LIMIT_SECONDS):
        return "refused", [*faults, f"without it the same command ended with exit code {again}"]
    return "refused, deleted, made again", [*faults, *fixture.faults(trial)]


def wound_checkpoint(fixture: Fixture, name: str, wound: Wound, seed: str) -> tuple[str, list[str]]:
    """Kill a training that has two checkpoints and damage the newer one: it goes on from the older."""
    trial = fixture.trial(name, wound.first)
    process = trial.start()
    if not come_to(trial, process, wound.first, job=True, more=lambda: len(trial.stored(_CHECKPOINTS)) >= 2):
        return "never met", ["ended before its second checkpoint"]
    os.kill(process.pid, signal.SIGKILL)
    for pid, words in trial.processes().items():
        if any(job in words for job in JOBS):
            os.kill(pid, signal.SIGKILL)  # before it can write another one
    end_all(trial)
    process.wait()
    _damage(trial, wound, seed)
    if again := trial.start().wait(LIMIT_SECONDS):
        return "refused", [f"the same command ended with exit code {again}"]
    [log] = trial.stored("pretrain/*/log.txt")
    stepped = "is skipped" in log.read_text(encoding="utf-8")
    faults = [] if stepped else ["the log does not say that a checkpoint was skipped"]
    return "went on from the one before", [*faults, *fixture.faults(trial)]


def _damage(trial: Trial, wound: Wound, seed: str) -> Path:
    """Flip a bit, or cut, in the newest (by name) of the files that are meant."""
    draws = random.Random(f"{seed}/{wound.what}")
    victim = max(trial.stored(wound.pattern))
    data = bytearray(victim.read_bytes())
    if wound.cut:
        victim.write_bytes(data[: len(data) // 2])
    else:
        data[draws.randrange(len(data))] ^= 1 << draws.randrange(8)
        victim.write_bytes(data)
    return victim


TRIALS: dict[str, tuple[tuple[Wound, ...], Callable[[Fixture, str, Wound, str], tuple[str, list[str]]]]] = {
    "damaged artifact": (WOUNDS, wound_artifact),
    "damaged checkpoint": (CHECKPOINTS, wound_checkpoint),
}
"""Kind -> what is damaged, and the trial."""
