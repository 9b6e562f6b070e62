"""A model at work on titles, and the generated archive that lets it work offline."""

from __future__ import annotations

import datetime
import math

import pytest
import torch

from gptcore import GPT
from gptcore.abstracts.arxiv import Archive, Paper, archive_files, field_of, read_archive
from gptcore.abstracts.config import SamplingConfig
from gptcore.abstracts.documents import N_MARKS, marks, prompt_ids, split_by_date
from gptcore.abstracts.measures import FieldClassifier, Written, balanced, key_term, measures
from gptcore.abstracts.write import future_words, title_words, write_abstracts
from gptcore.base.errors import InputError
from gptcore.config import ModelConfig
from gptcore.storyworld.papers import archive
from gptcore.text.byte_bpe import ByteTokenizer

TITLES = ["Zalor: A Slow Kiln", "Even  Weaving\nwith Zalor", "Late Tides"]
TOKENIZER = ByteTokenizer.train(["We study a slow kiln and even weaving. " + " ".join(TITLES)] * 3, 40)


@pytest.fixture(scope="module")
def model() -> GPT:
    sizes = {"n_layer": 2, "n_head": 2, "n_embd": 16, "n_inner": 32, "init_std": 0.4, "norm_first": True}
    config = ModelConfig(n_vocab=TOKENIZER.n_vocab, n_special=N_MARKS, n_ctx=64, **sizes)
    return GPT(config, torch.Generator().manual_seed(2)).eval()


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    path = tmp_path_factory.mktemp("arxiv") / "sw.tsv"
    path.write_text(archive(42), encoding="utf-8")
    return read_archive(archive_files(str(path)))


def test_abstracts_are_drawn_by_seed_one_title_at_a_time_or_together(model: GPT) -> None:
    config = SamplingConfig(max_tokens=20, seed=7)
    told: list[int] = []
    whole = write_abstracts(model, TOKENIZER, TITLES, config, told.append)
    assert sum(told) == 3
    assert whole[1].title == "Even Weaving with Zalor"
    assert whole[2] == write_abstracts(model, TOKENIZER, TITLES[2:], SamplingConfig(max_tokens=20, seed=9))[0]
    assert write_abstracts(model, TOKENIZER, TITLES, config) == whole
    assert write_abstracts(model, TOKENIZER, TITLES, SamplingConfig(max_tokens=20, seed=8)) != whole


def test_an_abstract_ends_with_its_mark(model: GPT) -> None:
    end = marks(TOKENIZER).end
    eager = GPT(model.config, torch.Generator().manual_seed(2)).eval()
    with torch.no_grad():
        eager.tokens.weight[end] = eager.tokens.weight[: TOKENIZER.n_vocab].abs().sum(0) * 3
        eager.norm.bias.fill_(1.0)  # so that the mark is always the likeliest
    (written,) = write_abstracts(eager, TOKENIZER, TITLES[:1], SamplingConfig(max_tokens=20))
    assert (written.abstract, written.ended) == ("", True)


def test_a_title_without_words_or_another_tokenizer_is_refused(model: GPT) -> None:
    with pytest.raises(InputError, match="title 2: found ' ', expected a word"):
        write_abstracts(model, TOKENIZER, ["a", " "], SamplingConfig())
    with pytest.raises(InputError, match="expected the tokenizer's"):
        write_abstracts(model, ByteTokenizer.train(["a b"], 1), ["a"], SamplingConfig())


def paper(title: str, abstract: str, categories: str = "cs.CL") -> Paper:
    return Paper("1", datetime.date(2020, 1, 1), categories, title, abstract)


def test_words_of_later_titles_are_looked_at_where_the_abstract_uses_them_one_at_a_time(model: GPT) -> None:
    """Their first uses in the paper's own abstract, given title and abstract up to there."""
    one = paper("Zalor: A Slow Kiln", "We fire a Kiln by zalor, then Zalor again")
    found = future_words(model, TOKENIZER, {"we", "study", "a", "slow", "kiln"}, [one])
    assert found["new_words"] == 1.0
    title = prompt_ids(TOKENIZER, one.title)
    nats = []
    for before, word in (("We fire a Kiln by", " zalor"), ("We fire", " a"), ("We fire a", " Kiln")):
        ids, total = [*title, *TOKENIZER.encode(before)], 0.0
        for index in TOKENIZER.encode(word):
            with torch.no_grad():
                total -= torch.log_softmax(model(torch.tensor([ids]))[0, -1], -1)[index].item()
            ids.append(index)
        nats.append(total)
    assert found["new_word_perplexity"] == pytest.approx(math.exp(nats[0]), rel=1e-4)
    assert found["known_word_perplexity"] == pytest.approx(math.exp(sum(nats[1:]) / 2), rel=1e-4)
    assert future_words(model, TOKENIZER, set(), [paper("Zalor", "nothing of it")]) == {"new_words": 0.0}


def test_title_words_that_no_training_text_has_are_looked_for_in_the_abstract() -> None:
    titles = ["Zalor: a Kiln", "Bremix and Zalor", "a kiln"]
    abstracts = ["we fire ZALOR's kiln with zalor", "bremixed zalor", "unheard"]
    assert title_words({"a", "kiln", "and"}, titles, abstracts) == 2 / 3
    assert title_words({"a", "kiln", "and", "zalor", "bremix"}, titles, abstracts) is None


def test_a_classifier_of_real_abstracts_tells_the_field_of_others(generated: Archive) -> None:
    splits = split_by_date(generated.papers)
    test = splits["test"]
    classifier = FieldClassifier(splits["train"])
    real = classifier.share_right(test, [one.abstract for one in test])
    chance = classifier.by_chance(test)
    assert real is not None
    assert chance is not None
    assert real > 0.95 > 0.35 > chance > 0.05
    others = [*test[1:], test[0]]
    shuffled = classifier.share_right(test, [one.abstract for one in others])
    same = sum(field_of(a) == field_of(b) for a, b in zip(test, others, strict=True)) / len(test)
    assert shuffled == pytest.approx(same, abs=0.05), "an abstract of another field counts as wrong"
    assert FieldClassifier(test[:1]).share_right(test, [one.abstract for one in test]) is None
    assert FieldClassifier([paper("a", "b", "")]).by_chance(test) is None


def test_the_generated_archive_is_like_the_real_one(generated: Archive) -> None:
    assert archive(42) == archive(42) != archive(43)
    assert (generated.repeated, generated.empty) == (0, 0)
    assert len({paper.title for paper in generated.papers}) > 0.7 * len(generated.papers)
    for paper in generated.papers:
        assert balanced(paper.abstract)
        assert "{" not in paper.abstract
        name = key_term(paper.title)
        assert name is None or name in paper.abstract
    found = measures([Written(paper.title, paper.abstract) for paper in generated.papers[:30]], [])
    assert found["introduced"] == 1.0
    assert found["abbreviations"] > 0.5


def test_its_names_come_into_the_world_one_by_one(generated: Archive) -> None:
    """Most names of the newest titles stand in no older text: what "the future" means here."""
    splits = split_by_date(generated.papers)
    old = " ".join(text for paper in splits["train"] for text in (paper.title, paper.abstract))
    names = {name for paper in splits["test"] if (name := key_term(paper.title))}
    assert sum(name not in old for name in names) > 0.9 * len(names) > 20
