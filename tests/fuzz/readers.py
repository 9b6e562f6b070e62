"""Everything that reads somebody's file: how a small, sound one is written, and how it is read."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from safetensors.torch import load_file, save_file

from flows.forms.readers import config_file
from flows.servers.environment import read_stack
from flows.upkeep.place import chosen
from gptcore.base.files import write_json_atomic
from gptcore.base.settings import recorded
from gptcore.config import EncoderConfig, LSTMConfig, ModelConfig, preset_named
from gptcore.config.network import network_config
from gptcore.data.shards import Shards, write_shards
from gptcore.evaluation.submission import SUBMISSION
from gptcore.machine.process import read_job
from gptcore.models.classifier import ClassificationModel
from gptcore.models.encoder import Encoder
from gptcore.models.files.export import export_hugging_face
from gptcore.models.files.folder import export_release
from gptcore.models.network import build_model, load_model
from gptcore.models.transformer import GPT
from gptcore.nlu.blimp import PARADIGMS, read_paradigm
from gptcore.nlu.guess import guess_task, task_text
from gptcore.nlu.own_rows import read_own_rows
from gptcore.nlu.readers import iterate_test, labelled_splits, load_task
from gptcore.nlu.readers.winograd import read_dprd
from gptcore.nlu.registry import REGISTRY, task_spec
from gptcore.papers.prompting.tasks import PROMPT_TASKS
from gptcore.papers.storyworld.beyond import prompted
from gptcore.papers.storyworld.formats import Writer
from gptcore.text.byte_bpe import ByteTokenizer
from gptcore.text.corpus import build_corpus
from gptcore.text.sentence_piece import SentencePieceTokenizer
from gptcore.text.sources import RawCorpus
from gptcore.text.tokenizer import Tokenizer
from gptcore.text.wordpiece import WordPieceTokenizer
from gptcore.training import checkpoint
from gptcore.training.finetune import FinetuneJob
from gptcore.training.pretrain import PretrainJob
from tasks.jobs.launch import MetricsTail
from tasks.report.suites import _kept
from tasks.store.artifact import Recipe
from tasks.store.garbage import inventory
from tasks.store.store import Store
from tests.gptcore.datasets import write_task
from tests.gptcore.hub_rows import write_hub
from tests.gptcore.papers.prompting.test_prompt_files import XML
from tests.gptcore.test_library import bert
from tests.gptcore.test_one_table import in_chunks, saved
from tests.gptcore.test_passages import conll, squad
from tests.gptcore.test_superglue import ROWS as SUPERGLUE
from tests.gptcore.test_superglue import write as superglue_rows
from tests.gptcore.tiny_blimp import write_blimp
from tests.gptcore.tiny_glue import save_model, tokenizer, write_test_files
from tests.tasks.stores import verify

TAGGED = "-DOCSTART- -X- O O\n\nAnna NNP I-NP I-PER\nsaw VBD I-VP O\nNew NNP I-NP I-LOC\nYork NNP I-NP I-LOC\n\n" * 2
INPUTS = Path(__file__).parents[1] / "public_inputs"
SETTINGS = Path(__file__).with_name("settings.toml")
SHAPE = ModelConfig(n_vocab=40, n_ctx=8, n_layer=1, n_head=2, n_embd=8, n_inner=32)


@dataclass(frozen=True)
class Reader:
    """One kind of input."""

    write: Callable[[Path], object]
    """Leaves sound files in a folder."""
    read: Callable[[Path], object]
    """Reads that folder to the end."""
    damaged: str = "**/*"
    """Which of the files may come damaged."""


def _task(name: str) -> Reader:
    def read(folder: Path) -> None:
        for split in labelled_splits(task_spec(name), str(folder)):
            load_task(name, str(folder), split)

    return Reader(lambda folder: write_task(str(folder), task_spec(name), rows=3), read)


def _parquet(name: str) -> Reader:
    def write(folder: Path) -> None:
        write_task(str(folder / "public"), task_spec(name), rows=3)
        write_hub(str(folder / "public"), task_spec(name), str(folder / "hub" / task_spec(name).folder))

    def read(folder: Path) -> None:
        for split in labelled_splits(task_spec(name), str(folder / "hub")):
            load_task(name, str(folder / "hub"), split)

    return Reader(write, read, "hub/**/*.parquet")


def _tests(folder: Path) -> None:
    for file in SUBMISSION:
        exhaust(iterate_test(task_spec(file.task), str(folder), file.path, file.index))


def exhaust(items: Iterable[Any]) -> None:
    for _ in items:
        pass


def _book(name: str, data: bytes) -> Callable[[Path], object]:
    return lambda folder: ((folder / "books").mkdir(), (folder / "books" / name).write_bytes(data))


def _corpus(folder: Path) -> None:
    out = folder / ".out"
    config = preset_named("demo", {"corpus": {"validation_fraction": 0.0, "min_characters": 10}}).corpus
    try:
        build_corpus(RawCorpus.at(str(folder / "books")), out, config, map=map)
    finally:
        for path in sorted(out.rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()


def _backed_up(folder: Path) -> None:
    """The list of a backup, as format 1 has it: without the checksum that lets no damage through to what is read."""
    entry = {"sha256": "ab" * 32, "size": 3}
    parts = {"databases": "mlflow.db", "files": "owners/a", "work": f"pretrain/{'0' * 64}/log.txt"}
    kept = {"url": "runs/demo", "whole": True, "artifacts": {"corpus": ["cd" * 32]}}
    about = {"format": 1, "created": "20260101T", "versions": {"gptmill": "0.2.0"}, "full": False, "store": kept}
    (folder / "backups").mkdir()
    listed = json.dumps({**about, **{part: {name: entry} for part, name in parts.items()}})
    (folder / "backups" / "20260101T000000.000000Z.json").write_text(listed)


def _read_backup(folder: Path) -> None:
    backups, name = chosen(str(folder), "")
    about = backups.read(name)
    assert all(re.fullmatch(r"(databases|files|work)/[\w./-]+", path) for path in about.entries if path.isascii())
    assert not any({"..", ""} & {*path.split("/")} for path in about.entries)


def _settings_file(folder: Path) -> None:
    preset_named("demo", config_file(str(folder / "settings.toml")))


def _stored(folder: Path) -> None:
    store = Store(folder)
    corpus = store.build(Recipe("corpus", 1, {"a": 1}), lambda out: (out / "x").write_text("X") and {"words": 3})
    recipe = Recipe("pretrain", 1, {"b": [1, 2.5, None]}, {"corpus": corpus.artifact, "files": "ab" * 32})
    store.build(recipe, lambda out: (out / "y").write_text("Y") and {"synthetic": True})


def _read_store(folder: Path) -> None:
    store = Store(folder)
    for stage in ("corpus", "pretrain"):
        for artifact in store.list(stage):
            verify(store, artifact)
    inventory(store, ["corpus", "pretrain", "finetune"])


def _checkpointed(folder: Path) -> None:
    tensors = {"model": {"w": torch.ones(3)}, "optimizer": {"m": torch.zeros(2, 2)}}
    for step in (1, 2):
        checkpoint.save(folder, step, tensors, {"rng": {"python": [1, 2]}, "metrics_size": 0}, keep=2)


def _read_checkpoint(folder: Path) -> None:
    found = checkpoint.newest_valid(folder)
    if found is not None:
        found.tensors("model")


def _job(kind: str) -> Reader:
    parse: Any = {"pretrain": PretrainJob, "finetune": FinetuneJob}[kind].parse
    preset = preset_named("demo")

    def write(folder: Path) -> None:
        places = {"workspace": str(folder / "work"), "threads": 1}
        if kind == "finetune":
            finetune = {"model": str(folder), "model_config": None, "dataset": str(folder), "task": "rte"}
            write_json_atomic(folder / "JOB.json", {**finetune, **places, "finetune": recorded(preset.finetune)})
            return
        write_json_atomic(folder / "meta.json", {"tokenizer_digest": "ab" * 32, "n_vocab": 40})
        shards = {"shards": str(folder), "tokenizer_digest": "ab" * 32, "model": recorded(SHAPE)}
        write_json_atomic(folder / "JOB.json", {**shards, **places, "pretrain": recorded(preset.pretrain)})

    return Reader(write, lambda folder: parse(read_job(str(folder / "JOB.json"))), "*.json")


def _sharded(folder: Path) -> None:
    for split in ("train", "validation"):
        documents = [(f"{n}", [[n, n + 1, 3]]) for n in range(4)]
        write_shards(documents, folder / split, n_vocab=40, max_tokens=8)
    write_json_atomic(folder / "meta.json", {"tokenizer_digest": "ab" * 32, "n_vocab": 40})


def _read_shards(folder: Path) -> None:
    for split in ("train", "validation"):
        shards = Shards(folder / split)
        exhaust(shards.documents())


def _released(folder: Path) -> None:
    shape = ModelConfig(n_vocab=20, n_ctx=4, n_layer=1, n_head=12, n_embd=12, n_inner=48)
    export_release(GPT(shape), folder)


def _foreign(folder: Path) -> None:
    words = tokenizer()
    export_hugging_face(GPT(ModelConfig(**{**recorded(SHAPE), "n_vocab": words.n_vocab})), words, folder)


def _lines(folder: Path) -> list[bytes]:
    return (folder / "rows.jsonl").read_bytes().splitlines(keepends=True)


def _rows(folder: Path) -> None:
    rows = [{"premise": "A cat sat.", "hypothesis": "It sat."}, {"sentence1": "A", "sentence2": "B", "more": 1}]
    (folder / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def _metrics(folder: Path) -> None:
    records = [{"step": n, "time": 1.5, "metrics": {"train/loss": 0.5}} for n in range(3)]
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))


def _stack(folder: Path) -> None:
    processes = {"worker": {"pid": 1, "created": 1.5}}
    record = {"prefect_url": "http://127.0.0.1:1", "mlflow_url": "http://127.0.0.1:2", "processes": processes}
    record |= {"layout": {"full": False}, "forms": {"store": "runs", "datasets": ""}}
    write_json_atomic(folder / "stack.json", record)


def _board(folder: Path) -> None:
    cell = {"split": "dev", "seeds": 1, "low": 1.0, "high": 2.0, "stderr": None, "collapsed": 0, "commits": ["a"]}
    row = {"name": "mine", "kind": "ours", "split": "dev", "percent": {"rte": 61.5}, "cells": {"rte": cell}}
    write_json_atomic(folder / "board.json", {"of": [1], "rows": [row], "page": "x"})


def _pronouns(folder: Path) -> None:
    text = "The bee landed on the flower because it had pollen.\nit\nThe bee,the flower\nthe flower\n\n" * 2
    for name in ("train.c.txt", "test.c.txt"):
        (folder / "DPRD").mkdir(exist_ok=True)
        (folder / "DPRD" / name).write_text(text)


def _prompted(folder: Path) -> None:
    prompted(Writer(folder, 1), 3)
    (folder / "WSC273").mkdir()
    (folder / "WSC273" / "WSCollection.xml").write_text(XML)


def _read_prompted(folder: Path) -> None:
    for name, task in PROMPT_TASKS.items():
        if name not in REGISTRY:
            task.read(str(folder))


def _passages(folder: Path) -> None:
    answers = [{"text": "the mill", "answer_start": 13}]
    asked = [
        {"id": "a", "question": "Where was Anna?", "answers": answers, "is_impossible": False},
        {"id": "b", "question": "Where was Bert?", "answers": [], "is_impossible": True},
    ]
    squad(folder, [{"context": "Anna went to the mill.", "qas": asked}], "train-v2.0.json")


def _superglue(folder: Path) -> None:
    superglue_rows(folder, "multirc", SUPERGLUE["multirc"], "train.jsonl")


def _read_beyond(name: str) -> Callable[[Path], object]:
    return lambda folder: load_task(name, str(folder), "train")


def _encoder(folder: Path) -> None:
    words = WordPieceTokenizer.train(["a cat sat on the mat"] * 2, 9)
    shape = EncoderConfig(n_vocab=words.n_vocab, n_ctx=8, n_layer=1, n_head=2, n_embd=8, n_inner=16)
    export_hugging_face(Encoder(shape), words, folder)


def _sharded_encoder(folder: Path) -> None:
    _encoder(folder)
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = {name: f"model-{number % 2}.safetensors" for number, name in enumerate(tensors)}
    for shard in {*names.values()}:
        save_file({name: tensor for name, tensor in tensors.items() if names[name] == shard}, folder / shard)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))


def _written(family: str, **changes: Any) -> Callable[[Path], None]:
    """Writes a folder of Hugging Face's of a family that reads bytes."""
    words = ByteTokenizer.train(["a cat sat on the mat"] * 2, 9)
    shape = {"n_vocab": words.n_vocab, "n_ctx": 8, "n_layer": 2, "n_head": 2, "n_embd": 8, "n_inner": 16}
    config = network_config({**shape, **changes, "family": family})
    return lambda folder: export_hugging_face(build_model(config), words, folder)


