"""`gptmill datasets`: what is read beside what is published, in any layout, and fetching through the command line."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from flows.cli.main import main
from gptcore.nlu import REGISTRY, load_task
from gptcore.nlu.origins import ORIGINS
from gptcore.nlu.registry import BEYOND
from tests.expected import expected
from tests.gptcore import datasets as written
from tests.gptcore.file_server import FileServer, file_server
from tests.gptcore.hub_rows import write_hub
from tests.gptcore.test_fetch import zipped
from tests.gptcore.test_passages import conll, question, squad
from tests.gptcore.tiny_blimp import write_blimp
from tests.realdata import real_data


@pytest.fixture
def server() -> Iterator[FileServer]:
    with file_server() as served:
        yield served


def rows_of(printed: str) -> dict[str, list[str]]:
    """The first table: dataset -> the other cells."""
    table, _, _ = printed.partition("\n\n")
    return {cells[0]: cells[1:] for line in table.splitlines()[1:] if (cells := line.split())}


def test_rows_beside_published_rows_in_either_layout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    public, data = str(tmp_path / "public"), str(tmp_path / "data")
    for task in ("rte", "cola", "race", "storycloze"):
        written.write_task(public if task == "rte" else data, REGISTRY[task], rows=10)
    write_hub(public, REGISTRY["rte"], f"{data}/glue")
    written.write_bytes(f"{data}/CoLA/test.tsv", b"index\tsentence\n0\tFine.\n")
    write_blimp(data, pairs=2)
    passage = "Anna went to the mill."
    asked = [{"context": passage, "qas": [question(number, passage, 0, 4)]} for number in range(4)]
    squad(Path(data), asked)
    conll(Path(data), "Anna NNP I-NP I-PER\n\n" * 4)
    assert main(["datasets", "--datasets", data]) == 0
    printed = capsys.readouterr().out
    rows = rows_of(printed)
    for name, cells in expected(__file__, "test_rows_beside_published_rows_in_either_layout").items():
        assert rows[name] == cells, name
    assert list(rows)[1:] == list(dict.fromkeys([*REGISTRY, *BEYOND, *ORIGINS]))
    assert max(map(len, printed.splitlines())) <= 100
    for origin in ORIGINS.values():
        assert origin.licence in printed
        assert origin.page in printed


def test_a_broken_dataset_is_one_line_in_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for task in ("rte", "cola", "sst2"):
        written.write_task(str(tmp_path), REGISTRY[task], rows=6)
    (tmp_path / "CoLA" / "train.tsv").write_text("one cell\n", encoding="utf-8")
    (tmp_path / "SST-2" / "dev.tsv").unlink()
    assert main(["datasets", "--datasets", str(tmp_path)]) == 2
    printed = capsys.readouterr()
    broken = {line.split()[0]: line for line in printed.out.splitlines() if line.split()[1:2] == ["broken"]}
    assert list(broken) == ["cola", "sst2"]
    assert "CoLA/train.tsv, line 1, number of columns: found 1, expected 4" in broken["cola"]
    assert "SST-2/dev.tsv: found nothing there" in broken["sst2"]
    assert rows_of(printed.out)["rte"][:2] == ["tsv", "6/2,490"]
    assert printed.err.splitlines() == [
        f"gptmill: error: {tmp_path}: cola, sst2 cannot be read; the reasons stand above"
    ]


def test_without_a_folder_and_with_a_wrong_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["datasets"]) == 0
    assert rows_of(capsys.readouterr().out)["mnli"] == ["-", "-/392,702", "-/19,647", "-/19,643*"]
    assert main(["datasets", "--datasets", str(tmp_path / "nowhere")]) == 2
    assert "nowhere: found no such folder" in capsys.readouterr().err


def test_real_test_sets_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("RTE", "WNLI", "diagnostic", "DPRD", "BLiMP"):
        (tmp_path / name).symlink_to(real_data(name))
    assert main(["datasets", "--datasets", str(tmp_path)]) == 0
    rows = rows_of(capsys.readouterr().out)
    assert rows.items() >= expected(__file__, "test_real_test_sets_are_counted").items()


def test_the_list_needs_neither_torch_nor_prefect(tmp_path: Path) -> None:
    written.write_task(str(tmp_path), REGISTRY["rte"], rows=4)
    code = (
        "import sys; from flows.cli.main import main; "
        f"assert main(['datasets', '--datasets', {str(tmp_path)!r}]) == 0; "
        "print(sorted({'torch', 'prefect', 'mlflow', 'spacy', 'requests'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.fixture
def rte(server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """RTE's archive, of generated rows, at the server."""
    written.write_task(str(tmp_path / "rows"), REGISTRY["rte"], rows=6)
    names = ("train.tsv", "dev.tsv")
    archive = zipped({f"RTE/{name}": (tmp_path / "rows" / "RTE" / name).read_bytes() for name in names})
    digest = hashlib.sha256(archive).hexdigest()
    download = replace(ORIGINS["rte"].downloads[0], sha256=digest, size=len(archive))
    monkeypatch.setitem(ORIGINS, "rte", replace(ORIGINS["rte"], downloads=(download,)))
    server.add("RTE.zip", archive)
    return archive


