"""Section 5's heuristics against plain twins, on hand-written rows and a tiny random model."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import matthews_corrcoef

from gptcore.base.errors import InputError
from gptcore.base.files import sha256_json
from gptcore.config import ModelConfig
from gptcore.evaluation.likelihood import NetworkLikelihood
from gptcore.evaluation.zero_shot import ZERO_SHOT_TASKS, _matthews, best_threshold, sources_fingerprint, zero_shot
from gptcore.models.transformer import GPT
from gptcore.nlu import task_spec
from gptcore.nlu.encoded import dataset_fingerprint
from gptcore.nlu.readers.winograd import read_dprd
from gptcore.papers.prompting.rows import select
from gptcore.papers.prompting.score import answer
from gptcore.papers.prompting.tasks import prompt_task
from gptcore.text.bpe import WordTokenizer
from gptcore.text.byte_bpe import ByteTokenizer
from tests.expected import expected as table_of
from tests.realdata import real_data

TEXT = "the cat sat on the mat because it was tired . very positive very negative what did who yes no"
SENTENCES = [("the cat sat", 1), ("cat the mat on", 0), ("it was tired .", 1), ("tired the was the", 0), ("no", 0)]


def tiny_gpt(n_vocab: int, n_ctx: int = 24) -> GPT:
    torch.manual_seed(5)
    return GPT(
        ModelConfig(n_vocab=n_vocab, n_ctx=n_ctx, n_layer=2, n_head=2, n_embd=16, n_inner=32, init_std=0.3)
    ).eval()


def plain_total(gpt: GPT, context: list[int], continuation: list[int]) -> tuple[float, int]:
    """One sequence, one token at a time."""
    ids = (context + continuation)[-gpt.config.n_ctx - 1 :]
    total, count = 0.0, 0
    for at in range(1, len(ids)):
        if at >= len(ids) - len(continuation):
            with torch.no_grad():
                logits = gpt(torch.tensor([ids[:at]]))[0, -1]
            total += torch.log_softmax(logits.double(), -1)[ids[at]].item()
            count += 1
    return total, count


@pytest.fixture
def world(tmp_path):
    """A model folder, a tokenizer and four tiny datasets."""
    tokenizer = WordTokenizer.train([TEXT] * 3, 60)
    gpt = tiny_gpt(tokenizer.n_vocab)
    gpt.save(tmp_path / "model")
    data = tmp_path / "data"
    for folder in ("CoLA", "SST-2", "DPRD", "RACE/dev/middle", "RACE/dev/high"):
        (data / folder).mkdir(parents=True)
    for split, rows in (("train", SENTENCES), ("dev", SENTENCES[::-1])):
        lines = "".join(f"src\t{label}\t{'*' if not label else ''}\t{text}\n" for text, label in rows)
        (data / "CoLA" / f"{split}.tsv").write_text(lines, encoding="utf-8")
        lines = "sentence\tlabel\n" + "".join(f"{text} \t{label}\n" for text, label in rows)
        (data / "SST-2" / f"{split}.tsv").write_text(lines, encoding="utf-8")
    block = "The cat sat on the mat because it was tired.\nit\nThe cat,the mat\nThe cat\n\n\n"
    (data / "DPRD" / "test.c.txt").write_text(block * 3, encoding="utf-8")
    for level in ("middle", "high"):
        passage = {
            "answers": ["A", "D"],
            "options": [["the cat", "the mat", "no", "yes"], ["yes", "no no", "tired", "sat"]],
            "questions": ["who sat ?", "the cat was _ ."],
            "article": "the cat sat on the mat . " * 6,
            "id": f"{level}1.txt",
        }
        (data / "RACE" / "dev" / level / "1.txt").write_text(json.dumps(passage), encoding="utf-8")
    return tmp_path / "model", tokenizer, str(data), gpt


def test_all_four_tasks_agree_with_a_plain_twin(world):
    model, tokenizer, data, gpt = world
    calls = []
    result = zero_shot(model, tokenizer, data, progress=lambda *call: calls.append(call))
    assert {task: (value["rows"], value["chance"]) for task, value in result.items()} == {
        "cola": (5, 0.0),
        "sst2": (5, 0.5),
        "race": (4, 0.25),
        "dprd": (3, 0.5),
    }
    assert {call[0] for call in calls} == set(ZERO_SHOT_TASKS)
    assert all(max(c[1] for c in calls if c[0] == task) == calls[-1][2] for task in ["dprd"])

    words = [tokenizer.encode(word) for word in ("negative", "positive")]
    right = []
    for text, label in SENTENCES:
        context = tokenizer.encode(text + " very")
        right.append(np.argmax([plain_total(gpt, context, word)[0] for word in words]) == label)
    assert result["sst2"]["score"] == pytest.approx(np.mean(right))

    def mean(context, continuation):
        total, count = plain_total(gpt, context, continuation)
        return total / max(1, count)

    means = np.asarray([mean([], tokenizer.encode(text)) for text, _ in SENTENCES])
    labels = np.asarray([label for _, label in SENTENCES])
    best = max(matthews_corrcoef(labels, means > cut) for cut in means)
    assert result["cola"]["score"] == pytest.approx(best, abs=1e-6)  # dev holds the same rows as train here

    options = [(0, ["the cat", "the mat", "no", "yes"]), (3, ["yes", "no no", "tired", "sat"])]
    right = []
    for question, (label, choices) in zip(["who sat ?", "the cat was _ ."], options, strict=True):
        context = tokenizer.encode("the cat sat on the mat . " * 6 + question)
        right.append(np.argmax([mean(context, tokenizer.encode(choice)) for choice in choices]) == label)
    assert result["race"]["score"] == pytest.approx(np.mean(right))

    rest = tokenizer.encode("was tired.")
    named = [mean(tokenizer.encode(f"The cat sat on the mat because {name}"), rest) for name in ("the cat", "the mat")]
    assert result["dprd"]["score"] == float(named[0] > named[1])
    file = Path(data) / "DPRD" / "test.c.txt"
    cola = dataset_fingerprint(task_spec("cola"), data)
    files = {"cola": cola, "dprd": hashlib.sha256(file.read_bytes()).hexdigest()}
    assert sources_fingerprint(data, ["cola", "dprd"]) == sha256_json(files)
    file.unlink()
    with pytest.raises(InputError, match=r"DPRD/test\.c\.txt: no such file"):
        sources_fingerprint(data, ["dprd"])


def test_colas_threshold_comes_from_the_training_rows(world):
    """Dev rows whose labels are all turned round get the opposite score, where a threshold of their own would not."""
    model, tokenizer, data, _ = world
    straight = zero_shot(model, tokenizer, data, ["cola"])["cola"]
    lines = "".join(f"src\t{1 - label}\t\t{text}\n" for text, label in SENTENCES[::-1])
    (Path(data) / "CoLA" / "dev.tsv").write_text(lines, encoding="utf-8")
    turned = zero_shot(model, tokenizer, data, ["cola"])["cola"]
    assert straight["score"] > 0
    assert turned["score"] == pytest.approx(-straight["score"])
    assert turned["threshold"] == straight["threshold"]


def test_a_schema_is_spelt_as_in_a_prompt(world):
    """A referent that stood at the beginning of a sentence, and whose something is: one score, whoever asks.

    Right is what the plain twin says by the spelling of prompts, so that any other one would have a lower score.
    """
    model, _, data, _ = world
    names = [("The cat", "the mat"), ("A dog", "Tom"), ("The mat", "The dog"), ("Ann", "The king"), ("the cat", "Tom")]
    asked = [
        (f"{a} saw {b} because {pronoun} {rest}.", pronoun, a, b)
        for a, b in names
        for pronoun, rest in (("it", "was tired"), ("his", "mat was positive"))
    ]

    def write(right):
        blocks = [f"{text}\n{who}\n{a},{b}\n{(a, b)[r]}\n\n" for (text, who, a, b), r in zip(asked, right, strict=True)]
        for split in ("test", "train"):
            (Path(data) / "DPRD" / f"{split}.c.txt").write_text("".join(blocks), encoding="utf-8")
        return list(read_dprd(data, "test"))

    schemas = write([0] * len(asked))
    tokenizer = ByteTokenizer.train([TEXT + " ".join(text for text, *_ in asked)] * 3, 60)
    gpt = tiny_gpt(tokenizer.n_vocab, n_ctx=64)
    gpt.save(model)

    def guesses(spelt):
        rests = [tokenizer.encode_next(schema.after) for schema in schemas]
        nats = [
            [plain_total(gpt, tokenizer.encode(spelt(schema, referent)), rest)[0] for referent in range(2)]
            for schema, rest in zip(schemas, rests, strict=True)
        ]
        return np.argmax(nats, axis=1).tolist()

    right = guesses(lambda schema, referent: schema.resolved(referent))
    assert right != guesses(lambda schema, referent: f"{schema.before} {schema.referents[referent]}")
    write(right)
    task = prompt_task("dprd")
    found = answer(gpt, tokenizer, task, select(task.read(data), 0), 0)
    assert zero_shot(model, tokenizer, data, ["dprd"])["dprd"]["score"] == found.scores["score"] == 1.0


def test_the_verdicts_of_sst2_compare_by_the_whole_words_probability(world):
    """Whatever the pieces that a small vocabulary cuts them into; the mean of these would prefer the one of more."""
    model, _, data, _ = world
    tokenizer = ByteTokenizer.train(["negative very the cat sat on a mat"] * 3, 20)
    words = [tokenizer.encode_next(word) for word in ("negative", "positive")]
    assert len(words[0]) < len(words[1])
    gpt = tiny_gpt(tokenizer.n_vocab, n_ctx=64)
    gpt.save(model)
    texts = ["the cat sat", "a mat", "cat on the mat", "sat", "the mat on a cat", "very cat"]

    def guesses(divided):
        contexts = [tokenizer.encode(f"{text} very") for text in texts]
        nats = [[plain_total(gpt, context, word)[0] for word in words] for context in contexts]
        return np.argmax(np.divide(nats, [len(word) if divided else 1 for word in words]), axis=1).tolist()

    right = guesses(divided=False)
    assert right != guesses(divided=True)
    lines = "sentence\tlabel\n" + "".join(f"{text} \t{label}\n" for text, label in zip(texts, right, strict=True))
    (Path(data) / "SST-2" / "dev.tsv").write_text(lines, encoding="utf-8")
    assert zero_shot(model, tokenizer, data, ["sst2"])["sst2"]["score"] == 1.0


def test_answers_of_race_compare_by_the_mean_of_their_tokens(world):
    """Section 5: the highest average token log-probability; a sum would prefer short answers."""
    model, tokenizer, data, gpt = world
    options = ["no", "the cat sat on the mat", "it was tired because it was tired", "very very very"]
    article, questions = "the cat sat on the mat .", ["who sat ?", "what was it ?", "did the cat ?", "who was tired ?"]

    def guesses(divided):
        found = []
        for question in questions:
            pairs = [(tokenizer.encode(f"{article} {question}"), tokenizer.encode(option)) for option in options]
            scores = [plain_total(gpt, *pair) for pair in pairs]
            found.append(int(np.argmax([total / (count if divided else 1) for total, count in scores])))
        return found

    right = guesses(divided=True)
    assert right != guesses(divided=False)
    passage = {"answers": ["ABCD"[place] for place in right], "options": [options] * 4, "questions": questions}
    for level in ("middle", "high"):
        text = json.dumps({**passage, "article": article, "id": f"{level}1.txt"})
        (Path(data) / "RACE" / "dev" / level / "1.txt").write_text(text, encoding="utf-8")
    assert zero_shot(model, tokenizer, data, ["race"])["race"]["score"] == 1.0


def test_max_rows_is_a_seeded_choice(world):
    model, tokenizer, data, _ = world
    first = zero_shot(model, tokenizer, data, ["sst2", "cola"], max_rows=2)
    assert first["sst2"]["rows"] == first["cola"]["rows"] == 2
    assert first == zero_shot(model, tokenizer, data, ["sst2", "cola"], max_rows=2)


def test_unknown_tasks_and_foreign_tokenizers_are_refused(world):
    model, tokenizer, data, _ = world
    with pytest.raises(InputError, match="--tasks: found 'rte', expected one of cola, sst2, race, dprd"):
        zero_shot(model, tokenizer, data, ["rte"])
    other = WordTokenizer.train([TEXT], 5)
    with pytest.raises(InputError, match="n_vocab"):
        zero_shot(model, other, data, ["sst2"])


@settings(max_examples=12)
@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 29), max_size=30), st.lists(st.integers(0, 29), max_size=12)),
        min_size=1,
        max_size=6,
    )
)
def test_batched_scores_equal_scores_one_by_one(pairs):
    gpt = tiny_gpt(30, n_ctx=16)
    sums, counts = NetworkLikelihood(gpt).continuations(pairs)
    for (context, continuation), total, count in zip(pairs, sums, counts, strict=True):
        expected, n = plain_total(gpt, context, continuation)
        assert count == n
        assert total == pytest.approx(expected, abs=1e-3)


score_lists = st.lists(st.tuples(st.integers(-5, 5).map(float), st.integers(0, 1)), min_size=2, max_size=30)


@given(score_lists)
def test_the_threshold_is_the_best_of_all(rows):
    scores, labels = np.asarray([row[0] for row in rows]), np.asarray([row[1] for row in rows])
    found = matthews_corrcoef(labels, scores > best_threshold(scores, labels))
    best = max((matthews_corrcoef(labels, scores > cut) for cut in np.unique(scores)[:-1]), default=0.0)
    assert found == pytest.approx(best, abs=1e-9)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 1)), min_size=1, max_size=30))
def test_matthews_equals_the_library(rows):
    predicted, labels = np.asarray([row[0] for row in rows]), np.asarray([row[1] for row in rows])
    assert _matthews(predicted, labels) == pytest.approx(matthews_corrcoef(labels, predicted), abs=1e-9)


def dprd(tmp_path, text):
    (tmp_path / "DPRD").mkdir()
    (tmp_path / "DPRD" / "test.c.txt").write_text(text, encoding="utf-8")
    return str(tmp_path)


def test_the_pronoun_is_the_one_after_both_referents(tmp_path):
    url = dprd(
        tmp_path,
        "Firefox says they have fewer holes than Explorer, but they lie.\nthey\nFirefox,Explorer\nExplorer\n\n"
        "Parents send their children to bed; they obey.\r\nthey\r\nParents,their children\r\ntheir children",
    )
    first, second = read_dprd(url, "test")
    assert dataclasses.astuple(first)[:2] == ("Firefox says they have fewer holes than Explorer, but", "lie.")
    assert (first.referents, first.label) == (("Firefox", "Explorer"), 1)
    assert (second.before, second.after, second.label) == ("Parents send their children to bed;", "obey.", 1)


@pytest.mark.parametrize(("text", "message"), table_of(__file__, "test_a_broken_block_is_named_by_line"))
def test_a_broken_block_is_named_by_line(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        list(read_dprd(dprd(tmp_path, text), "test"))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"DPRD/train\.c\.txt: no such file"):
        list(read_dprd(str(tmp_path), "train"))


def test_the_real_set_reads_whole():
    data = real_data("DPRD").parent
    assert [len(list(read_dprd(str(data), split))) for split in ("train", "test")] == [1322, 564]
