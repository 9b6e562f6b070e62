"""One thread, for the same bits on any machine; and pre-training jobs on shards of a small language."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from gptcore.machine import process
from gptcore.training import pretrain
from tests.gptcore.jobs import MODEL, N_VOCAB, SETTINGS, Job, JobFor, write_language


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shards")
    write_language(folder, {"train": 40, "validation": 6}, 90)
    (folder / "meta.json").write_text(json.dumps({"tokenizer_digest": "d1", "n_vocab": N_VOCAB}))
    return folder


@pytest.fixture(scope="module")
def job_for(shards: Path) -> JobFor:
    def make(workspace: Path, **changes: Any) -> Job:
        return {
            "model": dataclasses.asdict(MODEL),
            "pretrain": dataclasses.asdict(dataclasses.replace(SETTINGS, **changes)),
            "shards": str(shards),
            "tokenizer_digest": "d1",
            "workspace": str(workspace),
            "threads": 1,
        }

    return make


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory, job_for: JobFor) -> Path:
    """A workspace whose run was never stopped, nor compiled."""
    workspace = tmp_path_factory.mktemp("straight")
    pretrain.run(job_for(workspace), process.StopRequest())
    return workspace