def _minimal_pairs(folder: Path) -> None:
    for paradigm in PARADIGMS:
        exhaust(read_paradigm(str(folder), paradigm))


def _undescribed(folder: Path) -> None:
    for file in ("e1.csv", "m1.csv", "h1.jsonl", "k2.parquet"):
        shutil.copy(INPUTS / file, folder)


def _formatted(folder: Path) -> None:
    rows = [{"text": f"words of {n}; and more", "label": "ab"[n % 2]} for n in range(4)]
    table, sheet = pa.Table.from_pylist(rows), (book := openpyxl.Workbook()).active
    for row in [rows[0], *(row.values() for row in rows)]:
        sheet.append(list(row))
    book.save(folder / "rows.xlsx")
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    numbered = {name: {str(n): row[name] for n, row in enumerate(rows)} for name in rows[0]}
    for number, value in enumerate((rows, table.to_pydict(), numbered)):
        (folder / f"{number}.json").write_text(json.dumps(value, indent=1))
    pq.write_table(table, folder / "rows.parquet")
    in_chunks(table, folder / "rows.arrow")
    saved(table, folder / "saved.arrow")


def _guessed(folder: Path) -> None:
    for file in sorted(folder.iterdir()):
        task_text(guess_task(str(file)))


def _library(folder: Path) -> None:
    bert().save(str(folder / "tokenizer.json"))
    write_json_atomic(folder / "tokenizer_config.json", {"cls_token": "[CLS]", "added_tokens_decoder": {}})
    write_json_atomic(folder / "config.json", {"model_type": "bert", "vocab_size": 200, "pad_token_id": 0})


