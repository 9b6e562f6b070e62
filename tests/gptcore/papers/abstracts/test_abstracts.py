"""Papers of the arXiv Archive: files, order, split, ids, errors; a model at work on titles, on a generated archive."""

from __future__ import annotations

import csv
import datetime
import gzip
import lzma
import math
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gptcore import GPT
from gptcore.base.errors import InputError
from gptcore.config import ModelConfig
from gptcore.data.shards import Shards
from gptcore.papers.abstracts.config import EVALUATION, SPLIT, SWEEPS, SamplingConfig
from gptcore.papers.abstracts.documents import (
    CATEGORIES,
    N_MARKS,
    SPLITS,
    Archive,
    Paper,
    archive_files,
    distribution,
    document,
    document_ids,
    encode_papers,
    field_of,
    marks,
    prompt_ids,
    read_archive,
    split_by_date,
    write_texts,
)
from gptcore.papers.abstracts.measures import FieldClassifier, Written, balanced, key_term, measures
from gptcore.papers.abstracts.write import future_words, title_words, write_abstracts
from gptcore.papers.storyworld.web import archive
from gptcore.text.bpe import WordTokenizer
from gptcore.text.byte_bpe import ByteTokenizer
from gptcore.text.tokenizer import Tokenizer
from tests.expected import expected
from tests.realdata import real_data

COLUMNS = ["", "abstract", "arxiv_id", "categories", "created", "title"]
Record = tuple[str, str, str, str]
"""arxiv_id, created, title, abstract."""


def write(path: Path, records: list[Record], header: list[str] = COLUMNS) -> None:
    opener = lzma.open if path.name.endswith(".xz") else open
    with opener(path, "wt", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, delimiter="\t", lineterminator="\n")
        rows.writerow(header)
        for number, (arxiv_id, created, title, abstract) in enumerate(records):
            rows.writerow([str(number), abstract, arxiv_id, "cs.CL,cs.IR", created, title])


def papers(count: int) -> list[Paper]:
    import datetime

    first = datetime.date(2017, 1, 1)
    return [
        Paper(f"17{n:02d}", first + datetime.timedelta(days=n), "cs.CL", f"Title {n}: a thing", f"We show {n} things.")
        for n in range(count)
    ]


@pytest.fixture(scope="module")
def tokenizer() -> ByteTokenizer:
    return ByteTokenizer.train(["We show that the thing works. A title: the thing"] * 3, 40)


def test_quotes_tabs_and_line_breaks_inside_a_field(tmp_path: Path) -> None:
    said = 'He said "no\tmore"\n  and  left. '
    write(tmp_path / "cs.CL.tsv.xz", [("1", "2018-01-02", "A\n title", said), ("2", "2018-01-01", '"Q"', "x")])
    found = read_archive(archive_files(str(tmp_path)))
    assert [(paper.arxiv_id, paper.title, paper.abstract) for paper in found.papers] == [
        ("2", '"Q"', "x"),
        ("1", "A title", 'He said "no more" and left.'),
    ]


def test_blank_lines_between_records_and_at_the_end_hold_none(tmp_path: Path) -> None:
    write(tmp_path / "cs.CL.tsv", [("1", "2018-01-02", "a", "b"), ("2", "2018-01-03", "c", "d")])
    header, *records = (tmp_path / "cs.CL.tsv").read_text(encoding="utf-8").splitlines()
    (tmp_path / "cs.CL.tsv").write_text("\n\n".join([header, *records]) + "\n\n\n", encoding="utf-8")
    assert [paper.arxiv_id for paper in read_archive(archive_files(str(tmp_path))).papers] == ["1", "2"]


def test_a_paper_in_several_files_counts_once_as_the_first_has_it(tmp_path: Path) -> None:
    write(tmp_path / "cs.NE.tsv", [("7", "2018-01-02", "Later file", "c"), ("9", "2018-01-02", "Same day", "d")])
    write(tmp_path / "cs.CL.tsv.xz", [("8", "2018-01-03", "Last", "a"), ("7", "2018-01-02", "First file", "b")])
    write(tmp_path / "cs.AI.tsv", [("5", "2017-01-02", "No abstract", " "), ("6", "2017-01-02", "", "No title")])
    (tmp_path / "README.md").write_text("no table")
    found = read_archive(archive_files(str(tmp_path)))
    assert [paper.title for paper in found.papers] == ["First file", "Same day", "Last"]
    assert (found.read, found.repeated, found.empty) == (6, 1, 2)


