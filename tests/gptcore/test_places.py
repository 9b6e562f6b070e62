"""Spans, tags and FewRel: windows, answers beside a plain search, transformers' heads, jobs, files, rows."""

from __future__ import annotations

import copy
import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy

from gptcore.base.errors import InputError
from gptcore.data.sampler import IGNORE_INDEX
from gptcore.evaluation.inference import predict_jsonl
from gptcore.evaluation.predict import TaskModel, evaluate
from gptcore.evaluation.predictions import SpanAnswer, SpanPredictions, best_answer, tag_predictions
from gptcore.machine import process
from gptcore.models.encoder import Encoder
from gptcore.models.transformer import GPT
from gptcore.nlu import load_task, task_spec
from gptcore.nlu.encoded import MarkedExample, encode_task, marked_examples, read_marked
from gptcore.nlu.inputs import EncoderReader
from gptcore.nlu.readers import Annotation, Example
from gptcore.nlu.readers.tagged import tagged_example
from gptcore.nlu.rows import Window, WindowRows, first_pieces, speakers
from gptcore.objectives.losses import span_loss, tag_loss
from gptcore.text.wordpiece import WordPieceTokenizer
from gptcore.training import finetune
from tests.expected import expected
from tests.gptcore.test_encoder_head import batch, classifier, named, run, theirs
from tests.gptcore.test_finetune import outcome, wait_for
from tests.gptcore.tiny_tasks import MODEL, config
from tests.realdata import real_data

WORDS = expected(__file__, "WORDS")
TEXT = " ".join([*WORDS, "."] * 3)


@pytest.fixture(scope="module")
def pieces() -> WordPieceTokenizer:
    return WordPieceTokenizer.train([TEXT] * 3, 40)


def spans(n: int, split: str = "train") -> list[Example]:
    """Who went where: the answer is the word behind "to"."""
    rng = np.random.default_rng([n, len(split)])
    rows = []
    for number in range(n):
        who, other, place = (WORDS[rng.integers(*bounds)] for bounds in ((0, 4), (0, 4), (4, 6)))
        passage = f"{other} saw the red hat . {who} went to {place} ."
        start = passage.rindex(place)
        answer = (Annotation(start, start + 4),)
        rows.append(Example((f"where is {who}", passage), (), 0.0, "", f"r:{number}", answer, f"q{number}"))
    return rows


# --- windows and answers


def marked(pieces: WordPieceTokenizer, example: Example) -> MarkedExample:
    (found,) = marked_examples(pieces, [example])
    return found


