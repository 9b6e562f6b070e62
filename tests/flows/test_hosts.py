"""A pre-training over several hosts: the manifest that the command writes, and what comes of running its own lines."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from safetensors.torch import load_file

from flows.cli.main import main
from flows.forms.settings import preset_named
from flows.trainings.chain import books_to_shards
from gptcore.base.files import read_json
from gptcore.text.sources import RawCorpus
from tasks.jobs import placement
from tasks.store.store import Store
from tests.flows.world import LANGUAGE
from tests.gptcore.jobs import free_port
from tests.infra.test_manifests import INFRA, VERSIONS, parse
from tests.trials.scenarios import toml

pytestmark = pytest.mark.usefixtures("prefect_server")


@pytest.fixture(scope="module")
def shards(store: str, world: tuple[str, str]) -> str:
    preset = preset_named("demo", {name: LANGUAGE[name] for name in ("corpus", "tokenizer")})
    return books_to_shards(Store(store), RawCorpus.at(world[0]), preset).shards.digest


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    """A file with the settings of a network of width 16."""
    path = tmp_path / "settings.toml"
    path.write_text(toml({name: LANGUAGE[name] for name in ("model", "pretrain")}), encoding="utf-8")
    return path


def template(path: Path, mounted: str, **asked: Any) -> Path:
    """The template that comes along, for pods that ask for something else and mount another folder."""
    service, job = yaml.safe_load_all((INFRA / "kubernetes" / "pretrain-hosts.yaml").read_text(encoding="utf-8"))
    (container,) = job["spec"]["template"]["spec"]["containers"]
    container["volumeMounts"][1]["mountPath"] = mounted
    if asked:
        container["resources"] = {"requests": asked}
    path.write_text(yaml.safe_dump_all([service, job]), encoding="utf-8")
    return path


def command(settings: Path, store: str, shards: str, *more: str) -> list[str]:
    return ["pretrain", "--preset=demo", f"--config={settings}", f"--store={store}", f"--shards={shards}", *more]


def workspaces(store: str) -> set[Path]:
    return set(Path(store, ".work").glob("pretrain/*"))


def test_the_manifest_is_the_trainings_own_and_nothing_is_started(
    store: str, shards: str, settings: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--nproc=16", f"--manifest={template(tmp_path / 'gpus.yaml', store)}"]
    assert main(command(settings, store, shards, *asked)) == 0
    written = capsys.readouterr().out
    service, job = yaml.safe_load_all(written)
    for document in (service, job):
        for version in VERSIONS:
            kubernetes_validate.validate(document, version, strict=True)
    name, pods = job["metadata"]["name"], job["spec"]["template"]
    (workspace,) = workspaces(store)
    assert name == f"gptmill-pretrain-{workspace.name[:12]}" == service["metadata"]["name"]
    assert service["spec"]["selector"] == pods["metadata"]["labels"] == {"app": name}
    assert pods["spec"]["subdomain"] == name
    assert job["spec"]["completionMode"] == "Indexed"
    assert job["spec"]["completions"] == job["spec"]["parallelism"] == 2
    (container,) = pods["spec"]["containers"]
    line = [*container["command"], *container["args"]]
    assert parse(line) == "python"
    said = dict(pairwise(line))
    assert said["--rdzv-endpoint"] == f"{name}-0.{name}:29400"
    assert (said["--nnodes"], said["--nproc-per-node"], said["--rdzv-id"]) == ("2", "8", name)
    assert line[-1] == str(workspace / "JOB.json")
    assert [path.name for path in workspace.iterdir()] == ["JOB.json"]
    assert read_json(workspace / "JOB.json")["threads"] == 4
    assert main(command(settings, store, shards, *asked)) == 0
    assert capsys.readouterr().out == written
    assert main(command(settings, store, shards, "--steps=7", *asked)) == 0
    assert name not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("mounted", "text", "words"),
    [
        ("", None, "--nproc: found 12, expected a multiple of 8"),
        ("/elsewhere", None, "mounts /dev/shm, /elsewhere; expected a volume with the store"),
        ("", "kind: [", "ParserError: while parsing a flow node"),
        ("", "kind: Pod", "KeyError: 'Service'; expected what infra/kubernetes/pretrain-hosts.yaml has"),
        ("", "", "KeyError: 'Service'"),
    ],
)
def test_what_cannot_be_filled_in_is_one_line_and_leaves_nothing(
    mounted: str,
    text: str | None,
    words: str,
    store: str,
    shards: str,
    settings: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = template(tmp_path / "wrong.yaml", mounted or store)
    if text is not None:
        path.write_text(text, encoding="utf-8")
    before = workspaces(store)
    nproc = "--nproc=12" if "--nproc" in words else "--nproc=16"
    assert main(command(settings, store, shards, "--steps=9", nproc, f"--manifest={path}")) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    error = printed.err.splitlines()[-1]
    assert words in error
    assert f"--manifest {path}" in error
    assert workspaces(store) == before


@pytest.mark.slow
def test_hosts_that_run_its_lines_train_what_the_ordinary_command_then_finds(
    store: str,
    shards: str,
    settings: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(placement, "_cores", lambda: 2)  # as two hosts of one have
    other = shutil.copytree(store, tmp_path / "store")
    asked = template(tmp_path / "cpus.yaml", store, cpu="1", memory="1Gi")
    assert main(command(settings, store, shards, "--nproc=2", f"--manifest={asked}")) == 0
    service, job = yaml.safe_load_all(capsys.readouterr().out)
    name = job["metadata"]["name"]
    (container,) = job["spec"]["template"]["spec"]["containers"]
    line = [sys.executable, *container["args"][1:]]
    there = f"{name}-0.{name}:{service['spec']['ports'][0]['port']}"
    line[line.index(there)] = f"127.0.0.1:{free_port()}"
    hosts = [subprocess.Popen(line, env={**os.environ, "OMP_NUM_THREADS": "1"}) for _ in range(2)]
    try:
        assert [host.wait(240) for host in hosts] == [0, 0]
    finally:
        for host in hosts:
            host.kill()

    monkeypatch.setattr(placement, "ChildProcess", None)  # nothing is to be started any more
    assert main(command(settings, store, shards, "--nproc=2")) == 0
    found = capsys.readouterr().out.strip()
    monkeypatch.undo()
    monkeypatch.setattr(placement, "_cores", lambda: 2)
    assert main(command(settings, str(other), shards, "--nproc=2")) == 0
    alone = capsys.readouterr().out.strip()
    assert Path(found).name == Path(alone).name
    mine, its = (load_file(Path(folder, "model", "model.safetensors")) for folder in (found, alone))
    assert all(mine[key].equal(its[key]) for key in its)
    counts, its = (read_json(Path(folder, "manifest.json"))["counts"] for folder in (found, alone))
    for key in ("world_size", "threads", "validation/loss", "train/loss", "steps"):
        assert counts[key] == its[key], key
    assert main(command(settings, store, shards, "--nproc=2", f"--manifest={asked}")) == 2
    assert f"{found} is there" in capsys.readouterr().err
