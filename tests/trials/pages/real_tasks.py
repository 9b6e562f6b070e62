"""Three tasks that no entry of the registry knows, as their owners would write them down, of real rows."""

from __future__ import annotations

import csv
import json
import lzma
import os
import tomllib
from pathlib import Path

from gptcore.base.errors import InputError

_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
REAL_TASKS: dict[str, str] = {name: table.pop("rows") for name, table in _TABLES.items()}
"""Task -> where its rows are below the folder that `GPTMILL_REAL_DATA` names."""
_RELATIONS, _TRAINED = 20, 80  # of FewRel: classes, and of each class' hundred rows those that are trained on
_TITLES = 2000


def write_real_tasks(folder: Path) -> dict[str, str]:
    """Write WNLI as JSONL, relations of FewRel as CSV and the years of arXiv's titles as TSV, a sub-folder each.

    :return: task -> its file.
    :raises InputError: `GPTMILL_REAL_DATA` names no folder that has these sets.
    """
    source = Path(os.environ.get("GPTMILL_REAL_DATA") or "no folder is named")
    if absent := [path for path in REAL_TASKS.values() if not (source / path).exists()]:
        expected = ", ".join(REAL_TASKS.values())
        raise InputError(f"GPTMILL_REAL_DATA: found no {absent[0]} there, expected a folder with {expected}")
    writers = {"wnli": _write_wnli, "news-relations": _write_relations, "arxiv-years": _write_years}
    for name, write in writers.items():
        (folder / name).mkdir(parents=True)
        write(source / REAL_TASKS[name], folder / name)
        lines = [f"{field} = {json.dumps(value)}" for field, value in {"name": name, **_TABLES[name]}.items()]
        (folder / name / f"{name}.toml").write_text(
            "\n".join(lines) + "\n", encoding="utf-8"
        )  # JSON's values are TOML's
    return {name: str(folder / name / f"{name}.toml") for name in writers}


def _write_wnli(source: Path, folder: Path) -> None:
    """Winograd schemas as inference, with labels in words."""
    for split in ("train", "dev"):
        with open(source / f"{split}.tsv", encoding="utf-8") as rows, open(folder / f"{split}.jsonl", "w") as file:
            for row in csv.DictReader(rows, delimiter="\t", quoting=csv.QUOTE_NONE):
                verdict = {"0": "not_entailment", "1": "entailment"}[row["label"]]
                record = {"premise": row["sentence1"], "hypothesis": row["sentence2"], "verdict": verdict}
                file.write(json.dumps(record) + "\n")


def _write_relations(source: Path, folder: Path) -> None:
    """How two names of a sentence of the news are related: one text, one of twenty classes."""
    names = json.loads(source.with_name("pid2name.json").read_text(encoding="utf-8"))
    relations = list(json.loads(source.read_text(encoding="utf-8")).items())[:_RELATIONS]
    for split, part in (("train", slice(0, _TRAINED)), ("dev", slice(_TRAINED, None))):
        rows = [
            (f"{row['h'][0]} and {row['t'][0]}: {' '.join(row['tokens'])}", names[relation][0])
            for relation, sentences in relations
            for row in sentences[part]
        ]
        with open(folder / f"{split}.csv", "w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([("text", "relation"), *rows])


def _write_years(source: Path, folder: Path) -> None:
    """In which year a paper of neural and evolutionary computing appeared, by its title: a graded score."""
    with lzma.open(source, "rt", encoding="utf-8", newline="") as file:
        papers = sorted(
            (row["created"], " ".join(row["title"].split())) for row in csv.DictReader(file, delimiter="\t")
        )
    rows = [f"{title}\t{created[:4]}" for created, title in papers[:: max(1, len(papers) // _TITLES)]]
    (folder / "titles.tsv").write_text("\n".join(["title\tyear", *rows]) + "\n", encoding="utf-8")
