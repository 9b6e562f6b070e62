"""The trial on a GPU, rehearsed on the CPU as on a bare machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TRIAL = Path(__file__).resolve().parents[2] / "infra/gpu-trial"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_rehearsal_without_orchestrator_tracker_or_cleaners(tmp_path: Path) -> None:
    for name in ("prefect", "mlflow", "spacy", "ftfy"):
        (tmp_path / f"{name}.py").write_text(f"raise ImportError({name!r})\n", encoding="utf-8")
    environment = os.environ | {"PYTHON": sys.executable, "PYTHONPATH": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""}
    command = [TRIAL, tmp_path / "out", "--rehearse", "--minutes", "14"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in (tmp_path / "out/results.jsonl").read_text().splitlines()]
    said = {f"{row['part']}: {row['what']}": row["found"] for row in found}
    assert not [what for what, its in said.items() if its.startswith(("FAILED", "CUT OFF", "LOOK", "OTHER BITS"))]
    assert said["resume: pretrain gpt: once and killed"] == "the same bits"
    assert "updates in" in said["forms: finetune bert squad"]
    assert (tmp_path / "out/table.md").read_text() in done.stdout