@settings(max_examples=40)
@given(st.integers(1, 60), st.integers(0, 80), st.integers(6, 30))
def test_windows_cover_a_text_overlap_and_fit(
    pieces: WordPieceTokenizer, n_words: int, n_asked: int, n_ctx: int
) -> None:
    passage = " ".join(WORDS[at % len(WORDS)] for at in range(n_words))
    question = " ".join(["who"] * max(1, n_asked))
    row = marked(pieces, Example((question, passage), (), 0.0, "", "r", (Annotation(0, 4),)))
    rows = WindowRows(EncoderReader(task_spec("squad"), n_ctx, pieces.n_vocab, pieces=pieces.specials), [row])
    assert (rows.sizes <= n_ctx).all()
    assert rows.windows[0].start == 0
    assert rows.windows[-1].end == len(row.piece_starts)
    for left, right in zip(rows.windows, rows.windows[1:], strict=False):
        assert left.start < right.start <= left.end
        assert left.end - left.start == n_ctx - left.first - 1
    assert rows.truncated == (len(row.fields[0]) > min(64, (n_ctx - 3) // 2))
    found = rows.batch(range(len(rows)))
    for number, window in enumerate(rows.windows):
        sequence = found.tokens[number, 0, : rows.sizes[number]].tolist()
        assert sequence[window.first : -1] == row.fields[1][window.start : window.end].tolist()
        assert sequence[0] == pieces.specials.cls
        assert sequence[-1] == pieces.specials.sep


def test_a_window_without_the_whole_answer_points_to_the_first_position(pieces: WordPieceTokenizer) -> None:
    passage = " ".join(["the red hat"] * 8) + " rome oslo"
    start = passage.index("rome")
    row = marked(pieces, Example(("who", passage), (), 0.0, "", "r", (Annotation(start, start + 9),)))
    rows = WindowRows(EncoderReader(task_spec("squad"), 16, pieces.n_vocab, pieces=pieces.specials), [row])
    labels = rows.batch(range(len(rows))).labels
    assert labels[:-1].tolist() == [[0, 0]] * (len(rows) - 1)
    first, last = labels[-1].tolist()
    ids = rows.batch([len(rows) - 1]).tokens[0, 0, first : last + 1].tolist()
    assert pieces.decode(ids) == "rome oslo"


def plain_speakers(windows: list[Window], n_pieces: int) -> list[int]:
    def context(window: Window, piece: int) -> float:
        if not window.start <= piece < window.end:
            return -1.0
        return min(piece - window.start, window.end - 1 - piece) + 0.01 * (window.end - window.start)

    numbers = range(len(windows))
    return [max(numbers, key=lambda n, at=piece: (context(windows[n], at), -n)) for piece in range(n_pieces)]


@settings(max_examples=60)
@given(st.data())
def test_the_answer_is_that_of_a_plain_search(pieces: WordPieceTokenizer, data: st.DataObject) -> None:
    n_words = data.draw(st.integers(1, 40))
    passage = " ".join(WORDS[at % 4] for at in range(n_words))
    row = marked(pieces, Example(("who", passage), (), 0.0, "", "r"))
    rows = WindowRows(EncoderReader(task_spec("squad2"), 14, pieces.n_vocab, pieces=pieces.specials), [row])
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    logits = [rng.normal(size=(1 + window.end - window.start, 2)).astype(np.float32) for window in rows.windows]
    speaking = plain_speakers(rows.windows, len(row.piece_starts))
    assert speakers(rows.windows, len(row.piece_starts)).tolist() == speaking
    candidates = [
        (float(found[1 + i, 0] + found[1 + j, 1]), window.start + i, window.start + j)
        for number, (window, found) in enumerate(zip(rows.windows, logits, strict=True))
        for i in range(window.end - window.start)
        for j in range(i, min(i + 30, window.end - window.start))
        if speaking[window.start + i] == number
    ]
    score, start, end = max(candidates)
    answer = best_answer(row, rows.windows, logits)
    assert answer.score == pytest.approx(score)
    assert (answer.start, answer.end) == (row.piece_starts[start], row.piece_ends[end])
    assert answer.text == passage[answer.start : answer.end]
    assert answer.no_answer == pytest.approx(min(float(found[0].sum()) for found in logits) - score)


def test_a_question_has_at_most_64_pieces_and_an_answer_30(pieces: WordPieceTokenizer) -> None:
    reader = EncoderReader(task_spec("squad2"), 300, pieces.n_vocab, pieces=pieces.specials)
    for n_asked in (64, 65):
        row = marked(pieces, Example((". " * n_asked, "anna " * 40), (), 0.0, "", "r"))
        rows = WindowRows(reader, [row])
        assert (rows.truncated, rows.windows[0].first) == (n_asked > 64, 66)
    logits = np.zeros((1 + len(row.piece_starts), 2), np.float32)
    logits[1, 0], logits[1:, 1] = 99, np.arange(len(row.piece_starts))
    answer = best_answer(row, rows.windows, [logits])
    assert (answer.start, answer.end) == (row.piece_starts[0], row.piece_ends[29])


def test_the_threshold_is_that_of_the_best_f1_over_rows_that_say_what_is_right() -> None:
    said = ((0.0, [Annotation(0, 4)]), (1.0, []), (None, []))
    rows = [SimpleNamespace(text="rome oslo", label=label, annotations=places) for label, places in said]
    answers = [SpanAnswer("rome", 0, 4, 0.0, gap) for gap in (2.0, 3.0, -5.0)]
    found = SpanPredictions(SimpleNamespace(examples=rows), answers, True).tuned()  # type: ignore[arg-type]
    assert (found.threshold, found.texts) == (2.0, ["rome", "", "rome"])
    assert found.scores(task_spec("squad2"))["score"] == 1.0


def test_exact_matches_would_choose_another_threshold_than_f1() -> None:
    """Three rows, the likelier the answer the lower the gap. To answer the first gives F1 2/3 and no match; to answer
    none has the second row right: by F1 all but the last are answered, by matches none."""
    texts = ((0.0, "rome", [Annotation(0, 9)]), (0.0, "oslo", [Annotation(5, 9)]), (1.0, "rome", []))
    rows = [SimpleNamespace(text="rome oslo", label=label, annotations=places) for label, _, places in texts]
    gaps = (3.0, 1.0, 2.0)
    answers = [SpanAnswer(text, 0, 4, 0.0, gap) for (_, text, _), gap in zip(texts, gaps, strict=True)]
    rows += [SimpleNamespace(text="rome oslo", label=0.0, annotations=[Annotation(0, 9)])]
    answers += [SpanAnswer("oslo", 5, 9, 0.0, 4.0)]
    found = SpanPredictions(SimpleNamespace(examples=rows), answers, True).tuned()  # type: ignore[arg-type]
    # F1 of answering down to each gap: 1 + 1, 1, 1 + 2/3, 1 + 4/3; matches: 1 + 1, 1, 1, 1.
    assert found.threshold == 4.0
    assert found.texts == ["rome", "oslo", "rome", "oslo"]
    scores = found.scores(task_spec("squad2"))
    assert scores["span_f1"] == pytest.approx((2 / 3 + 1 + 0 + 2 / 3) / 4)
    assert scores["exact_match"] == 0.25


def test_a_words_first_piece_answers_for_it(pieces: WordPieceTokenizer) -> None:
    words = ["annaoslo", "\x01", "went", "romerome"]
    row = marked(pieces, tagged_example(words, ["B-PER", "O", "O", "B-LOC"], "", "r", 0.0))
    rows = WindowRows(EncoderReader(task_spec("conll2003"), 40, pieces.n_vocab, pieces=pieces.specials), [row])
    names, first = task_spec("conll2003").labels, first_pieces(row)
    assert len(row.piece_starts) > 4, "some word has two pieces"
    said = ["I-ORG"] * len(row.piece_starts)
    for at, tag in zip(first[[0, 2, 3]], ("B-PER", "O", "B-LOC"), strict=True):
        said[at] = tag
    logits = np.zeros((1 + len(said) + 1, len(names)), np.float32)
    logits[0, names.index("B-MISC")] = logits[-1, names.index("B-MISC")] = 9.0  # the marks before and behind
    logits[np.arange(1, 1 + len(said)), [names.index(tag) for tag in said]] = 5.0
    assert rows.windows[0].first == 1
    assert tag_predictions(task_spec("conll2003"), rows, [logits]).tags == [["B-PER", "O", "O", "B-LOC"]]


def test_a_tag_stands_at_the_first_piece_of_its_word(pieces: WordPieceTokenizer) -> None:
    words = ["annaoslo", "\x01", "went", "romerome"]
    row = marked(pieces, tagged_example(words, ["B-PER", "O", "O", "B-LOC"], "", "r", 0.0))
    first = first_pieces(row)
    assert first[1] == -1, "a word of control characters has no piece"
    assert [int(row.piece_starts[at]) for at in first[[0, 2, 3]]] == [row.annotations[at].start for at in (0, 2, 3)]
    rows = WindowRows(EncoderReader(task_spec("conll2003"), 40, pieces.n_vocab, pieces=pieces.specials), [row])
    labels = rows.batch([0]).labels
    tagged = (labels[0] != IGNORE_INDEX).nonzero()[:, 0]
    assert tagged.tolist() == [1 + int(at) for at in first[[0, 2, 3]]]
    names = task_spec("conll2003").labels
    assert [names[label] for label in labels[0, tagged]] == ["B-PER", "O", "B-LOC"]


# --- networks


@pytest.mark.parametrize(
    ("kind", "form", "n_outputs"), [("BertForQuestionAnswering", "span", 2), ("BertForTokenClassification", "tags", 5)]
)
def test_losses_and_gradients_equal_those_of_transformers(kind: str, form: str, n_outputs: int) -> None:
    model, given_batch = classifier(form, n_outputs), batch()
    head = "qa_outputs" if form == "span" else "classifier"
    reference = theirs(kind, model, head)
    inputs = {
        "input_ids": given_batch["tokens"][:, 0],
        "token_type_ids": given_batch["segments"][:, 0],
        "attention_mask": given_batch["mask"][:, 0].long(),
    }
    logits = run(model, given_batch)
    if form == "span":
        positions = torch.tensor([[2, 4], [1, 1], [0, 0]])
        expected = reference(**inputs)
        bias = torch.where(given_batch["mask"][:, 0], 0.0, -torch.inf)
        found = (expected.start_logits, expected.end_logits)
        parts = [cross_entropy(each + bias, positions[:, at]) for at, each in enumerate(found)]
        its, loss = sum(parts) / 2, span_loss(logits, positions)
    else:
        labels = torch.randint(0, 5, (3, 9)).where(given_batch["mask"][:, 0], torch.tensor(IGNORE_INDEX))
        its, loss = reference(**inputs, labels=labels).loss, tag_loss(logits, labels)
    assert loss.item() == pytest.approx(its.item(), abs=1e-4)
    loss.backward()
    its.backward()
    for name, gradient in named(reference, model, gradients=True, head=head).items():
        theirs_too = reference.get_parameter(name).grad
        assert theirs_too is not None
        torch.testing.assert_close(gradient, theirs_too, rtol=1e-4, atol=1e-4, msg=name)


# --- jobs


def folder_of(folder: Path, pieces: WordPieceTokenizer, task: str) -> Path:
    """A dataset of the public format, encoded."""
    public = folder / "datasets"
    if task == "conll2003":
        (public / "CoNLL2003").mkdir(parents=True, exist_ok=True)
        for name, n in (("eng.train", 60), ("eng.testa", 20), ("eng.testb", 10)):
            rng = np.random.default_rng([n])
            lines = []
            for _ in range(n):
                who, place = WORDS[rng.integers(0, 4)], WORDS[rng.integers(4, 6)]
                lines.append(f"{who} I-PER\nwent O\nto O\n{place} I-LOC\n. O\n")
            (public / "CoNLL2003" / name).write_text("\n".join(lines), encoding="utf-8")
    else:
        (public / "SQuAD").mkdir(parents=True, exist_ok=True)
        version = "v1.1" if task == "squad" else "v2.0"
        for split, n in (("train", 96), ("dev", 30)):
            paragraphs = []
            for number, row in enumerate(spans(n, split)):
                (place,) = row.annotations
                answer = {"text": row.fields[1][place.start : place.end], "answer_start": place.start}
                gone = task == "squad2" and number % 3 == 0
                asked = {"id": row.id, "question": row.fields[0], "answers": [] if gone else [answer]}
                if gone:
                    asked |= {"is_impossible": True, "question": "who saw rome"}
                paragraphs.append({"context": row.fields[1], "qas": [asked]})
            text = json.dumps({"data": [{"title": "", "paragraphs": paragraphs}]})
            (public / "SQuAD" / f"{split}-{version}.json").write_text(text, encoding="utf-8")
    encode_task(task_spec(task), str(public), pieces, folder / task)
    return folder / task


def job(folder: Path, pieces: WordPieceTokenizer, task: str, **changes: Any) -> dict[str, Any]:
    start = folder / "pretrained"
    if not start.exists():
        torch.manual_seed(0)
        Encoder(config("bert", n_vocab=pieces.n_vocab, n_ctx=32)).save(start)
        (start / "meta.json").write_text(json.dumps({"tokenizer_digest": pieces.digest}), encoding="utf-8")
    settings = {"lr": 5e-3, "batch_size": 8, "epochs": 8, "precision": "float32", "lm_coef": 0.0, "warmup": 0.1}
    return {
        "task": task,
        "finetune": settings | changes,
        "model": str(start),
        "dataset": str(folder_of(folder, pieces, task)),
        "workspace": str(folder / f"run-{task}"),
        "threads": 1,
    }


@pytest.mark.parametrize(
    ("task", "select", "at_least"), [("squad", "dev", 0.9), ("squad2", "held-out", 0.85), ("conll2003", "refit", 0.95)]
)
def test_a_job_learns_and_its_model_answers_own_rows(
    tmp_path: Path, pieces: WordPieceTokenizer, monkeypatch: pytest.MonkeyPatch, task: str, select: str, at_least: float
) -> None:
    given_job, tuned_on, tuned = job(tmp_path, pieces, task, select=select), set[int](), SpanPredictions.tuned
    monkeypatch.setattr(SpanPredictions, "tuned", lambda self: tuned_on.add(self.rows.n_rows) or tuned(self))
    finetune.run(given_job, process.StopRequest())
    assert tuned_on == {"squad": {30}, "squad2": {20}, "conll2003": set()}[task], "the threshold, on rows that choose"
    workspace = Path(given_job["workspace"])
    result = json.loads((workspace / "result.json").read_text())
    assert result["dev/score"] >= at_least, result
    assert result["dev/score_stderr"] >= 0
    assert result["rows"]["train"] == {"squad": 96, "squad2": 76, "conll2003": 60}[task]
    again = evaluate(workspace / "model", Path(given_job["dataset"]), "dev", precision="float32")
    assert again["score"] == pytest.approx(result["dev/score"])
    model = TaskModel(workspace / "model", pieces)
    passage = "dora saw the red hat . anna went to oslo ."
    if task == "conll2003":
        (row,) = predict_jsonl(model, [json.dumps({"text": "anna went to oslo ."}).encode()])
        assert row["tags"] == ["B-PER", "O", "O", "B-LOC", "O"]
        assert row["entities"][1] == {"text": "oslo", "kind": "LOC", "start": 13, "end": 17}
        as_list = json.dumps({"words": ["anna", "went", "to", "oslo", "."]}).encode()
        assert next(predict_jsonl(model, [as_list])) == row
        with pytest.raises(InputError, match=r"field 'words, number 2': found 'b c', expected a word|number 2"):
            list(predict_jsonl(model, [b'{"words": ["a", "b c"]}']))
    else:
        lines = [json.dumps({"question": "where is anna", "context": passage}).encode()]
        (row,) = predict_jsonl(model, lines)
        assert (row["answer"], passage[row["start"] : row["end"]]) == ("oslo", "oslo")
        assert ("no_answer" in row) == (task == "squad2")
        with pytest.raises(InputError, match="'context' or 'passage'"):
            list(predict_jsonl(model, [b'{"question": "who"}']))
    lines_written = (workspace / "predictions" / "dev.jsonl").read_text().splitlines()
    assert len(lines_written) == {"squad": 30, "squad2": 30, "conll2003": 20}[task]


@pytest.mark.parametrize("task", ["squad", "conll2003"])
def test_fine_tuning_goes_on_bit_for_bit_after_a_kill(tmp_path: Path, pieces: WordPieceTokenizer, task: str) -> None:
    whole = job(tmp_path, pieces, task, epochs=4, words=True)
    finetune.run(whole, process.StopRequest())
    killed = {**whole, "workspace": str(tmp_path / "killed")}
    (tmp_path / "job.json").write_text(json.dumps(killed), encoding="utf-8")
    command = [sys.executable, "-m", "gptcore.training.finetune", str(tmp_path / "job.json")]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as child:
        wait_for(lambda: list(tmp_path.glob("killed/checkpoints/step-*/manifest.json")), child)
        child.kill()
    finetune.run(killed, process.StopRequest())
    assert outcome(Path(whole["workspace"])) == outcome(Path(killed["workspace"]))


def test_a_decoder_is_told_that_it_cannot_point(tmp_path: Path, pieces: WordPieceTokenizer) -> None:
    given_job = job(tmp_path, pieces, "squad", lr=1e-3)
    GPT(dataclasses.replace(MODEL, n_vocab=pieces.n_vocab)).save(tmp_path / "decoder")
    with pytest.raises(InputError, match="squad: found GPT-1, which answers for a text as a whole; exp"):
        finetune.run({**given_job, "model": str(tmp_path / "decoder")}, process.StopRequest())


def test_marks_are_read_as_they_were_written(tmp_path: Path, pieces: WordPieceTokenizer) -> None:
    folder = folder_of(tmp_path, pieces, "squad2")
    split = read_marked(folder, "dev")
    assert len(split) == 30
    for row in split:
        for place in row.annotations:
            assert row.text[place.start : place.end] in WORDS
        assert row.fields[-1].tolist() == pieces.encode_clean(row.text).tolist()
    with pytest.raises(InputError, match="expected an encoded split"):
        read_marked(folder, "test")


ROW: dict[str, Any] = {
    "tokens": ["Ann", "Low", ",", "a", "child", "of", "Bo", "."],
    "h": ["bo", "Q1", [[6], [7]]],
    "t": ["ann low", "Q2", [[0, 1]]],
}


def written(folder: Path, whole: Any) -> str:
    (folder / "FewRel").mkdir(exist_ok=True)
    (folder / "FewRel" / "val_wiki.json").write_text(json.dumps(whole))
    return str(folder)


def test_the_first_mentions_are_marked_and_relations_have_their_names(tmp_path: Path) -> None:
    url = written(tmp_path, {"P40": [ROW] * 6, "P26": [ROW]})
    rows = [*load_task("fewrel", url, "train"), *load_task("fewrel", url, "dev")]
    assert {row.fields for row in rows} == {("tail Ann Low tail , a child of head Bo head .",)}
    assert sorted(row.label for row in rows if row.label is not None) == [10.0, *[14.0] * 6]  # spouse, child
    assert len({row.row for row in rows}) == 7


def test_rows_of_one_group_are_in_one_split(tmp_path: Path) -> None:
    url = written(tmp_path, {"P40": [{**ROW, "group": f"g{number // 5}"} for number in range(50)]})
    train, dev = ({row.group for row in load_task("fewrel", url, split)} for split in ("train", "dev"))
    assert len(train | dev) == 10
    assert dev
    assert not train & dev


@pytest.mark.parametrize(("field", "value", "words"), expected(__file__, "test_a_broken_row_names_its_place"))
def test_a_broken_row_names_its_place(tmp_path: Path, field: str, value: Any, words: str) -> None:
    broken = {**copy.deepcopy(ROW), field: value}
    with pytest.raises(InputError, match=re.escape(words)) as error:
        load_task("fewrel", written(tmp_path, {"P26": [ROW, broken]}), "train")
    assert "val_wiki.json" in str(error.value)


@pytest.mark.parametrize(
    ("whole", "words"),
    [
        ({"P999": [ROW]}, "found the relation 'P999', expected one of P177"),
        ({"P26": {}}, "relation P26: found {}, expected a list of rows"),
        ({"P26": [3]}, "relation P26, row 1: found 3, expected an object"),
        ([ROW], "expected an object with rows by their relation"),
    ],
)
def test_another_structure_is_refused(tmp_path: Path, whole: Any, words: str) -> None:
    with pytest.raises(InputError, match=re.escape(words)):
        load_task("fewrel", written(tmp_path, whole), "train")


def test_the_real_file_is_read_whole() -> None:
    folder = str(real_data("FewRel").parent)
    sizes = {split: len(load_task("fewrel", folder, split)) for split in ("train", "dev")}
    assert sizes == {"train": 9600, "dev": 1600}
