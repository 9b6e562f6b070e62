"""Encoded datasets: the same ids back, counts, fingerprints, and what reading them does not need."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from gptcore.base.errors import InputError
from gptcore.base.files import read_json
from gptcore.nlu import REGISTRY, load_task
from gptcore.nlu.encoded import dataset_fingerprint, encode_task, encoded_splits, read_encoded
from gptcore.nlu.examples import Annotation, Example
from gptcore.nlu.findings import Findings
from gptcore.nlu.registry import TaskSpec, task_spec
from gptcore.text.sources import find_sources
from tests.expected import expected
from tests.gptcore import datasets as written
from tests.gptcore.hub_rows import SHAPES, write_hub, write_table
from tests.gptcore.hub_server import hub_server


class Bytes:
    """A tokenizer whose ids are UTF-8 bytes, plus an offset that needs more than 16 bits on demand."""

    def __init__(self, offset: int = 0) -> None:
        self.offset, self.n_vocab, self.digest = offset, 256 + offset, hashlib.sha256(bytes(offset % 7)).hexdigest()
        self.encoded = Counter[str]()

    specials = None

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        self.encoded.update(texts)
        return [[byte + self.offset for byte in text.encode()] for text in texts]

    def decode(self, ids: np.ndarray) -> str:
        return bytes((ids - self.offset).tolist()).decode()


@pytest.mark.parametrize("task", REGISTRY)
def test_every_row_comes_back(task: str, tmp_path: Path) -> None:
    spec, root, tokenizer = REGISTRY[task], str(tmp_path / "data"), Bytes()
    written.write_task(root, spec, rows=12)
    report = encode_task(task_spec(task), root, tokenizer, tmp_path / "out")
    assert report == read_json(tmp_path / "out" / "meta.json")
    assert encoded_splits(tmp_path / "out") == list(spec.splits)
    for split in spec.splits:
        examples, found = load_task(task, root, split), read_encoded(tmp_path / "out", split)
        assert len(found) == len(examples) == report["splits"][split]["rows"]
        assert report["splits"][split]["published"] == spec.published_rows(split)
        for example, encoded in zip(examples, found, strict=True):
            assert tuple(tokenizer.decode(part) for part in encoded.fields) == example.fields
            assert tuple(tokenizer.decode(part) for part in encoded.choices) == example.choices
            assert (encoded.label, encoded.subset, encoded.row) == (example.label, example.subset, example.row)
            assert all(part.dtype == np.uint16 for part in (*encoded.fields, *encoded.choices))
        assert found.labels.tolist() == [example.label for example in examples]
        assert found[-1].row == found[len(found) - 1].row == found[-1:][0].row


def test_report(tmp_path: Path) -> None:
    spec = REGISTRY["snli"]
    rows = [
        written.Row((f"premise {n}", "some hypothesis"), label) for n, label in enumerate(["neutral", "-", "neutral"])
    ]
    written.write_bytes(f"{tmp_path}/SNLI/snli_1.0_train.jsonl", written.encode_file(spec, rows))
    written.write_bytes(f"{tmp_path}/SNLI/snli_1.0_dev.jsonl", written.encode_file(spec, rows[:1]))
    report = encode_task(task_spec("snli"), str(tmp_path), Bytes(), tmp_path / "out")
    assert list(report["splits"]) == ["train", "dev"]  # no test file, no test split
    assert report["splits"]["train"] == {
        "rows": 2,
        "published": 549_367,
        "dropped": {"label -": 1},
        "subsets": {},
        "labels": {"neutral": 2},
        "tokens": 2 * len("premise 0some hypothesis"),
        "longest": len("premise 0some hypothesis"),
    }
    dev = report["splits"]["dev"]
    assert (dev["rows"], dev["published"], dev["dropped"]) == (1, 9842, {})


def test_a_large_vocabulary_takes_wider_ids(tmp_path: Path) -> None:
    written.write_task(str(tmp_path), REGISTRY["sst2"], rows=2)
    tokenizer = Bytes(offset=70_000)
    encode_task(task_spec("sst2"), str(tmp_path), tokenizer, tmp_path / "out")
    example = read_encoded(tmp_path / "out", "dev")[0]
    assert example.fields[0].dtype == np.uint32
    assert tokenizer.decode(example.fields[0]) == load_task("sst2", str(tmp_path))[0].fields[0]


def test_a_passage_of_several_questions_is_encoded_once(tmp_path: Path) -> None:
    rows = [written.Row(("the passage", f"question {n}"), "A", ("w", "x", "y", "z")) for n in range(5)]
    for split in ("train", "dev"):
        for level in ("middle", "high"):
            written.write_bytes(f"{tmp_path}/RACE/{split}/{level}/1.txt", written.encode_passage(rows))
    tokenizer = Bytes()
    encode_task(task_spec("race"), str(tmp_path), tokenizer, tmp_path / "out")
    assert tokenizer.encoded["the passage"] == 2  # once a split


def test_more_rows_than_one_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gptcore.nlu.encoded._ROWS", 5)
    root, spec = str(tmp_path), REGISTRY["mrpc"]
    written.write_task(root, spec, rows=13)
    encode_task(task_spec("mrpc"), root, Bytes(), tmp_path / "out")
    found = read_encoded(tmp_path / "out", "train")
    assert [Bytes().decode(example.fields[1]) for example in found] == [
        example.fields[1] for example in load_task("mrpc", root, "train")
    ]


def test_a_broken_row_leaves_no_report(tmp_path: Path) -> None:
    written.write_task(str(tmp_path), REGISTRY["mrpc"], rows=2)
    (tmp_path / "MRPC" / "dev.tsv").write_text("Quality\t#1 String\t#2 String\n7\ta\tb\n")
    with pytest.raises(InputError, match=r"dev\.tsv, line 2, column 'Quality'"):
        encode_task(task_spec("mrpc"), str(tmp_path), Bytes(), tmp_path / "out")
    assert not (tmp_path / "out" / "meta.json").exists()
    with pytest.raises(InputError, match="expected an encoded split"):
        read_encoded(tmp_path / "nowhere", "dev")


@pytest.mark.parametrize("task", ["mrpc", "race"])
def test_fingerprint_follows_content_and_nothing_else(task: str, tmp_path: Path) -> None:
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    for root in (one, two):
        written.write_task(root, REGISTRY[task], rows=2)
    assert (
        dataset_fingerprint(task_spec(task), one)
        == dataset_fingerprint(task_spec(task), two)
        == dataset_fingerprint(task_spec(task), two + "/")
    )
    written.write_bytes(f"{two}/{REGISTRY[task].folder}/notes.md", b"not read")
    assert dataset_fingerprint(task_spec(task), one) == dataset_fingerprint(task_spec(task), two)
    source = REGISTRY[task].splits["dev"][0]
    written.write_source(two, REGISTRY[task], source, [written.plain_row(REGISTRY[task], 7)] * 2)
    assert dataset_fingerprint(task_spec(task), one) != dataset_fingerprint(task_spec(task), two)


def test_fingerprint_of_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"MRPC/dev\.tsv: found nothing there"):
        dataset_fingerprint(task_spec("mrpc"), str(tmp_path))


def test_reading_needs_no_text_cleaning_and_no_torch(tmp_path: Path) -> None:
    written.write_task(str(tmp_path), REGISTRY["mrpc"], rows=2)
    encode_task(task_spec("mrpc"), str(tmp_path), Bytes(), tmp_path / "out")
    code = (
        "import sys; from pathlib import Path; from gptcore.nlu.encoded import read_encoded; "
        f"read_encoded(Path({str(tmp_path / 'out')!r}), 'dev')[0]; "
        "print(sorted({'ftfy', 'spacy', 'torch', 'sklearn', 'scipy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# --- `hf://` addresses, through the hub's own library in a process of its own, against a stand-in for the hub


TASKS = ("mnli", "snli", "race", "stsb")
READ = """
import json, sys
from gptcore.config import CorpusConfig
from gptcore.nlu import available, load_task
from gptcore.nlu.encoded import dataset_fingerprint
from gptcore.nlu.examples import Annotation, Example
from gptcore.nlu.findings import Findings
from gptcore.nlu.registry import TaskSpec, task_spec
from gptcore.base.filesystems import is_synthetic
from gptcore.text.decoding import Read
from gptcore.text.sources import find_sources, fingerprint, read_documents

