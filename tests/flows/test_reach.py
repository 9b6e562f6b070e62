"""Both stacks, started for real, and every port of them asked by who may not: nothing is shown, nothing is changed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from flows.servers.credentials import MLFLOW, PREFECT, S3
from flows.servers.stack import s3
from flows.servers.stack.processes import Process, orphans
from tests.flows.test_stack import s3_port
from tests.trials.ports import let_in
from tests.trials.production import Trial
from tests.trials.scenarios import free_ports, wait


@pytest.fixture
def trial(tmp_path: Path, environment: None) -> Iterator[Trial]:
    made = Trial(tmp_path, 0)
    prefect, mlflow, postgres = map(str, free_ports(3))
    made.ports = ["--prefect-port", prefect, "--mlflow-port", mlflow]
    made.ports += ["--postgres-port", postgres, "--s3-port", str(s3_port())]
    yield made
    made.gptmill("down", "--wipe")


def kept(trial: Trial, known: dict[str, str]) -> list[Any]:
    """What the servers hold, asked with the passwords: Prefect's deployments, MLflow's experiments, the bucket."""
    record = trial.record()
    _, _, password = known.get(PREFECT[1], "").partition(":")
    deployments = requests.post(
        f"{record['prefect_url']}/api/deployments/filter", json={}, auth=("admin", password), timeout=60
    ).json()
    experiments = requests.get(
        f"{record['mlflow_url']}/api/2.0/mlflow/experiments/search?max_results=99",
        auth=("admin", known.get(MLFLOW[2], "")),
        timeout=60,
    ).json()
    names = [sorted(each["name"] for each in found) for found in (deployments, experiments["experiments"])]
    if not known:
        return names
    bucket = s3._client(record["layout"]["s3_port"], known[S3[1]], known[S3[2]])
    return [*names, bucket.get_object(Bucket=s3.BUCKET, Key="runs/kept.txt")["Body"].read()]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("full", [False, True], ids=["light", "full"])
def test_no_port_shows_or_does_anything_for_who_may_not(trial: Trial, full: bool) -> None:
    trial.gptmill("up", *(["--full", *trial.ports] if full else trial.ports[:4]))
    known = trial.load_credentials() if full else {}
    if full:
        bucket = s3._client(trial.record()["layout"]["s3_port"], known[S3[1]], known[S3[2]])
        bucket.put_object(Bucket=s3.BUCKET, Key="runs/kept.txt", Body=b"kept" * 2**20)
    before = kept(trial, known)
    sent, wrong = let_in(trial.record()["processes"], passwords=full)
    assert wrong == []
    assert sent > 5000
    assert kept(trial, known) == before
    if full:
        killed: Process = trial.record()["processes"]["s3"]
        os.killpg(killed["pid"], signal.SIGKILL)
        wait(lambda: not orphans(killed), "its end", 20)
        trial.gptmill("up", "--full", *trial.ports)
        assert kept(trial, known) == before