def _read_library(folder: Path) -> None:
    read = Tokenizer.load(str(folder))
    exhaust([read.encode("a cat"), read.specials, read.beginning, read.digest])


READERS: dict[str, Reader] = {
    **{name: _task(name) for name in REGISTRY},
    **{f"{name} of the hub": _parquet(name) for name in ("rte", "stsb", "race", "snli")},
    "GLUE's test rows": Reader(lambda folder: write_test_files(str(folder), 3), _tests),
    "pronouns": Reader(_pronouns, lambda folder: exhaust(read_dprd(str(folder), "test"))),
    "texts of prompts": Reader(_prompted, _read_prompted),
    "questions with passages": Reader(_passages, _read_beyond("squad2")),
    "answers to passages": Reader(_superglue, _read_beyond("multirc")),
    "tagged words": Reader(lambda folder: conll(folder, TAGGED), _read_beyond("conll2003")),
    "minimal pairs": Reader(lambda folder: write_blimp(str(folder), pairs=1), _minimal_pairs),
    "rows that no task describes": Reader(_undescribed, _guessed),
    "rows in every format": Reader(_formatted, _guessed),
    "rows of a user": Reader(_rows, lambda folder: exhaust(read_own_rows(task_spec("rte"), _lines(folder)))),
    "books as text": Reader(_book("a.txt", b"A story of a cat.\n\nIt sat on the mat, and slept.\n" * 3), _corpus),
    "books as JSON lines": Reader(_book("a.jsonl", b'{"text": "A story of a cat that sat."}\n' * 3), _corpus),
    "settings": Reader(lambda folder: shutil.copy(SETTINGS, folder), _settings_file),
    "manifests": Reader(_stored, _read_store, "**/manifest.json"),
    "tokenizer": Reader(
        lambda folder: tokenizer().save(folder), lambda folder: Tokenizer.load(str(folder)).encode("a cat")
    ),
    "WordPiece": Reader(
        lambda folder: WordPieceTokenizer.train(["a cat sat on the mat"] * 2, 9).save(folder),
        lambda folder: Tokenizer.load(str(folder)).encode("a cat"),
    ),
    "SentencePiece": Reader(
        lambda folder: SentencePieceTokenizer.train(["a cat sat on the mat"] * 2, 9).save(folder),
        lambda folder: Tokenizer.load(str(folder)).encode("a cat, 12, é"),
    ),
    "tokenizer of the library": Reader(_library, _read_library),
    "checkpoints": Reader(_checkpointed, _read_checkpoint),
    "job of pre-training": _job("pretrain"),
    "job of fine-tuning": _job("finetune"),
    "shards": Reader(_sharded, _read_shards),
    "own model": Reader(lambda folder: GPT(SHAPE).save(folder), lambda folder: load_model(str(folder))),
    "own LSTM": Reader(
        lambda folder: build_model(LSTMConfig(n_vocab=20, n_ctx=4, n_units=8, n_embd=4)).save(folder),
        lambda folder: load_model(str(folder)),
    ),
    "fine-tuned model": Reader(lambda folder: save_model("rte", tokenizer(), folder, 8), ClassificationModel.load),
    "Hugging Face's model": Reader(_foreign, lambda folder: load_model(str(folder)), "*odel*.*"),
    "Hugging Face's encoder": Reader(_encoder, lambda folder: load_model(str(folder)), "*odel*.*"),
    "Hugging Face's shards": Reader(_sharded_encoder, lambda folder: load_model(str(folder)), "*odel*.*"),
    "Llama": Reader(_written("llama", n_head_keys=1), lambda folder: load_model(str(folder)), "config.json"),
    "ModernBERT": Reader(_written("modernbert"), lambda folder: load_model(str(folder)), "config.json"),
    "released model": Reader(_released, lambda folder: load_model(str(folder))),
    "metrics of a job": Reader(_metrics, lambda folder: MetricsTail(folder / "metrics.jsonl").read()),
    "list of a backup": Reader(_backed_up, _read_backup, "backups/*"),
    "record of the stack": Reader(_stack, lambda folder: read_stack()),
    "kept leaderboard": Reader(_board, lambda folder: _kept(folder / "board.json", [1])),
}