root, one, *books = sys.argv[1:]
found = {name: [[row.fields, row.choices, row.label, row.row] for row in load_task(name, root)]
         for name in available(root)}
corpora = [find_sources(url) for url in books]
texts = ["".join(text) for source in corpora[0] for text in read_documents(source, CorpusConfig(), Read())]
print(json.dumps({
    "tasks": found,
    "one repository": available(one),
    "digest": dataset_fingerprint(task_spec("race"), root),
    "synthetic": is_synthetic(root),
    "sources": [source.name for source in corpora[0]],
    "texts": texts,
    "tags": [[file["tag"] for file in fingerprint(corpus)] for corpus in corpora],
}))
"""


def read_by_address(endpoint: str, home: Path, *addresses: str) -> dict[str, object]:
    environment = {**os.environ, "HF_ENDPOINT": endpoint, "HF_HOME": str(home), "HF_HUB_DISABLE_TELEMETRY": "1"}
    command = [sys.executable, "-c", READ, *addresses]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, object] = json.loads(done.stdout)
    return found


@pytest.mark.timeout(120)
def test_datasets_and_books_by_their_hub_addresses(tmp_path: Path) -> None:
    hub, public = tmp_path / "hub", str(tmp_path / "public")
    for task in TASKS:
        written.write_task(public, REGISTRY[task], rows=5)
        write_hub(public, REGISTRY[task], f"{hub}/{SHAPES[task].repo}", shards=2)
    (hub / "nyu-mll" / "glue" / "README.md").write_text("a card", encoding="utf-8")
    for number in range(3):
        shard = pa.table({"title": ["a", "b"], "text": pa.array([f"Book {number}a.", f"Book {number}b."])})
        write_table(f"{hub}/some/books/data/train-{number:05}-of-00003.parquet", shard, row_group_size=1)
    with hub_server(hub) as endpoint:
        books = "hf://datasets/some/books"
        addresses = ("hf://datasets", "hf://datasets/ehovy/race", books, f"{books}/data/train-*.parquet")
        found = read_by_address(endpoint, tmp_path / "home", *addresses)
    local = {
        task: [[list(row.fields), list(row.choices), row.label, row.row] for row in load_task(task, str(hub))]
        for task in TASKS
    }
    assert found["tasks"] == local
    assert found["one repository"] == ["race"]
    assert found["digest"] == dataset_fingerprint(task_spec("race"), str(hub))
    assert found["synthetic"] is False
    assert found["sources"] == [source.name for source in find_sources(str(hub / "some" / "books"))]
    assert found["texts"] == [f"Book {number}{part}." for number in range(3) for part in "ab"]
    whole, by_glob = found["tags"]  # type: ignore[misc]  # two lists
    assert whole == by_glob
    assert len(set(whole)) == 3


# --- what is told of rows


def found(spec: TaskSpec, **splits: Iterable[float]) -> Findings:
    """What is found in rows with these labels; those of a split "again" have the train rows' texts."""
    findings = Findings(spec)
    for split, labels in splits.items():
        for n, label in enumerate(labels):
            text = f"{'train' if split == 'again' else split} {n}"
            places = (Annotation(0, 1, "O"),) if spec.form == "tags" else ()
            findings.add(split, Example((text,), (), label, "", f"{split}:{n}", places))
    return findings


