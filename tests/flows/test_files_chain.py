"""Files as people's tools write them: each folder ends as its table says, from `init-task` to MLflow's pyfunc.

One tiny model is pre-trained on the books of one folder, and fine-tuned for two epochs on a file or two of each other
one. The files of two folders hold one table in many spellings, so that one model gives all of them the same answers.
"""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import mlflow
import pandas as pd
import pytest
from starlette.testclient import TestClient

from flows.cli.main import main
from flows.serving.answering import Predictions
from flows.serving.model_server import Answer, application
from gptcore.config import CorpusConfig
from gptcore.evaluation.predict import TaskModel
from gptcore.nlu.own_rows import own_table
from gptcore.nlu.own_task import read_own_task
from gptcore.text.corpus import build_corpus
from gptcore.text.sources import RawCorpus
from gptcore.text.tokenizer import Tokenizer
from tasks.report.leaderboard import Leaderboard
from tasks.store.lineage import model_files
from tasks.store.references import fine_tuned_model
from tasks.store.store import Store
from tasks.tracking.tracker import Tracker
from tests.flows.world import run_pipeline

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.usefixtures("prefect_server")]

FILES = Path(__file__).parents[1] / "public_inputs" / "files"
GENRES = ["Comedy", "Crime", "Drama", "Music", "War"]
MOODS = ["angry", "calm"]
AGAIN = "line 52: found the names of the columns, expected a row; take the line out"
SENTENCES = "04-test-minus-one/train.jsonl"
"""The task whose model answers the rows of the folders that hold rows to predict."""


class End(NamedTuple):
    """How a file ends."""

    file: str
    labels: list[Any]
    """The labels of its task, or the range of its grades; none: it is no task's."""
    told: str
    """What `init-task` says of it, as a regular expression."""
    fields: list[Any] = ["text"]  # noqa: RUF012  # of a tuple
    notes: str = ""
    """What `datasets check` says of its rows."""

    @property
    def name(self) -> str:
        return re.sub("[^a-z0-9]+", "-", f"n{self.file.lower()}")[:32].rstrip("-")


ENDS = [
    End("02-labels-with-pipes/pipe.csv", GENRES, r'separator = "\|"'),
    End("02-labels-with-pipes/hash.csv", GENRES, r'separator = "#"'),
    End("02-labels-with-pipes/comma.csv", GENRES, r'separator = ","'),
    End("02-labels-with-pipes/space.csv", GENRES, r'separator = " "'),
    End("03-endings-list/arc.jsonl", [*"ABCD"], r'choices = "choices.text"', ["question"], r"right: "),
    End("03-endings-list/train.jsonl", [*"0123"], r'choices = "endings"', ["ctx"], r"right: "),
    End(
        SENTENCES,
        [*"012"],
        "# not test.jsonl beside it: labels are missing there, where each row has '-1'",
        ["sentence"],
    ),
    End("05-keys-by-row/rows.jsonl", MOODS, r'dropped_labels = \[""\]', notes="left out of train: 16 with no label"),
    *(End(f"07-header-again/{name}.csv", [], AGAIN) for name in ("same", "bom", "case", "blank")),
    End(
        "08-unnamed-columns/spam.csv",
        ["ham", "spam"],
        'label = "v1"',
        ["v2"],
        "3 columns without a name are empty in all rows, and are not read",
    ),
    End("16-labels/iso639.csv", ["deu", "eng", "nan", "yue"], 'labels = .*"nan"'),
    End("16-labels/decimal.tsv", [1, 5], r"score_range = \[1, 5\] +# grades"),
    End("16-labels/percent.csv", [10, 90], r"score_range = \[10, 90\] +# grades"),
    End("16-labels/inf.jsonl", [], "line 2, column 'score': found Infinity, expected a finite number"),
    End("16-labels/yesno.csv", ["NO", "Yes", "no", "yes"], "'Yes' and 'yes' are classes of their own"),
    End("16-labels/zero.csv", ["01", "1", "2"], "'01' and '1' are classes of their own"),
    End("17-tsv-quotes/all.tsv", MOODS, "162 cells of all.tsv are quoted as programs do it"),
    End("17-tsv-quotes/pandas.tsv", MOODS, "27 cells of pandas.tsv are quoted as programs do it"),
    End("18-files/array.json", MOODS, 'format = "json"'),
    End("18-files/columns.json", MOODS, 'format = "json"'),
    End("18-files/saved", MOODS, 'test = "saved/test"'),
    *(End(f"18-files/{name}", MOODS, 'format = "csv"') for name in ("sep.csv", "u16.csv", "bz.csv.bz2")),
    End("18-files/comment.csv", [], "line 1: found '# exported 2024', a comment, expected the names of the columns"),
    End("18-files/zip.csv.zip", [], "found a zip archive, or an Excel workbook, .*; unpack it"),
    End("19-empty-title/train.csv", [*"01"], "# not test.csv beside it: labels are missing", [("title", "text")]),
    End(
        "19-empty-title/pair.csv",
        [*"01"],
        'form = "pair"',
        ["question1", "question2"],
        "1 of 16 dev rows have an empty text, which is read as it is",
    ),
    End(
        "19b-qqp/QQP/train.tsv",
        [*"01"],
        'form = "pair"',
        ["question1", "question2"],
        "1 of 40 train rows have an empty text, which is read as it is",
    ),
]
CORPORA = {
    "10-corpus-endings/books": {"read": 58, "kept": 58},
    "13-corpus-parquet/null": {"read": 11, "kept": 10, "null": 1},
    **{f"13-corpus-parquet/{kind}": {"read": 10, "kept": 10} for kind in ("binary", "dict", "large", "string_view")},
}
"""A folder of books -> how many documents are read, kept, and left out for being null."""
ASKED = {
    "15-predict-tables/empty.csv": {1: "column 'sentence': found '', expected text that is not empty"},
    "15-predict-tables/nan.parquet": {},
    "21-long-texts/long.jsonl": dict.fromkeys((1, 2), "32 of [0-9,]+ tokens were read"),
}
"""A table of rows to predict -> the numbers of those with a note, and what it says."""
TASKS = [end for end in ENDS if end.labels]
SAME = "18-files/saved"
"""The file that others of its folder, and of the one with quotes, hold the rows of."""
TRAINED = {
    *("02-labels-with-pipes/pipe.csv", "03-endings-list/arc.jsonl", SENTENCES, "19-empty-title/train.csv"),
    *("05-keys-by-row/rows.jsonl", "08-unnamed-columns/spam.csv", "16-labels/iso639.csv", "16-labels/decimal.tsv"),
    *("17-tsv-quotes/all.tsv", SAME, "19b-qqp/QQP/train.tsv"),
}
"""Tasks that a model is fine-tuned on: one of each folder, and of each form."""


