"""`hf://` addresses, through the hub's own library in a process of its own, against a stand-in for the hub."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from gptcore.nlu import REGISTRY, load_task
from gptcore.nlu.encoded import dataset_fingerprint
from gptcore.nlu.registry import task_spec
from gptcore.text.sources import find_sources
from tests.gptcore import datasets as written
from tests.gptcore.hub_rows import SHAPES, write_hub, write_table
from tests.gptcore.hub_server import hub_server

TASKS = ("mnli", "snli", "race", "stsb")
READ = """
import json, sys
from gptcore.config import CorpusConfig
from gptcore.nlu import available, load_task
from gptcore.nlu.encoded import dataset_fingerprint
from gptcore.nlu.registry import task_spec
from gptcore.base.filesystems import is_synthetic
from gptcore.text.sources import Read, find_sources, fingerprint, read_documents

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