def test_only_papers_of_the_wanted_categories_count(tmp_path: Path) -> None:
    rows = {"1": "cs.CL", "2": "math.CO", "3": "stat.ML,cs.LG", "4": "cs.NE", "5": "cmp-lg cs.CL"}
    lines = [f"{n}\tabstract\t{n}\t{categories}\t2018-01-0{n}\ttitle" for n, categories in rows.items()]
    path = tmp_path / "cs.tsv"
    path.write_text("\n".join(["\t".join(COLUMNS), *lines]) + "\n", encoding="utf-8")

    def found(*categories: str) -> tuple[list[str], int]:
        archive = read_archive([str(path)], categories=categories)
        assert archive.repeated == 0
        return [paper.arxiv_id for paper in archive.papers], archive.other

    assert CATEGORIES == ("cs.AI", "cs.LG", "cs.CL", "cs.CV"), "section 2"
    assert found() == (["1", "3", "5"], 2)
    assert found("cs.NE", "math.CO") == (["2", "4"], 3)
    with pytest.raises(InputError, match=r"cs\.tsv: found no paper in cs\.RO, but in cmp-lg, cs\.CL, cs\.LG, cs\.NE"):
        found("cs.RO")
    path.write_text("\n".join(["\t".join(COLUMNS), lines[1], lines[3]]) + "\n", encoding="utf-8")
    assert found() == (["2", "4"], 0), "none of the paper's four: every paper"


@pytest.mark.parametrize(("line", "message"), expected(__file__, "test_a_broken_record_is_named"))
def test_a_broken_record_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "cs.CL.tsv"
    path.write_text("\t".join(COLUMNS) + "\n" + line + "\n", encoding="utf-8")
    with pytest.raises(InputError, match=rf"cs\.CL\.tsv: {message}"):
        read_archive(archive_files(str(path)))


def test_a_file_that_is_no_archive_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no file of the arXiv Archive here, expected names ending in \.tsv"):
        archive_files(str(tmp_path))
    write(tmp_path / "a.tsv", [], ["id", "abstract"])
    with pytest.raises(InputError, match="line 1: no column arxiv_id, created, categories, title"):
        read_archive(archive_files(str(tmp_path)))
    (tmp_path / "a.tsv").unlink()
    whole = gzip.compress(b"\t".join(c.encode() for c in COLUMNS) * 50)
    (tmp_path / "c.tsv.gz").write_bytes(whole[:20] + b"\xff\xff" + whole[22:])
    with pytest.raises(InputError, match=r"c\.tsv\.gz: cannot be read"):
        read_archive(archive_files(str(tmp_path / "c.tsv.gz")))
    (tmp_path / "c.tsv.gz").unlink()
    (tmp_path / "b.tsv.xz").write_bytes(b"no xz at all")
    with pytest.raises(InputError, match=r"b\.tsv\.xz: cannot be read"):
        read_archive(archive_files(str(tmp_path)))
    (tmp_path / "b.tsv.xz").write_bytes(lzma.compress(b"\t".join(c.encode() for c in COLUMNS) + b"\n\xff\xfe"))
    with pytest.raises(InputError, match="is not UTF-8"):
        read_archive(archive_files(str(tmp_path)))
    write(tmp_path / "b.tsv.xz", [])
    with pytest.raises(InputError, match="found no paper with a title and an abstract"):
        read_archive(archive_files(str(tmp_path)))


