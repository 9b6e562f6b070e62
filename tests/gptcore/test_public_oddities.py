"""What the public files of the twelve datasets are known to hold, row by row: whole files are read."""

from __future__ import annotations

import json
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gptcore.base.errors import InputError
from gptcore.evaluation import submission
from gptcore.evaluation.predict import TaskModel
from gptcore.evaluation.submission import SUBMISSION, glue_submission
from gptcore.nlu import load_task
from gptcore.nlu.encoded import encode_task
from gptcore.nlu.findings import Findings
from gptcore.nlu.forms import form_of
from gptcore.nlu.held_out import held_out_rows
from gptcore.nlu.inputs import EncoderReader
from gptcore.nlu.own_rows import read_own_rows
from gptcore.nlu.registry import task_spec
from tests.gptcore.datasets import write_bytes
from tests.gptcore.tiny_glue import save_model, tokenizer, write_test_file
from tests.gptcore.tiny_tasks import (
    PIECES,
    PieceTokenizer,
    ToyTokenizer,
    finetune_job,
    finetuned,
    pretrained,
    task_rows,
)

Rows = list[tuple[tuple[str, ...], float]]
"""Texts and labels as they are read."""
MNLI_HEADER = "index\tpromptID\tpairID\tgenre\ts1b\ts2b\ts1p\ts2p\tsentence1\tsentence2\tlabel1\tgold_label"
STSB_HEADER = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore"
QQP_HEADER = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate"
STORY_HEADER = "InputStoryid,InputSentence1,InputSentence2,InputSentence3,InputSentence4"
STORY_HEADER += ",RandomFifthSentenceQuiz1,RandomFifthSentenceQuiz2,AnswerRightEnding"


def snli(gold: str, first: str, second: str) -> str:
    row = {"annotator_labels": [gold], "captionID": "1.jpg#0", "gold_label": gold, "pairID": "1.jpg#0r1n"}
    row |= {"sentence1": first, "sentence2": second, "sentence1_parse": "(ROOT)", "sentence2_parse": ""}
    return json.dumps(row)


ODDITIES: dict[str, tuple[str, str, list[str], Rows]] = {
    "mnli": (
        "train",
        "MNLI/train.tsv",
        [
            MNLI_HEADER,
            '0\t1\t1n\tfiction\t( He )\t( A )\t(ROOT)\t(ROOT)\t"He said so.\tn/a\tneutral\tneutral',
            "1\t2\t2e\tslate\t\t\t\t\tuh-huh \tHe \u2028 left.\u0085 \tentailment\tentailment",
        ],
        [(('"He said so.', "n/a"), 1), (("uh-huh ", "He \u2028 left.\u0085 "), 0)],
    ),
    "snli": (
        "train",
        "SNLI/snli_1.0_train.jsonl",
        [snli("-", "A", "B"), snli("neutral", "A man.", " N/A "), snli("entailment", '"A" dog\u2028', "null")],
        [(("A man.", " N/A "), 1), (('"A" dog\u2028', "null"), 0)],
    ),
    "scitail": (
        "train",
        "SciTail/tsv_format/scitail_1.0_train.tsv",
        ['Pluto "rotates.\tPluto turns.\tneutral', "* A cell , 5\u2033.\tA cell is small.\tentails\r"],
        [(('Pluto "rotates.', "Pluto turns."), 0), (("* A cell , 5\u2033.", "A cell is small."), 1)],
    ),
    "qnli": (
        "train",
        "QNLI/train.tsv",
        [
            "index\tquestion\tsentence\tlabel",
            '0\tWho is "X?\tX is "Y" (French: Z\u2009).[citation needed]\tentailment',
            "1\t'What\u0085?\t\"\tnot_entailment",
        ],
        [(('Who is "X?', 'X is "Y" (French: Z\u2009).[citation needed]'), 1), (("'What\u0085?", '"'), 0)],
    ),
    "rte": (
        "train",
        "RTE/train.tsv",
        ["index\tsentence1\tsentence2\tlabel", '0\t"A\xa0" -- B --\tA, "B\tentailment'],
        [(('"A\xa0" -- B --', 'A, "B'), 1)],
    ),
    "storycloze": (
        "test",
        "StoryCloze/cloze_test_test__spring2016 - cloze_test_ALL_test.csv",
        [
            STORY_HEADER,
            '138d5bfb-05cc,Rick "was" bad.,"He fell, hard.","He said ""no"".",So?,"Good,\nsaid he.",B\ufffd.,2',
        ],
        [(('Rick "was" bad. He fell, hard. He said "no". So?',), 1)],
    ),
    "race": (
        "train",
        "RACE/train/high/1.txt",
        [
            json.dumps(
                {
                    "answers": ["D"],
                    "options": [[" a\n", "\u3000b", "A", "a"]],
                    "questions": ["  _  is right?"],
                    "article": "It \u2028 was.\r\n\tSo",
                    "id": "high1.txt",
                }
            )
        ],
        [(("It \u2028 was.\r\n\tSo", "  _  is right?"), 3)],
    ),
    "cola": (
        "train",
        "CoLA/train.tsv",
        ['gj04\t0\t*\tThe "more we.', "gj04\t0\t??\tThem.", "gj04\t1\t\t The ", "gj04\t1\t\t The "],
        [(('The "more we.',), 0), (("Them.",), 0), ((" The ",), 1), ((" The ",), 1)],
    ),
    "sst2": (
        "train",
        "SST-2/train.tsv",
        ["sentence\tlabel", "hide new secretions \t0", '"a great\xa0film " \t1', "hide new secretions \t0"],
        [(("hide new secretions ",), 0), (('"a great\xa0film " ',), 1), (("hide new secretions ",), 0)],
    ),
    "mrpc": (
        "train",
        "MRPC/train.tsv",
        ["\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String", '1\t1\t1\t" We left .\tThey said " we left\r'],
        [(('" We left .', 'They said " we left'), 1)],
    ),
    "stsb": (
        "train",
        "STS-B/train.tsv",
        [
            STSB_HEADER,
            '0\tmain-news\theadlines\t2015\t0\tnone\tnone\t"A\tB"\t4.2',
            "1\tx\tx\t2012\t1\t\t\tA.\tA.\t5.000",
        ],
        [(('"A', 'B"'), 4.2), (("A.", "A."), 5.0)],
    ),
}


