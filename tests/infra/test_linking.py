"""Found mentions beside given links: what counts as a link, as found, as right; files that do not belong together."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from gptcore.base.errors import InputError
from gptcore.knowledge.gazetteer import Gazetteer, read_links
from tests.realdata import real_data
from tests.trials import linking

U = linking.UNLINKED


def names(**entities: list[int]) -> Gazetteer:
    """Entities by the pieces of their names; no piece goes on a word."""
    listed = sorted(entities.values(), key=lambda name: (len(name), name))
    order = [list(entities.values()).index(name) for name in listed]
    pieces = np.array([piece for name in listed for piece in name])
    return Gazetteer(pieces, np.cumsum([len(name) for name in listed]), np.array(order), np.zeros(30_522, bool))


def test_links_are_counted_once_each_and_by_what_is_found_at_their_first_piece() -> None:
    gazetteer = names(king=[3], old_king=[2, 3], river=[7])
    numbers = {"Qking": 0, "Qold": 1, "Qriver": 2}
    tokens = [2, 3, 9, 3, 7, 3, 3, 7]
    links = ["Qold", "Qold", U, "Qriver", "Qunknown", U, "Qking", "Qking"]
    counts = linking.compare(gazetteer, numbers, tokens, links)
    assert dict(counts) == {"pieces": 8, "mentions": 4, "links": 3, "found": 6, "right": 2, "wrong": 1}
    assert not linking.compare(gazetteer, numbers, [], []).total()


def test_articles_become_books_and_a_file_of_links(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "york", "duke", "of", "walked"]
    for folder in ("vocabulary", "graph", "linked"):
        (tmp_path / folder).mkdir()
    (tmp_path / "vocabulary" / "vocab.txt").write_text("\n".join(words) + "\n")
    (tmp_path / "graph" / "train.txt").write_text("/m/town\tseat_of\t/m/duke\n/m/town\tnear\t/m/town\n")
    about = {"/m/town": {"label": "York", "wikidata_id": "Q1"}, "/m/duke": {"label": "Duke", "wikidata_id": "Q2"}}
    (tmp_path / "graph" / "entity2wikidata.json").write_text(json.dumps(about))
    sentences = [(["york", "walked"], ["Q2", U]), (["duke", "of", "york"], ["Q9", "Q9", "Q9"]), (["york"], ["Q2"])]
    rows = [(str(len(its)), *its) for pair in sentences for its in pair]
    ids = [[cell if cell.isdigit() else str(words.index(cell)) for cell in row] for row in rows[::2]]
    for name, found in ((linking.TOKENS, ids), (linking.LINKS, rows[1::2])):
        (tmp_path / "linked" / name).write_text("\t".join(["3", *chain.from_iterable(found)]) + "\n")
    folders = [str(tmp_path / folder) for folder in ("graph", "linked", "vocabulary")]
    linking.main([*folders, "--out", str(tmp_path / "out")])
    printed = capsys.readouterr().out
    assert "6 pieces, 3 links, 2 of them to the graph's entities" in printed
    assert "as the same entity: 0 (0.0%), as another: 2 (100.0%)" in printed
    assert "told the links of each article: 2 (100.0%), as another: 0" in printed
    assert (tmp_path / "out" / "books" / "article-001.txt").read_text() == "york walked\n\nduke of york\n\nyork\n"
    assert read_links(str(tmp_path / "out" / "links.tsv")) == {
        "article-001.txt": {"york": "/m/duke", "duke of york": "Q9"}
    }


def test_the_two_files_are_read_sentence_by_sentence(tmp_path: Path) -> None:
    (tmp_path / linking.TOKENS).write_text("2\t2\t5\t6\t1\t7\n1\t0\n")
    (tmp_path / linking.LINKS).write_text(f"2\t2\t{U}\tQ1\t1\tQ2\n1\t0\n")
    assert list(linking.articles(tmp_path)) == [[([5, 6], [U, "Q1"]), ([7], ["Q2"])], [([], [])]]
    (tmp_path / linking.LINKS).write_text(f"2\t1\t{U}\t1\tQ2\n1\t0\n")
    with pytest.raises(InputError, match="wiki_entity, line 1: found other sentences than wiki_token"):
        list(linking.articles(tmp_path))
    (tmp_path / linking.LINKS).write_text("1\t0\n")
    with pytest.raises(InputError, match="2 lines in wiki_token, 1 in wiki_entity"):
        list(linking.articles(tmp_path))


def test_the_sample_has_as_many_links_as_its_authors_say() -> None:
    found = list(chain.from_iterable(linking.articles(real_data("wiki-entities"))))
    assert (len(found), sum(len(tokens) for tokens, _ in found)) == (16_365, 596_572)
    empty = names(nothing=[1, 1, 1])
    assert sum((linking.compare(empty, {}, *each)["mentions"] for each in found), 0) == 18_505