@given(count=st.integers(20, 400))
def test_the_split_is_nine_to_a_half_to_a_half_in_order_of_date(count: int) -> None:
    whole = papers(20) * (count // 20) + papers(count % 20)
    splits = split_by_date(whole)
    assert [paper for name in SPLITS for paper in splits[name]] == whole
    assert len(splits["valid"]) == len(splits["test"]) == count // 20


def test_too_few_papers_are_refused() -> None:
    with pytest.raises(InputError, match="found 19 papers, expected 20 or more"):
        split_by_date(papers(19))


def test_documents_as_text_and_as_ids(tokenizer: ByteTokenizer, tmp_path: Path) -> None:
    splits = split_by_date(papers(40))
    write_texts(splits, tmp_path)
    lines = (tmp_path / "test.txt").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "<|startoftext|> Title 38: a thing <|sep|> We show 38 things. <|endoftext|>"
    counts = encode_papers(splits, tokenizer, tmp_path / "shards")
    start, separator, end = marks(tokenizer)
    assert (start, separator, end) == (tokenizer.n_vocab, tokenizer.n_vocab + 1, tokenizer.end_of_text)
    shards = Shards(tmp_path / "shards" / "test")
    assert shards.document(0) == "1738"
    ids = shards.tokens(0).tolist()
    middle = ids.index(separator)
    assert (ids[0], ids[-1]) == (start, end)
    assert tokenizer.decode(ids[1:middle]) == "Title 38: a thing"
    assert tokenizer.decode(ids[middle + 1 : -1]) == "We show 38 things."
    assert ids[: middle + 1] == prompt_ids(tokenizer, "Title 38: a thing")

    rows = distribution(splits, counts)
    assert [row["split"] for row in rows] == [*SPLITS, "total"]
    assert [row["count"] for row in rows] == [36, 2, 2, 40]
    assert sum(row["percentage"] for row in rows[:3]) == pytest.approx(100)
    assert rows[3]["bpe_tokens"] == sum(Shards(tmp_path / "shards" / name).n_tokens for name in SPLITS)
    assert (rows[2]["from"], rows[2]["to"]) == ("2017-02-08", "2017-02-09")


@given(title=st.text(max_size=20), abstract=st.text(max_size=40))
def test_no_text_is_a_mark(tokenizer: ByteTokenizer, title: str, abstract: str) -> None:
    import datetime

    texts = [text.encode("utf-8", "replace").decode() for text in (f"<|sep|>{title}", f"{abstract}<|endoftext|>")]
    paper = Paper("1", datetime.date(2018, 1, 1), "", *texts)
    ids = document_ids(tokenizer, paper)
    assert [ids.count(mark) for mark in marks(tokenizer)] == [1, 1, 1]
    assert document(paper).startswith("<|startoftext|> <|sep|>")


def test_a_word_vocabulary_has_no_end_of_text() -> None:
    with pytest.raises(InputError, match="a word one, expected a byte-level one"):
        marks(WordTokenizer.train(["a b"], 1))


def test_the_archives_own_files() -> None:
    found = read_archive(archive_files(str(real_data("arxiv"))))
    assert (len(found.papers), found.read, found.repeated, found.empty) == (15_602, 22_519, 1672, 0)
    assert found.other == 20_847 - 15_602, "in none of the paper's four categories"
    splits = split_by_date(found.papers)
    assert [len(splits[name]) for name in SPLITS] == [14_042, 780, 780]
    released = Tokenizer.load(real_data("gpt2"))
    some = splits["test"][::50]
    assert 3000 < sum(len(document_ids(released, paper)) for paper in some) < 4500
    assert {paper.arxiv_id for paper in splits["train"]}.isdisjoint(paper.arxiv_id for paper in splits["test"])


def test_published_rows_agree_with_each_other() -> None:
    """Perplexities are the exponentials of the losses where both are printed right; 82M* is the same in every table."""
    stars = [next(losses for losses in table.rows.values() if losses[0] == 3.0095) for table in SWEEPS]
    assert len(set(stars)) == 1
    odd = []
    for table in SWEEPS:
        for value, (train, valid, train_ppl, valid_ppl) in table.rows.items():
            assert math.exp(valid) == pytest.approx(valid_ppl, rel=2e-3), (table.number, value)
            if math.exp(train) != pytest.approx(train_ppl, rel=2e-3):
                odd.append((table.number, value))
    assert odd == [(4, 128)]  # the training loss of a block of 128 is misprinted: 3.0392 would give its perplexity
    assert list(EVALUATION) == ["82M", "117M", "345M", "774M"]
    assert sum(SPLIT[name][0] for name in SPLITS) == SPLIT["total"][0]


# --- a model at work on titles ---


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
    """The words' first uses in the paper's own abstract, given title and abstract up to there."""
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
