"""The command line as a user meets it: exit codes, one clear line for bad input, and nothing half-written."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from flows.cli.main import main
from gptcore.config import ModelConfig
from gptcore.models.transformer import GPT
from gptcore.text.bpe import WordTokenizer
from tests.gptcore.tiny_glue import tokenizer


@pytest.fixture(autouse=True)
def _quiet_prefect(prefect_server: Path) -> None:
    """Every command meets the suite's server."""


def failed_line(capsys: pytest.CaptureFixture[str]) -> str:
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("gptmill: ")]
    assert len(lines) == 1
    return lines[0]


def test_encode_gives_one_list_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = WordTokenizer.train(["the cat sat on the mat ; the cat ran"], 20)
    tokenizer.save(tmp_path)

    def encoded(text: str, *options: str) -> list[list[int]]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        assert main(["encode", "--tokenizer", str(tmp_path), *options]) == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    assert encoded("The cat\nran\n") == [tokenizer.encode("The cat"), tokenizer.encode("ran")]
    assert encoded("The cat\nran\n", "--whole") == [tokenizer.encode("The cat\nran\n")]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"good\nb\xffd\n")))
    assert main(["encode", "--tokenizer", str(tmp_path)]) == 2
    assert "line 2: byte 1 is not UTF-8" in failed_line(capsys)


def test_generate_goes_on_from_a_prompt_or_from_each_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = tokenizer()
    words.save(tmp_path / "words")
    GPT(ModelConfig(n_vocab=words.n_vocab, n_ctx=16, n_layer=1, n_head=2, n_embd=8, n_inner=16)).save(tmp_path / "m")
    command = ["generate", "--model", str(tmp_path / "m"), "--tokenizer", str(tmp_path / "words"), "--max-tokens", "5"]
    assert main([*command, "--seed", "1", "--prompt", "a bird"]) == 0
    alone = capsys.readouterr().out
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"the cat\na bird\n")))
    assert main(command) == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [answer["prompt"] for answer in answers] == ["the cat", "a bird"]
    assert answers[1]["prompt"] + answers[1]["continuation"] + "\n" == alone


def test_the_leaderboard_prints_in_three_forms(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["leaderboard", "--format", "csv"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("suite,kind,split,seeds,average,mnli_m")
    assert any("Finetuned Transformer LM (ours) [published]" in line for line in lines)
    assert main(["leaderboard", "--format", "markdown"]) == 0
    assert "| --- |" in capsys.readouterr().out


def test_a_failure_is_exit_code_one(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise OSError("disk on fire")

    monkeypatch.setattr("flows.servers.stack.control.status", broken)
    assert main(["status"]) == 1
    assert "disk on fire" in failed_line(capsys)


@pytest.mark.parametrize(
    ("error", "where"),
    [
        (OSError(28, "No space left on device", "/store/x"), "the disk of /store/x; free some"),
        (RuntimeError("sqlite3.OperationalError: database or disk is full\n[SQL: INSERT ..."), "the disk; free some"),
        (RuntimeError("job ended with code 1; the end of its log:\n... No space left on device (os error 28)\n"), ""),
    ],
    ids=["a file", "a database", "a job"],
)
def test_a_full_disk_is_said_in_one_line(
    error: Exception, where: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        try:
            raise error
        except Exception:
            raise RuntimeError("a library's own words") from None

    monkeypatch.setattr("flows.servers.stack.control.status", broken)
    assert main(["status"]) == 1
    assert f"no space left on {where}" in failed_line(capsys)


def test_a_server_whose_disk_is_full_is_said_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ConnectionError("error 500")

    monkeypatch.setattr("flows.servers.stack.control.status", broken)
    monkeypatch.setattr("flows.cli.main.shutil.disk_usage", lambda _: SimpleNamespace(free=0))
    assert main(["status"]) == 1
    assert "no space left on the disk of" in failed_line(capsys)


def test_a_reader_that_leaves_early_is_no_failure() -> None:
    command = f"{sys.executable} -m flows.cli.main --help | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=os.environ, check=True)
    assert done.stdout.startswith("usage: gptmill")
    assert done.stderr == ""