def write(folder: Path, path: str, lines: list[str], end: str = "\n") -> str:
    write_bytes(f"{folder}/{path}", "\n".join(lines).encode() + end.encode())
    return str(folder)


@pytest.mark.parametrize("end", ["", "\n", "\n\n"])
@pytest.mark.parametrize("task", ODDITIES)
def test_rows_are_read_as_they_are(task: str, end: str, tmp_path: Path) -> None:
    split, path, lines, expected = ODDITIES[task]
    if task == "race":
        middle = [lines[0].replace("high", "middle")]
        write(tmp_path, "RACE/train/middle/1.txt", middle, end)
        expected = expected * 2
    found = load_task(task, write(tmp_path, path, lines, end), split)
    assert [(row.fields, row.label) for row in found] == expected


def qqp(folder: Path, *rows: str) -> str:
    return write(folder, "QQP/train.tsv", [QQP_HEADER, *rows])


EMPTY = "4\t9\t10\t\tMy name is Li. What is that?\t0"
OTHER = "5\t11\t12\tHow do I make an app?\t\t0"


def test_a_row_of_qqp_with_one_question_is_a_row(tmp_path: Path) -> None:
    quoted = '3\t7\t8\tMarriage\t"""Marriage is an institution."" What?"\t0'
    url = qqp(tmp_path, quoted, EMPTY, OTHER, '6\t13\t14\tWhy "so?\tA \r B\u2028\t1')
    found = load_task("qqp", url, "train")
    assert [row.fields for row in found] == [
        ("Marriage", '"""Marriage is an institution."" What?"'),
        ("", "My name is Li. What is that?"),
        ("How do I make an app?", ""),
        ('Why "so?', "A \r B\u2028"),
    ]
    told = Findings(task_spec("qqp"))
    for row in found:
        told.add("train", row)
    note = "2 of 4 train rows have an empty text, which is read as it is (QQP/train.tsv:3)"
    assert note in list(told.notes())


def test_what_has_no_text_at_all_is_no_row_nor_is_an_empty_text_of_another_task(tmp_path: Path) -> None:
    for row, column in (("4\t9\t10\t\t \t0", "question1"), ("4\t9\t10\tA\tB", "number of columns")):
        with pytest.raises(InputError, match=rf"QQP/train\.tsv, line 2, (column '{column}'|{column}): found"):
            load_task("qqp", qqp(tmp_path, row), "train")
    lines = ["index\tsentence1\tsentence2\tlabel", "0\t\tA.\tentailment"]
    url = write(tmp_path, "RTE/train.tsv", lines)
    with pytest.raises(InputError, match=r"RTE/train\.tsv, line 2, column 'sentence1': found '', expected text that"):
        load_task("rte", url, "train")