LABELS = replace(REGISTRY["sst2"], labels=("p", "q"))


@pytest.mark.parametrize(("changes", "counts", "notes"), expected(__file__, "test_what_is_told_of_rows"))
def test_what_is_told_of_rows(
    changes: dict[str, Any], counts: dict[str, list[tuple[float, int]]], notes: list[str]
) -> None:
    spec = replace(LABELS, **{name: tuple(v) if isinstance(v, list) else v for name, v in changes.items()})
    splits = {split: [label for label, n in labels for _ in range(n)] for split, labels in counts.items()}
    assert list(found(spec, **splits).notes()) == notes


@pytest.mark.parametrize("symmetric", [False, True])
def test_texts_are_the_same_but_for_case_blanks_and_sides_without_an_order(symmetric: bool) -> None:
    findings = Findings(replace(LABELS, form="pair", symmetric=symmetric))
    train, dev = [("a b", "C"), ("A  b ", "c"), ("c", "a b")], [("c", "a b"), ("C", "A B"), ("a", "B")]
    for split, texts, labels in (("train", train, (0, 1, 1)), ("dev", dev[symmetric:], (0, 0, 1))):
        for n, (fields, label) in enumerate(zip(texts, labels, strict=False)):
            findings.add(split, Example(fields, (), float(label), "", f"{split}:{n}"))
    again = f"with another label: {1 + symmetric} of 3 train rows (train:1 has q, an earlier one p)"
    assert f"an earlier row's texts {again}" in list(findings.notes())
    assert any(note.startswith("2 of 3 dev" if not symmetric else "1 of 2 dev") for note in findings.notes())


def test_one_label_is_refused_where_the_first_metric_needs_two() -> None:
    found(LABELS, train=[0.0], dev=[1.0]).check_scorable()
    two = replace(LABELS, metrics=("matthews",))
    found(two, train=[0.0], dev=[0.0, 1.0]).check_scorable()
    with pytest.raises(InputError, match="dev: found 'q' as the label of every row, expected two"):
        found(two, train=[0.0], dev=[1.0, 1.0]).check_scorable()
