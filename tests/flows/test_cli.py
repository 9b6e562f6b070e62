"""The command line as a user meets it: exit codes, one clear line for bad input, and nothing half-written."""

from __future__ import annotations

import io
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import fsspec
import pytest

from flows.cli.main import main
from flows.upkeep import garbage
from gptcore.base.filesystems import ANSWERED
from gptcore.config import ModelConfig
from gptcore.models.transformer import GPT
from gptcore.text.bpe import WordTokenizer
from tasks import stages
from tasks.stages.partitions import CORPUS_PART, SHARDS_PART
from tasks.store.artifact import Artifact
from tasks.store.garbage import Referred
from tasks.store.store import Store
from tests.gptcore.tiny_glue import tokenizer
from tests.tasks.stores import forget
from tests.tasks.test_garbage import make


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


def breaking(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Let `gptmill status` fail."""

    def broken(*_: object) -> None:
        raise error

    monkeypatch.setattr("flows.servers.stack.control.status", broken)


def test_a_failure_is_exit_code_one(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    breaking(monkeypatch, OSError("disk on fire"))
    assert main(["status"]) == 1
    assert "disk on fire" in failed_line(capsys)


@pytest.mark.parametrize(
    ("error", "where"),
    [
        (OSError(28, "No space left on device", "/store/x"), "the disk of /store/x ("),
        (RuntimeError("sqlite3.OperationalError: database or disk is full\n[SQL: INSERT ..."), "the disk; free some"),
        (RuntimeError("job ended with code 1; the end of its log:\n... No space left on device (os error 28)\n"), ""),
        (OSError(122, "Disk quota exceeded", "/store/x"), "the disk quota of /store/x; free some"),
        (OSError(30, "Read-only file system", "/store/x"), "read-only file system of /store/x; mount it writable"),
        (
            RuntimeError("sqlite3.OperationalError: attempt to write a readonly database"),
            "read-only file system; mount",
        ),
    ],
    ids=["a file", "a database", "a job", "quota", "read-only", "a read-only database"],
)
def test_a_disk_that_takes_no_more_is_said_in_one_line(
    error: Exception, where: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = RuntimeError("a library's own words")
    words.__context__ = error
    breaking(monkeypatch, words)
    assert main(["status"]) == 1
    said = failed_line(capsys)
    assert where in said
    assert "same command goes on from here" in said


def test_a_server_whose_disk_is_full_is_said_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    breaking(monkeypatch, ConnectionError("error 500"))
    monkeypatch.setattr("gptcore.base.files.shutil.disk_usage", lambda _: SimpleNamespace(free=0))
    assert main(["status"]) == 1
    assert "no space left on the disk of" in failed_line(capsys)


def test_a_terminal_gets_a_long_error_on_lines_that_end_at_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for width, terminal in ((80, True), (100, True), (80, False)):
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setattr(sys.stderr, "isatty", lambda terminal=terminal: terminal)
        assert main(["datasets", "check", "nosuch"]) == 2
        lines = capsys.readouterr().err.splitlines()
        assert (max(map(len, lines)) <= width) == terminal
        assert " ".join(line.strip() for line in lines).endswith("openentity, boolq, multirc, wsc")


def test_a_reader_that_leaves_early_is_no_failure() -> None:
    command = f"{sys.executable} -m flows.cli --help | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=os.environ, check=True)
    assert done.stdout.startswith("usage: gptmill")
    assert done.stderr == ""


# --- `gptmill gc`: a list, a confirmation, and refusals


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Store, Artifact, Artifact]:
    """A store with a model that a row refers to and one that nothing refers to, and a tracker that says so."""
    monkeypatch.setenv("GPTMILL_HOME", str(tmp_path / "home"))
    store = Store(tmp_path / "store")
    loved, unloved = make(store, "pretrain", "loved"), make(store, "pretrain", "unloved")
    forget()
    known = Referred({loved.digest: "rows"}, {loved.digest, unloved.digest})
    monkeypatch.setattr(garbage, "referred", lambda _: known)
    return store, loved, unloved


def gc(store: Store, *options: str) -> int:
    return main(["gc", "--store", store.url, *options])


def test_nothing_goes_before_somebody_says_so(
    stored: tuple[Store, Artifact, Artifact], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, loved, unloved = stored
    assert gc(store) == 0
    assert "nothing to delete" in capsys.readouterr().out  # both are young
    assert gc(store, "--older-than", "0") == 0
    said = capsys.readouterr().out
    lines = [line.split() for line in said.splitlines()]
    assert ["pretrain", "rows"] in [[line[0], line[-2]] for line in lines if len(line) > 2]
    assert ["pretrain", unloved.digest[:12]] in [line[:2] for line in lines]
    assert "nothing was deleted; gptmill gc --yes deletes these" in said
    for typed, left in (("no\n", 2), ("\n", 2), ("delete\n", 1)):
        terminal = io.StringIO(typed)
        terminal.isatty = lambda: True  # type: ignore[method-assign]
        monkeypatch.setattr("sys.stdin", terminal)
        assert gc(store, "--older-than", "0") == 0
        assert len(store.list("pretrain")) == left
    assert "deleted: 1, " in capsys.readouterr().out
    assert store.list("pretrain") == [loved]


def test_the_forms_forget_what_is_gone(
    stored: tuple[Store, Artifact, Artifact], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Store] = []
    monkeypatch.setattr("flows.forms.choices.list_checkpoints", told.append)
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:1/api")
    assert gc(stored[0], "--yes", "--older-than", "0") == 0
    assert [listed.url for listed in told] == [stored[0].url]
    assert gc(stored[0], "--yes", "--older-than", "0") == 0
    assert len(told) == 1


def test_a_tracker_of_another_store_empties_nothing(
    stored: tuple[Store, Artifact, Artifact], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = stored[0]
    monkeypatch.setattr(garbage, "referred", lambda _: Referred({"0" * 64: "rows"}, {"0" * 64}))
    assert gc(store, "--yes", "--older-than", "0") == 2
    said = capsys.readouterr()
    assert said.err.count("\n") == 1
    assert "has heard of none of its 2 artifacts" in said.err
    assert len(store.list("pretrain")) == 2
    assert gc(store, "--yes", "--older-than", "0", "--all-unreferenced") == 0
    assert store.list("pretrain") == []


def test_a_row_that_comes_while_the_word_is_typed_counts(
    stored: tuple[Store, Artifact, Artifact], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, loved, unloved = stored

    def typed(_: object) -> bool:
        named = {loved.digest: "rows", unloved.digest: "rows"}
        monkeypatch.setattr(garbage, "referred", lambda _: Referred(named, set(named)))
        return True

    monkeypatch.setattr(garbage, "_typed", typed)
    assert gc(store, "--older-than", "0") == 0
    assert len(store.list("pretrain")) == 2


def test_every_stage_is_known() -> None:
    layer = Path(stages.__path__[0]).parent
    files = [path for room in ("stages", "papers") for path in (layer / room).rglob("*.py")]
    sources = [path.read_text(encoding="utf-8") for path in files]
    named = {name for text in sources for name in re.findall(r"(?:Recipe|recipe_of)\(\s*\"([a-z-]+)\"", text)}
    assert named == set(garbage.STAGES) - {CORPUS_PART, SHARDS_PART}
    assert set(garbage._MEASURES) | set(garbage._TRACKED) <= named


@pytest.mark.parametrize("hours", ["-1", "nan", "inf", "1e12"])
def test_an_age_that_is_none_is_refused(hours: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gc", "--store", str(tmp_path), "--older-than", hours]) == 2
    assert f"--older-than: found {float(hours):g}, expected hours, 0 to 1,000,000" in capsys.readouterr().err


def test_an_age_of_a_hundred_years_keeps_everything(stored: tuple[Store, Artifact, Artifact]) -> None:
    assert gc(stored[0], "--yes", "--older-than", "1e6") == 0
    assert len(stored[0].list("pretrain")) == 2


def test_an_unreadable_manifest_is_named(
    stored: tuple[Store, Artifact, Artifact], capsys: pytest.CaptureFixture[str]
) -> None:
    store, _, unloved = stored
    manifest = Path(unloved.url) / "manifest.json"
    manifest.write_text("{", encoding="utf-8")
    os.utime(manifest, (time.time() - 9, time.time() - 9))
    assert gc(store, "--yes", "--older-than", "0") == 0
    assert f"{unloved.url}: kept, with all that it may have been made from: unreadable" in capsys.readouterr().out
    assert manifest.exists()


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No connection of another test, and none is left to one."""

    def forget_connections() -> None:
        ANSWERED.clear()
        fsspec.get_filesystem_class("s3").clear_instance_cache()

    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setattr("gptcore.base.filesystems._ANSWER_SECONDS", 0.1)
    forget_connections()
    yield
    forget_connections()


@pytest.mark.usefixtures("stored", "s3")
def test_an_object_store_that_cannot_be_used_is_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections, and never answers
        for server, message in {
            "http://127.0.0.1:9": "the S3 server http://127.0.0.1:9 does not answer",
            f"http://127.0.0.1:{silent.getsockname()[1]}": "does not answer; check AWS_ENDPOINT_URL",
            "garbage": "cannot be used (Invalid endpoint: garbage); check AWS_ENDPOINT_URL",
        }.items():
            monkeypatch.setenv("AWS_ENDPOINT_URL", server)
            fsspec.get_filesystem_class("s3").clear_instance_cache()
            assert main(["gc", "--store", "s3://b/runs"]) == 2
            said = capsys.readouterr().err
            assert message in said
            assert said.count("\n") == 1


def test_verify_names_what_is_damaged_and_the_command_that_makes_it_again(
    stored: tuple[Store, Artifact, Artifact], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, model, _ = stored
    assert main(["verify", "--store", store.url]) == 0
    assert re.search(r"^\d+ artifacts read, ", capsys.readouterr().out)
    file = next(path for path in Path(model.url).rglob("*") if path.is_file() and path.name != "manifest.json")
    file.write_bytes(bytes(byte ^ 1 for byte in file.read_bytes()))
    assert main(["verify", "--store", store.url]) == 1
    said = capsys.readouterr()
    assert said.out.startswith(f"{model.stage}/{model.digest}: {file.relative_to(model.url)} has the SHA-256 ")
    assert "`gptmill verify --repair` sets them aside" in said.err
    assert main(["verify", "--store", store.url, "--repair"]) == 0
    assert "made again by `gptmill " in capsys.readouterr().out
    assert store.find(model.stage, model.digest) is None
    home = Path(os.environ["GPTMILL_HOME"])
    monkeypatch.setenv("GPTMILL_HOME", str(home / "damaged"))
    (home / "damaged").mkdir(parents=True)
    (home / "damaged" / "mlflow.db").write_bytes(b"no database" * 100)
    assert main(["verify", "--store", store.url]) == 1
    assert "mlflow.db: file is not a database" in capsys.readouterr().out