def test_get(server: FileServer, rte: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["datasets", "get", "rte", "--to", str(tmp_path / "data"), "--mirror", server.url]
    assert main(command) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines() == [
        "rte: licence: none stated (https://aclweb.org/aclwiki/Recognizing_Textual_Entailment)",
        f"rte: {tmp_path}/data/RTE: fetched; SHA-256 as expected",
    ]
    told, _, following = printed.err.partition("\n\n")
    assert told == f"RTE.zip: 0.0 of {len(rte) / 1e6:,.1f} MB"
    said = " ".join(following.replace("\\\n", "").split())
    assert said.startswith(f"next: gptmill datasets --datasets {tmp_path}/data ")
    assert load_task("rte", str(tmp_path / "data")) == load_task("rte", str(tmp_path / "rows"))
    assert main(command) == 0
    assert "was there, unchanged since it was fetched" in capsys.readouterr().out
    assert len(server.files["RTE.zip"].asked) == 1


@pytest.mark.usefixtures("rte")
def test_one_that_fails_does_not_keep_the_others(
    server: FileServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["cola", "rte", "storycloze"]
    assert main(["datasets", "get", *names, "--to", str(tmp_path / "data"), "--mirror", server.url]) == 1
    printed = capsys.readouterr()
    assert printed.err.splitlines()[-1] == "gptmill: failed: FetchError: cola: not fetched; the reasons stand above"
    failed = [line for line in printed.err.splitlines() if line.startswith("gptmill: cola: ")]
    assert failed == [f"gptmill: cola: {server.url}/CoLA.zip: found HTTP 404 Not Found, expected the file"]
    assert "storycloze: fill in the authors' form" in printed.out
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == [".origins", "RTE"]


def test_what_has_to_be_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["datasets", "get", "storycloze", "--to", str(tmp_path)]) == 2
    printed = capsys.readouterr()
    assert "http://goo.gl/forms/aQz39sdDrO" in printed.out
    assert printed.err == "gptmill: error: storycloze: has to be asked for; how stands above\n"
    assert main(["datasets", "get", "rte", "--to", "s3://bucket/data"]) == 2
    assert "--to: found 's3://bucket/data', expected a folder on this machine" in capsys.readouterr().err
    assert main(["datasets", "get", "snil", "--to", str(tmp_path)]) == 2
    assert "did you mean snli?" in capsys.readouterr().err


def test_both_commands_explain_themselves(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, words in ((["datasets"], "hf://datasets/nyu-mll/glue"), (["datasets", "get"], "--mirror URL")):
        with pytest.raises(SystemExit) as stopped:
            main([*arguments, "--help"])
        assert stopped.value.code == 0
        assert words in capsys.readouterr().out
