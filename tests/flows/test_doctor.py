"""What `gptmill doctor` says of a machine, and of one that lacks what ours has."""

from __future__ import annotations

import socket
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from flows.cli.main import main
from flows.servers.environment import PORTS


def told(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, list[str]]:
    """The exit code, and the lines."""
    try:
        code = main(["doctor", *options])
    except SystemExit as ended:
        code = int(ended.code or 0)
    return code, capsys.readouterr().out.splitlines()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPTMILL_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_machine_that_has_what_the_core_needs_is_fine(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = told(capsys, "--store", str(home / "runs"))
    assert code == 0
    assert {line.split()[0] for line in lines} <= {"ok", "without"}
    for words in (
        "Python 3",
        "with all that it needs",
        "torch 2",
        "a GPU",
        "a compiler",
        "home, ",
        "runs, ",
        "port 4200",
    ):
        assert sum(words in line for line in lines) >= 1, words
    assert len(lines) >= 9
    assert not (home / "runs").exists()


@pytest.mark.parametrize("place", ["state", "store"])
def test_a_place_that_is_no_folder_has_its_line(
    place: str, home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "file").write_text("a", encoding="utf-8")
    if place == "state":
        monkeypatch.setenv("GPTMILL_HOME", str(home / "file" / "home"))
    code, lines = told(capsys, *(["--store", str(home / "file")] if place == "store" else []))
    (line,) = (line for line in lines if line.startswith("MISSING"))
    assert line.split()[1:3] == [place, f"{home / 'file'}{'/home' if place == 'state' else ''},"]
    assert "which is no folder that can be written; name another place by" in line
    assert (code, len(lines) >= 9) == (1, True)


def test_each_thing_that_is_lacking_has_its_line_and_remedy(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No GPU, no compiler, a full disk, taken ports, an extra that is not installed, a package that is too old."""
    former = metadata.version
    versions = {"onnxruntime": None, "torch": "1.0"}

    def version(name: str) -> str:
        if (found := versions.get(name, former(name))) is None:
            raise metadata.PackageNotFoundError(name)
        return found

    monkeypatch.setattr("flows.cli.doctor.version", version)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.setattr("gptcore.base.files.shutil.disk_usage", lambda _: SimpleNamespace(free=1_000_000))
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setitem(PORTS, "mlflow", taken.getsockname()[1])
        code, lines = told(capsys)
    assert code == 1
    for start, words, remedy in (
        ("MISSING", "which needs torch>=2", "pip install --upgrade gptmill"),
        ("without", "the extra onnx: onnxruntime>=", "pip install 'gptmill[onnx]'"),
        ("without", "a GPU: there is none", "demo and small"),
        ("without", "a compiler (g++): long trainings take longer", "install g++"),
        ("MISSING", f"state {home}/home, 0.0 GB free", "free some"),
        ("MISSING", "store runs/demo, 0.0 GB free", "--store"),
        ("without", "for mlflow is taken", "gptmill up --mlflow-port PORT"),
    ):
        (line,) = (line for line in lines if words in line)
        assert line.startswith(start)
        assert remedy in line.partition(";")[2]


def test_a_gpu_that_torch_does_not_see_and_a_store_that_does_not_answer(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("shutil.which", lambda name: f"/bin/{name}")
    code, lines = told(capsys, "--store", "http://127.0.0.1:9/runs")
    assert code == 1
    assert any("there is a driver, but torch sees none; install torch's build for CUDA" in line for line in lines)
    (line,) = (line for line in lines if line.startswith("MISSING"))
    assert "store http://127.0.0.1:9/runs, which does not answer" in line


def test_a_gpu_is_named_with_its_memory(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda including_emulation=True: True)
    properties = SimpleNamespace(name="H200", total_memory=140e9)
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda _: properties)
    _, lines = told(capsys)
    assert "ok       GPU 1: H200, 140 GB" in lines
    assert any("trains in bfloat16" in line for line in lines)
    assert not any("a GPU:" in line for line in lines)
