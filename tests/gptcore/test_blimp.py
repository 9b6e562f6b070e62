"""BLiMP: its files, its scores against plain twins, and the rules that the scores follow."""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import gptcore.evaluation.likelihood as likelihood
from gptcore.base.errors import InputError
from gptcore.config import LSTMConfig, ModelConfig
from gptcore.data.shards import Shards, write_shards
from gptcore.evaluation.likelihood import NetworkLikelihood
from gptcore.evaluation.ngram import NgramModel
from gptcore.evaluation.zero_shot import score_pairs
from gptcore.models.network import LanguageModel, build_model
from gptcore.nlu.blimp import FIELDS, PAIRS, PARADIGMS, blimp_fingerprint, has_blimp, read_paradigm
from gptcore.text.bpe import WordTokenizer
from gptcore.text.tokenizer import Tokenizer
from tests.expected import expected
from tests.gptcore.test_ngram import PlainKneserNey
from tests.gptcore.tiny_blimp import WORDS, write_blimp
from tests.realdata import real_data

TEXT = " ".join([*WORDS, "good bad . "] * 2)
N_VOCAB = 11
NETWORKS = {
    "Transformer": ModelConfig(n_vocab=N_VOCAB, n_ctx=6, n_layer=2, n_head=2, n_embd=16, n_inner=32, init_std=0.3),
    "LSTM": LSTMConfig(n_vocab=N_VOCAB, n_ctx=6, n_units=12, n_embd=8, init_std=0.3),
}
sentences = st.lists(st.lists(st.integers(0, N_VOCAB - 1), min_size=1, max_size=20), max_size=8)


def network(name: str, **changes: int) -> LanguageModel:
    torch.manual_seed(3)
    return build_model(type(NETWORKS[name])(**{**vars(NETWORKS[name]), **changes})).eval()