def test_the_table_and_these_ends_have_the_same_folders() -> None:
    table = (FILES / "README.md").read_text(encoding="utf-8").splitlines()
    rows = [line.split("|")[1].split(",") for line in table if re.match(r"\| \d", line)]
    there = {file.partition("/")[0] for file in (*(end.file for end in ENDS), *CORPORA, *ASKED)}
    folders = {path.name for path in FILES.iterdir() if path.is_dir()}
    assert there == folders
    assert {f"{name.strip()}" for row in rows for name in row} == folders


def run(*arguments: str) -> tuple[int, str]:
    """The code of a command, and all that it prints."""
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(out):
        return main([*arguments]), out.getvalue()


class Chain(NamedTuple):
    """What has become of the files."""

    folder: Path
    store: str
    said: dict[str, tuple[int, str]]
    """File -> how `init-task` ended, and what it said."""
    board: Leaderboard

    def task(self, end: End) -> str:
        return str((self.folder / end.file).with_name(f"{end.name}.toml"))

    def model(self, end: End) -> TaskModel:
        files, words = model_files(fine_tuned_model(Store(self.store), "latest", end.name))
        return TaskModel(files, Tokenizer.load(str(words)))

    def predicted(self, end: End, rows: str, out: str) -> tuple[list[dict[str, Any]], str]:
        """The answers that `predict` writes of rows, and what it says."""
        path = self.folder / out
        code, said = run("predict", end.name, rows, "--store", self.store, "--model", "latest", "--out", str(path))
        assert code == 0, said
        with path.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file) if out.endswith(".csv") else map(strict_json, file)), said


def strict_json(line: str) -> Any:
    """JSON without the NaN that only Python reads."""
    return json.loads(line, parse_constant=lambda name: pytest.fail(f"found {name} in {line}"))


@pytest.fixture(scope="module")
def chain(prefect_server: Path, store: str, tmp_path_factory: pytest.TempPathFactory) -> Chain:
    folder = tmp_path_factory.mktemp("chain") / "files"
    shutil.copytree(FILES, folder)
    said = {}
    for end in ENDS:
        task = (folder / end.file).with_name(f"{end.name}.toml")
        said[end.file] = run("init-task", str(folder / end.file), "--name", end.name, "--out", str(task))
        if end.labels:
            task.write_text(
                re.sub(r"(?m)^small.epochs = \d+", "small.epochs = 2", task.read_text(encoding="utf-8")),
                encoding="utf-8",
            )
    tasks = [str((folder / end.file).with_name(f"{end.name}.toml")) for end in TASKS if end.file in TRAINED]
    world = str(folder / "10-corpus-endings/books"), str(folder)
    board = run_pipeline(world, store, tasks=tasks, jobs=2)
    return Chain(folder, store, said, board)


