"""Entities that texts mention: names found in token ids, mentions beside shards, what is hidden of them."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gptcore.base.errors import InputError
from gptcore.data.masking import PieceTable
from gptcore.data.sentence_pairs import SentencePairs
from gptcore.data.shards import Shards
from gptcore.papers.graphs.entities import Entities, Gazetteer, meant, read_links
from gptcore.papers.graphs.graph import KnowledgeGraph
from gptcore.papers.graphs.masked_entities import mask_entities
from gptcore.papers.graphs.mentions import Mentions
from gptcore.papers.storyworld.formats import Writer
from gptcore.papers.storyworld.knowledge import GRAPH, facts, write_chronicle
from gptcore.text.wordpiece import WordPieceTokenizer
from tests.expected import expected as table_of
from tests.gptcore.sentence_shards import FIRST, TAILS, gazetteer, sentence_shards, table

# --- names in token ids


def plain_find(names: Sequence[Sequence[int]], row: Sequence[int]) -> list[int]:
    """At each word's beginning the longest name that a word's end follows, from the left."""
    found, at = [0] * len(row), 0
    while at < len(row):
        fits = [
            (len(name), -number)
            for number, name in enumerate(names)
            if list(row[at : at + len(name)]) == list(name)
            and row[at] not in TAILS
            and (at + len(name) == len(row) or row[at + len(name)] not in TAILS)
        ]
        if not fits:
            at += 1
            continue
        size, number = max(fits)
        found[at] = 1 - number
        at += size
    return found


names_of = st.lists(st.lists(st.integers(4, 12), min_size=1, max_size=4), min_size=1, max_size=8, unique_by=tuple)


@given(
    names_of,
    st.integers(1, 3).flatmap(
        lambda n: st.lists(st.lists(st.integers(4, 12), min_size=9, max_size=9), min_size=n, max_size=n)
    ),
)
@settings(max_examples=300)
def test_names_are_found_as_a_plain_search_finds_them(names: list[list[int]], rows: list[list[int]]) -> None:
    found = gazetteer(names).find(np.array(rows))
    assert found.tolist() == [plain_find(names, row) for row in rows]


@given(names_of, names_of, st.lists(st.lists(st.integers(4, 12), min_size=9, max_size=9), min_size=1, max_size=3))
@settings(max_examples=200)
def test_a_documents_own_names_come_before_others_of_the_same_pieces(
    names: list[list[int]], own: list[list[int]], rows: list[list[int]]
) -> None:
    """Own names count as if they stood first in a list of all; the first is linked to what the graph does not have."""
    its = gazetteer(own)
    its = dataclasses.replace(its, entities=np.arange(100, 100 + len(own)))
    its.entities[0] = -1
    merged = [*own, *(name for name in names if name not in own)]
    numbers = [0, *(101 + place for place in range(1, len(own))), *(names.index(n) + 1 for n in merged[len(own) :])]
    found = gazetteer(names).find(np.array(rows), its)
    expected = [[numbers[number - 1] if number else 0 for number in plain_find(merged, row)] for row in rows]
    assert found.tolist() == expected


VOCABULARY = "[PAD] [UNK] [CLS] [SEP] [MASK] ann ##a bar ##low the of new york us xy"


def word_pieces(folder: Path) -> WordPieceTokenizer:
    folder.mkdir(exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY.split()) + "\n")
    return WordPieceTokenizer.load(folder)  # type: ignore[return-value]


def graph_of(rows: Sequence[tuple[str, str]], labels: dict[str, tuple[str, ...]]) -> KnowledgeGraph:
    names = tuple(dict.fromkeys(name for row in rows for name in row))
    numbers = [(names.index(head), 0, names.index(tail)) for head, tail in rows]
    return KnowledgeGraph(names, ("r",), {"train": np.array(numbers, np.int64)}, labels)


def test_labels_name_entities_and_the_one_of_most_facts_has_a_shared_name(tmp_path: Path) -> None:
    tokenizer = word_pieces(tmp_path / "v")
    labels = {"Q1": ("New York", "Xy", "of the"), "Q2": ("York", "US", "Ann"), "Q3": ("York", "the Bar")}
    labels["Q4"] = ("Zzyzx",)
    rows = [("Q1", "Q3"), ("Q3", "anna_barlow"), ("Q3", "Q4"), ("Q2", "Q4"), ("anna_barlow", "Q4")]
    graph = graph_of(rows, labels)
    found = Gazetteer.of(graph, tokenizer)
    text = "The new York of Anna Barlow us ann York of the xy the bar"
    [linked] = found.find(np.array([tokenizer.encode(text)]))
    at = {place: graph.entities[number - 1] for place, number in enumerate(linked.tolist()) if number}
    # [the, new, york, of, ann, ##a, bar, ##low, us, ann, york, of, the, xy, the, bar]: no stop words, no two letters
    assert at == {1: "Q1", 4: "anna_barlow", 9: "Q2", 10: "Q3", 14: "Q3"}
    with pytest.raises(InputError, match="none of its 1 entities has a name"):
        Gazetteer.of(graph_of([("Q4", "Q4")], labels), tokenizer)


def test_a_document_says_what_its_names_mean(tmp_path: Path) -> None:
    tokenizer = word_pieces(tmp_path / "v")
    graph = graph_of([("Q1", "Q2"), ("Q2", "Q3")], {"Q1": ("New York",), "Q2": ("York",), "Q3": ("Barlow",)})
    found = Gazetteer.of(graph, tokenizer)
    links = {"new York": "Q3", "Barlow": "nobody", "the": "Q1", "unknown word": "Q2", "unknown": "Q1", "other": "Q2"}
    table = PieceTable.of(tokenizer)
    own = Gazetteer.linked(links, graph, tokenizer, table)
    tokens = np.array([tokenizer.encode("the New York of Barlow york")])
    assert found.find(tokens).tolist() == [[0, 1, 0, 0, 3, 0, 2]]
    assert found.find(tokens, own).tolist() == [[1, 3, 0, 0, 0, 0, 2]]
    long = Gazetteer.linked({"york " * 12: "Q2", "of " * 13: "Q1"}, graph, tokenizer, table)
    assert long.find(np.array([tokenizer.encode("new" + " york" * 13)])).tolist() == [[0, 2, *[0] * 12]], (
        "twelve pieces"
    )
    assert long.stops.tolist() == [12]
    assert meant({"York": "Q1", "york": "Q1"}, tokenizer, table) == {tuple(tokenizer.encode("york")): "Q1"}
    with pytest.raises(InputError, match="found 'Q1' for 'York' and 'Q2' for 'york', which are one in the vocabulary"):
        Gazetteer.linked({"York": "Q1", "york": "Q2"}, graph, tokenizer, table)


def test_links_are_read_strictly(tmp_path: Path) -> None:
    path = tmp_path / "links.tsv"
    links = {"a.txt": {"Anna": "Q1", "New York": "Q2"}, "b/c.txt": {"Anna": "Q7"}}
    path.write_text("".join(f"{file}\t{name}\t{own[name]}\n" for file, own in links.items() for name in own))
    assert read_links(str(path)) == links
    path.write_text("\n a.txt\t Anna \tQ1\r\na.txt\tAnna\tQ1\n")
    assert read_links(str(path)) == {"a.txt": {"Anna": "Q1"}}
    for text, message in table_of(__file__, "test_links_are_read_strictly"):
        path.write_text(text)
        with pytest.raises(InputError, match=message):
            read_links(str(path))
    with pytest.raises(InputError, match=r"none.tsv: found no file there, expected rows of document, name, entity"):
        read_links(str(tmp_path / "none.tsv"))


def test_a_chronicle_speaks_of_its_graphs_people_where_the_search_finds_them(tmp_path: Path) -> None:
    """Every full name in the text is a mention, and no other stretch is one of a person."""
    shelf = Writer(tmp_path, 42)
    write_chronicle(shelf)
    people = {head for head, relation, _ in facts(shelf.rng(GRAPH)) if relation == "lives_in"}
    text = (tmp_path / "year-07.txt").read_text()
    for sign in ".,":
        text = text.replace(sign, f" {sign}")
    words = text.split()
    known = [person.split() for person in sorted(people)]
    ids = {word: number for number, word in enumerate(dict.fromkeys([*words, *(w for name in known for w in name)]))}
    names = [[ids[word] for word in name] for name in known]
    [found] = gazetteer(names, len(ids), ()).find(np.array([[ids[word] for word in words]]))
    mentioned = [" ".join(known[number - 1]) for number in found.tolist() if number]
    pairs = [f"{a} {b}" for a, b in itertools.pairwise(words)]
    assert mentioned == [pair for pair in pairs if pair in people]
    assert len(mentioned) > 300


# --- mentions beside shards


def test_mentions_go_with_their_tokens_into_sequences(tmp_path: Path) -> None:
    """Each token stands once in these shards, so that a sequence's entities can be told from its tokens."""
    shards, _ = sentence_shards(tmp_path / "s", [[5, 7, 3, 9], [4, 4], [12]])
    dense = [np.where(shards.tokens(row) % 3 == 0, shards.tokens(row).astype(np.int64), 0) for row in range(3)]
    dense = [np.where(shards.tokens(row) >= FIRST, its, 0) for row, its in enumerate(dense)]
    mentions = Mentions.of(dense)
    mentions.save(tmp_path)
    linked = Shards(tmp_path / "s", Mentions.read(tmp_path))
    for pairs in ("none", "nsp", "sop"):
        plain, ours = (SentencePairs(its, table(its.n_vocab), 16, pairs, 3) for its in (shards, linked))
        expected, found = plain.batch(np.arange(40)), ours.batch(np.arange(40))
        assert expected.entities is None
        assert found.entities is not None
        for name in ("tokens", "segments", "mask", "labels"):
            assert np.array_equal(getattr(expected, name), getattr(found, name))
        tokens = found.tokens
        assert np.array_equal(found.entities, np.where((tokens % 3 == 0) & (tokens >= FIRST), tokens, 0))
    with pytest.raises(InputError, match=r"mentions.safetensors: cannot be read"):
        Mentions.read(tmp_path / "s")