def plain_log_probability(model: LanguageModel, ids: list[int]) -> float:
    """One sentence at a time, all logits; a window of n_ctx + 1 tokens begins with the last one's last."""
    total, n_ctx = 0.0, model.config.n_ctx
    for begin in range(0, len(ids) - 1, n_ctx):
        inputs, targets = ids[begin : begin + n_ctx][: len(ids) - 1 - begin], ids[begin + 1 : begin + n_ctx + 1]
        with torch.no_grad():
            log_probs = torch.log_softmax(model(torch.tensor([inputs]))[0].double(), -1)  # [T, V]
        total += sum(log_probs[at, target].item() for at, target in enumerate(targets))
    return total


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize(("tokens", "logits"), [(4096, 1 << 22), (9, 3 * N_VOCAB), (1, 1)])
def test_a_networks_batches_agree_with_one_sentence_at_a_time(
    name: str, tokens: int, logits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(likelihood, "_BATCH_TOKENS", tokens)
    monkeypatch.setattr(likelihood, "_CPU_LOGITS", logits)
    model = network(name)

    @given(sentences)
    @settings(max_examples=10)
    def check(rows: list[list[int]]) -> None:
        found = NetworkLikelihood(model).log_probabilities(rows)
        expected = [plain_log_probability(model, row) for row in rows]
        assert found.tolist() == pytest.approx(expected, abs=1e-4)

    check()


@given(st.lists(st.lists(st.integers(0, 4), max_size=30), min_size=1, max_size=5), sentences, st.sampled_from([2, 3]))
@settings(max_examples=40)
def test_an_ngram_model_scores_every_sentence_by_itself(tmp_path_factory, corpus, rows, order) -> None:
    folder = tmp_path_factory.mktemp("shards")
    write_shards(((f"{n}", [row]) for n, row in enumerate(corpus)), folder, n_vocab=N_VOCAB, max_tokens=10**6)
    if max(map(len, corpus)) < order:
        with pytest.raises(InputError, match="no row of"):
            NgramModel(Shards(folder), order)
        return
    found = NgramModel(Shards(folder), order).log_probabilities(rows)
    plain = PlainKneserNey(corpus, order, N_VOCAB)
    expected = [
        sum(math.log(plain.probability(tuple(row[max(0, at - order + 1) : at]), row[at])) for at in range(1, len(row)))
        for row in rows
    ]
    assert found.tolist() == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return WordTokenizer.train([TEXT] * 3, 40)


@pytest.mark.parametrize("name", NETWORKS)
def test_scores_agree_with_a_plain_twin(name: str, tokenizer: Tokenizer, tmp_path: Path) -> None:
    write_blimp(str(tmp_path), pairs=2)
    model = network(name, n_vocab=tokenizer.n_vocab, n_ctx=64)
    told: list[tuple[str, int, int]] = []
    found = score_pairs(NetworkLikelihood(model), tokenizer, str(tmp_path), progress=lambda *news: told.append(news))
    stop = tokenizer.encode(".")
    right: dict[str, list[bool]] = {paradigm: [] for paradigm in PARADIGMS}
    for paradigm in PARADIGMS:
        for pair in read_paradigm(str(tmp_path), paradigm):
            good, bad = (plain_log_probability(model, stop + tokenizer.encode(text)) for text in (pair.good, pair.bad))
            right[paradigm].append(good > bad)
    assert found["paradigms"] == {paradigm: pytest.approx(np.mean(verdicts)) for paradigm, verdicts in right.items()}
    fields = [statistics.fmean(found["paradigms"][p] for p in paradigms) for paradigms in FIELDS.values()]
    assert list(found["fields"].values()) == pytest.approx(fields)
    assert found["score"] == pytest.approx(statistics.fmean(fields))
    assert found["paradigms_mean"] == pytest.approx(statistics.fmean(found["paradigms"].values()))
    assert found["score"] != pytest.approx(found["paradigms_mean"])  # the two means are not the same
    assert (found["pairs"], found["chance"]) == (2 * 67, 0.5)
    assert {what for what, _, _ in told} == {"blimp"}
    assert told[-1][1] == told[-1][2]


class Liking:
    """A model that likes one id and is told nothing of the others."""

    def __init__(self, n_vocab: int, liked: list[int]) -> None:
        self.n_vocab = n_vocab
        self._liked = liked
        self.seen: list[tuple[int, ...]] = []

    def log_probabilities(self, sequences, progress=None):
        self.seen += sequences
        return np.asarray([float(sum(i in self._liked for i in ids[1:])) for ids in sequences])


def test_who_likes_the_good_word_is_right_and_who_likes_the_bad_one_wrong(tokenizer: Tokenizer, tmp_path: Path) -> None:
    write_blimp(str(tmp_path))
    good, bad = tokenizer.encode("good"), tokenizer.encode("bad")
    only_good, only_bad = [i for i in good if i not in bad], [i for i in bad if i not in good]
    assert only_good
    assert only_bad
    for liked, score in ((only_good, 1.0), (only_bad, 0.0)):
        found = score_pairs(Liking(tokenizer.n_vocab, liked), tokenizer, str(tmp_path))
        assert found["score"] == found["paradigms_mean"] == score
        assert found["ties"] == 0


def test_sentences_that_cleaning_makes_equal_tie_whatever_the_model(tokenizer: Tokenizer, tmp_path: Path) -> None:
    folder = write_blimp(str(tmp_path))
    rows = [json.loads(line) for line in (folder / "passive_1.jsonl").read_text().splitlines()]
    for row in rows:
        row["sentence_bad"] = row["sentence_good"].upper()
    (folder / "passive_1.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    model = network("Transformer", n_vocab=tokenizer.n_vocab, n_ctx=64)
    found = score_pairs(NetworkLikelihood(model), tokenizer, str(tmp_path))
    assert found["paradigms"]["passive_1"] == 0.0
    assert found["ties"] == len(rows)


def test_equal_ones_are_wrong_and_every_sentence_is_scored_once_behind_a_full_stop(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    write_blimp(str(tmp_path))
    model = Liking(tokenizer.n_vocab, [])
    found = score_pairs(model, tokenizer, str(tmp_path))
    assert (found["score"], found["ties"]) == (0.0, found["pairs"])
    assert {ids[0] for ids in model.seen} == {tokenizer.encode(".")[0]}
    assert len(set(model.seen)) == len(model.seen)


def test_a_part_of_the_pairs_is_a_seeded_choice_in_equal_shares(tokenizer: Tokenizer, tmp_path: Path) -> None:
    write_blimp(str(tmp_path), pairs=5)
    model = NetworkLikelihood(network("LSTM", n_vocab=tokenizer.n_vocab, n_ctx=64))
    first, second = (score_pairs(model, tokenizer, str(tmp_path), max_pairs=6) for _ in range(2))
    assert first == second
    assert first["pairs"] == sum(len(names) * -(-6 // len(names)) for names in FIELDS.values())
    assert score_pairs(model, tokenizer, str(tmp_path), max_pairs=10**6)["pairs"] == 5 * 67


def test_a_foreign_tokenizer_is_refused(tokenizer: Tokenizer, tmp_path: Path) -> None:
    write_blimp(str(tmp_path))
    with pytest.raises(InputError, match=rf"n_vocab = {N_VOCAB}, expected the tokenizer's {tokenizer.n_vocab}"):
        score_pairs(NetworkLikelihood(network("LSTM")), tokenizer, str(tmp_path))


def test_the_files_are_the_published_ones() -> None:
    assert (len(FIELDS), len(PARADIGMS), len(set(PARADIGMS))) == (12, 67, 67)
    folder = real_data("BLiMP")
    assert {path.stem for path in folder.glob("*.jsonl")} == set(PARADIGMS)
    for paradigm in PARADIGMS:
        assert sum(1 for _ in read_paradigm(str(folder.parent), paradigm)) == PAIRS


def test_a_real_pair_is_read_as_it_stands() -> None:
    pair = next(iter(read_paradigm(str(real_data("BLiMP").parent), "wh_island")))
    assert (pair.good, pair.bad) == (
        "Who have those men revealed they helped?",
        "Who have those men revealed who helped?",
    )


@pytest.mark.parametrize(("line", "message"), expected(__file__, "test_a_broken_row_names_its_place"))
def test_a_broken_row_names_its_place(line: dict[str, object] | str, message: str, tmp_path: Path) -> None:
    path = write_blimp(str(tmp_path)) / "passive_1.jsonl"
    rows = path.read_text().splitlines()
    rows[1] = line if isinstance(line, str) else json.dumps({**json.loads(rows[1]), **line})
    path.write_text("\n".join(rows))
    with pytest.raises(InputError, match=rf"BLiMP/passive_1.jsonl, line 2,? ?.*{message}"):
        list(read_paradigm(str(tmp_path), "passive_1"))


def test_a_row_without_a_field_names_it(tmp_path: Path) -> None:
    path = write_blimp(str(tmp_path)) / "wh_island.jsonl"
    row = json.loads(path.read_text().splitlines()[0])
    del row["sentence_good"]
    path.write_text(json.dumps(row))
    with pytest.raises(InputError, match=r"line 1, column 'sentence_good': found only the columns .*, expected this"):
        list(read_paradigm(str(tmp_path), "wh_island"))


def test_missing_and_empty_files_are_named(tmp_path: Path) -> None:
    assert not has_blimp(str(tmp_path))
    folder = write_blimp(str(tmp_path))
    assert has_blimp(str(tmp_path))
    before = blimp_fingerprint(str(tmp_path))
    (folder / "wh_island.jsonl").write_text("")
    assert blimp_fingerprint(str(tmp_path)) != before
    with pytest.raises(InputError, match=r"wh_island.jsonl: found no line, expected a minimal pair in each"):
        list(read_paradigm(str(tmp_path), "wh_island"))
    (folder / "wh_island.jsonl").unlink()
    for read in (lambda: list(read_paradigm(str(tmp_path), "wh_island")), lambda: blimp_fingerprint(str(tmp_path))):
        with pytest.raises(InputError, match=r"wh_island.jsonl: found nothing there"):
            read()