@pytest.mark.parametrize("end", [end for end in ENDS if not end.labels], ids=lambda end: end.file)
def test_what_is_no_task_is_refused_in_one_line_and_nothing_is_written(end: End, chain: Chain) -> None:
    code, said = chain.said[end.file]
    assert code == 2, said
    assert re.fullmatch(rf"gptmill: error: .*{Path(end.file).name}.* found .*, expected .*\n", said), said
    assert re.search(end.told, said), said
    assert not Path(chain.task(end)).exists()


@pytest.mark.parametrize("end", TASKS, ids=lambda end: end.file)
def test_a_task_ends_as_its_table_says(end: End, chain: Chain) -> None:
    code, said = chain.said[end.file]
    assert code == 0, said
    assert re.search(end.told, said), said
    spec = read_own_task(chain.task(end)).spec
    assert (list(spec.score_range or spec.labels), list(spec.fields)) == (end.labels, end.fields)
    code, checked = run("datasets", "check", chain.task(end))
    assert code == 0, checked
    assert re.search(end.notes, checked), checked
    rows = spec.address("", spec.splits["train"][0].path)
    if end.file not in TRAINED:
        if end.file.partition("/")[0] in ("17-tsv-quotes", "18-files"):
            (same,) = (other for other in ENDS if other.file == SAME)
            found, expected = (
                chain.predicted(same, path, f"{number}-{end.name}.jsonl")[0]
                for number, path in enumerate((rows, str(chain.folder / SAME / "train")))
            )
            assert found == expected
        return
    assert end.name in {task for row in chain.board.rows if row.kind == "ours" for task in row.percent}

    model = chain.model(end)
    given = [dict(row.columns) for row in own_table(model.spec, rows)]
    answers, _ = chain.predicted(end, rows, f"{end.name}.jsonl")
    beside, _ = chain.predicted(end, rows, f"{end.name}.csv")
    assert len(answers) == len(beside) == len(given)
    assert [{name: answer[name] for name in row} for answer, row in zip(answers, given, strict=True)] == given

    with TestClient(application(Predictions(model), {"task": end.name}), base_url="http://127.0.0.1") as client:
        body = Answer(given[:9]).body
        served = client.post("/predict", content=body, headers={"content-type": "application/json"})
        assert served.status_code == 200, served.text
        assert client.get("/").status_code == 200
    mlflow.set_tracking_uri(Tracker().uri)
    found = mlflow.pyfunc.load_model(f"models:/gptmill-{end.name}@champion").predict(pd.DataFrame(given[:9]))
    for answer, one, other in zip(answers, served.json(), found.to_dict("records"), strict=False):
        told = one.get("labels", one.get("label", one.get("score")))
        told = json.dumps(told, ensure_ascii=False) if isinstance(told, list) else told
        assert answer["prediction"] == told == other.get("labels", other.get("label", other.get("score")))


@pytest.mark.parametrize(("file", "notes"), ASKED.items(), ids=ASKED)
def test_rows_to_predict_are_answered_but_for_those_with_a_reason(
    file: str, notes: dict[int, str], chain: Chain
) -> None:
    (end,) = (end for end in ENDS if end.file == SENTENCES)
    answers, said = chain.predicted(end, str(chain.folder / file), f"asked-{Path(file).name}.jsonl")
    for number, answer in enumerate(answers):
        assert re.search(notes.get(number, "^$"), answer.get("note", "")), answer
        assert (answer["prediction"] is None) == ("expected" in notes.get(number, ""))
        assert answer.get("nan") is None
    blank = sum("expected" in note for note in notes.values())
    assert not blank or f"{len(answers)} rows: {blank} not answered" in said
    cut = len(notes) - blank
    assert not cut or f"{cut} too long, of which on average" in said


@pytest.mark.parametrize(("folder", "counts"), CORPORA.items(), ids=CORPORA)
def test_books_are_read_and_those_that_are_left_out_counted(
    folder: str, counts: dict[str, int], chain: Chain, tmp_path: Path
) -> None:
    corpus = RawCorpus.at(str(FILES / folder))
    config = CorpusConfig(min_characters=10, validation_fraction=0.3)
    found = build_corpus(corpus, tmp_path, config, progress=lambda *_: None)["documents"]
    assert {name: found.get(name, found["dropped"].get(name)) for name in counts} == counts
    assert (corpus.passed_over, found["read"]) == ({}, found["kept"] + sum(found["dropped"].values()))
    if "books" in folder:  # which the model of all tasks here was pre-trained on
        store = Store(chain.store)
        assert store.manifest(store.resolve("latest", "corpus"))["counts"]["documents"]["read"] == counts["read"]