def test_a_question_over_several_lines_is_one_row(tmp_path: Path) -> None:
    """Quora's own file and the first of GLUE's have such; what a broken quote takes in beyond its row is an error."""
    url = qqp(tmp_path, '7\t15\t16\tWho?\t"Was he', "", 'real?""', '"\t0', '8\t1\t2\t"Was he real', '"\tWhat?\t1')
    assert [(row.fields, row.label, row.row) for row in load_task("qqp", url, "train")] == [
        (("Who?", '"Was he\n\nreal?""\n"'), 0, "QQP/train.tsv:2"),
        (('"Was he real\n"', "What?"), 1, "QQP/train.tsv:6"),
    ]
    for broken in ('7\t15\t16\tWho?\t"Was he', "7\t15\t16\tWho?\tWas he", '7\t15\t16\tWho?\t"Was" he'):
        for rest in ([], ["8\t1\t2\tA\tB\t0"]):
            with pytest.raises(InputError, match=r"line 2, number of columns: found 5, expected 6 \(id, "):
                load_task("qqp", qqp(tmp_path, broken, *rest), "train")
    own = write(tmp_path, "RTE/train.tsv", ["index\tsentence1\tsentence2\tlabel", "0\tA\tB"])
    with pytest.raises(InputError, match="line 2, number of columns: found 3, expected 4"):
        load_task("rte", own, "train")


def test_an_empty_question_goes_all_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Floors, ids of decoders and encoders, held-out rows, a fine-tune with n-grams, answers, and GLUE's zip."""
    words = ("red", "blue", "cat", "dog", "runs", "sleeps")
    lines = [f"{n}\t1\t2\t{words[n % 6]} {words[n % 5]}\tgood {words[n % 4]}\t{n % 2}" for n in range(60)]
    lines[10:12] = ["10\t1\t2\t\tred cat\t0", "11\t1\t2\tred dog\t\t0"]
    url = qqp(tmp_path, *lines)
    write(tmp_path, "QQP/dev.tsv", [QQP_HEADER, *lines[:30]])
    spec, train = task_spec("qqp"), load_task("qqp", url, "train")
    for name, floor in form_of(spec).fitted_floors().items():
        assert np.isfinite(floor(spec, train, train[:30])["score"]), name
    encode_task(spec, url, PieceTokenizer(), tmp_path / "pieces")
    sequences = task_rows(spec, tmp_path / "pieces", "dev", kind=EncoderReader, n_ctx=24, n_vocab=34, pieces=PIECES)
    assert sequences.batch([10]).tokens.tolist()[0][0][:2] == [PIECES.cls, PIECES.sep]
    assert len(sequences) == 30
    encode_task(spec, url, ToyTokenizer(), tmp_path / "encoded")
    assert len(held_out_rows(tmp_path / "encoded", np.arange(60))) == 20
    settings = {"lr": 1e-2, "batch_size": 16, "precision": "float32", "epochs": 1, "ngrams": 2}
    job = finetune_job("qqp", pretrained(tmp_path / "model"), tmp_path / "encoded", tmp_path / "work", settings)
    assert finetuned(job)["rows"]["dev"] == 30
    vocabulary = tokenizer()
    model = TaskModel(save_model("qqp", vocabulary, tmp_path / "qqp"), vocabulary)
    asked = [b'{"text1": "", "text2": "the cat"}\n', b'{"question1": "the cat", "question2": ""}\n']
    one, other = model.described(read_own_rows(spec, asked))
    assert one == other, "neither is the first by nature"
    with pytest.raises(
        InputError, match="standard input, line 1, column 'text1': found '', expected text that is not empty"
    ):
        list(read_own_rows(spec, [b'{"text1": "", "text2": " "}']))
    (file,) = (file for file in SUBMISSION if file.task == "qqp")
    write_test_file(url, file, [("", "the cat"), ("the cat", ""), ("who", "said")])
    monkeypatch.setattr(submission, "SUBMISSION", (replace(file, rows=3),))
    glue_submission({"qqp": tmp_path / "qqp"}, vocabulary, url, tmp_path / "glue.zip")
    with zipfile.ZipFile(tmp_path / "glue.zip") as archive:
        assert len(archive.read("QQP.tsv").splitlines()) == 4