def test_entities_are_replaced_hidden_and_kept_in_the_papers_shares() -> None:
    draws = np.random.default_rng(0)
    entities = np.where(draws.random((400, 50)) < 0.5, draws.integers(1, 30, (400, 50)), 0)
    found = mask_entities(entities, np.arange(400), 7)
    there = entities > 0
    n = there.sum()
    assert found.candidates.tolist() == sorted(set(entities[there].tolist()))
    assert (found.candidates[found.told[there] - 1] == entities[there]).all()
    assert not found.told[~there].any()
    assert not found.seen[~there].any()
    hidden, other = (found.seen[there] == 0), (found.seen[there] != entities[there])
    assert abs(hidden.mean() - 0.15) < 4 * np.sqrt(0.15 * 0.85 / n)
    expected = 0.05 * 28 / 29  # a random one of 29 may be the same
    assert abs((other & ~hidden).mean() - expected) < 4 * np.sqrt(expected / n)
    again = mask_entities(entities[100:], np.arange(100, 400), 7)  # of a part of the batch: its own candidates
    assert np.array_equal(again.seen == 0, found.seen[100:] == 0)
    nothing = mask_entities(np.zeros((2, 5), np.int64), np.arange(2), 7)
    assert not nothing.seen.any()
    assert len(nothing.candidates) == 0


def test_what_is_known_of_entities_is_read_as_it_was_written(tmp_path: Path) -> None:
    entities = Entities(np.ones((5, 6), np.float32), gazetteer([[5], [6], [7], [8, 9], [12, 13]]))
    entities.save(tmp_path)
    assert Entities.read(tmp_path).sizes == {"n_entities": 5, "n_embd_entities": 6, "n_names": 5, "n_name_pieces": 7}
    with pytest.raises(InputError, match=r"entities.safetensors: cannot be read"):
        Entities.read(tmp_path / "none")
