"""The public files that prompts are made from: real ones where they are, hand-written and broken ones always."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gptcore.base.errors import InputError
from gptcore.nlu.readers.winograd import Pronoun, read_wsc273
from gptcore.papers.prompting import reading
from gptcore.papers.prompting.items import MultipleChoice
from gptcore.papers.prompting.measures import article_baselines, is_word, rouge
from gptcore.papers.prompting.tasks import PROMPT_TASKS, available_prompt_tasks, read_rows
from tests.expected import expected
from tests.realdata import real_data

SGML = '<{0}set setid="newstest2014" srclang="any">\n<doc docid="a" origlang="en">\n{1}</doc>\n</{0}set>\n'
XML = "\n".join(expected(__file__, "XML"))


def put(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return str(folder)


def sentences(kind: str, *texts: str) -> str:
    return SGML.format(kind, "".join(f'<seg id="{n}">{text}</seg>\n' for n, text in enumerate(texts, start=1)))


# --- LAMBADA ---


def test_a_passage_is_written_as_running_text(tmp_path: Path) -> None:
    line = "`` do n't , '' she said . it 's ` just ' tom 's ; was n't it ? he took the cake\n"
    url = put(tmp_path, "LAMBADA/lambada_development_plain_text.txt", line)
    (item,) = reading.lambada(url).asked
    assert item.question == "\"don't,\" she said. it's 'just' tom's; wasn't it? he took the"
    assert item.answers == ("cake",)
    (cloze,) = reading.lambada_cloze(url).asked
    assert cloze.question.endswith("he took the ____. ->")


def test_a_mark_that_opens_before_the_last_word_stays(tmp_path: Path) -> None:
    url = put(tmp_path, "LAMBADA/lambada_development_plain_text.txt", "he bowed and said , `` sire\n")
    (item,) = reading.lambada(url).asked
    assert (item.question, item.answers) == ("he bowed and said,", ('"sire',))
    assert is_word(' "Sire, I', item)
    (cloze,) = reading.lambada_cloze(url).asked
    assert (cloze.question, cloze.answers) == ('he bowed and said, "____. ->', ("sire",))


def test_an_opening_single_quote_before_the_last_word_would_be_an_apostrophe(tmp_path: Path) -> None:
    url = put(tmp_path, "LAMBADA/lambada_development_plain_text.txt", "he bowed and said , ` sire\n")
    (item,) = reading.lambada(url).asked
    assert (item.question, item.answers) == ("he bowed and said,", ("sire",))


def test_a_passage_of_one_word_is_named(tmp_path: Path) -> None:
    url = put(tmp_path, "LAMBADA/lambada_test_plain_text.txt", "a good line here\n\ncake\n")
    with pytest.raises(
        InputError, match=r"lambada_test_plain_text\.txt, line 3: found 'cake', expected a passage of words"
    ):
        reading.lambada(url)


# --- WMT14 ---


def test_sentences_go_together_by_document_and_number(tmp_path: Path) -> None:
    put(tmp_path, "WMT14/newstest2014-fren-src.en.sgm", sentences("src", "Tom &amp; I\n went", "Yes = no"))
    url = put(tmp_path, "WMT14/newstest2014-fren-ref.fr.sgm", sentences("ref", "Tom et moi", "Oui"))
    items = reading.translations(url, "en", "fr").asked
    assert [item.shown for item in items] == [("Tom & I went =", "Tom et moi"), ("Yes = no =", "Oui")]


@pytest.mark.parametrize(
    ("theirs", "message"),
    [
        (sentences("ref", "Tom"), "its 1 sentences are not those of .*src.en.sgm \\(2\\)"),
        ("nothing", 'found no <seg id="...">'),
    ],
)
def test_two_files_that_do_not_go_together(tmp_path: Path, theirs: str, message: str) -> None:
    put(tmp_path, "WMT14/newstest2014-fren-src.en.sgm", sentences("src", "Tom", "Yes"))
    url = put(tmp_path, "WMT14/newstest2014-fren-ref.fr.sgm", theirs)
    with pytest.raises(InputError, match=message):
        reading.translations(url, "en", "fr")
    with pytest.raises(InputError, match=r"src\.fr\.sgm: found nothing there"):
        reading.translations(url, "fr", "en")


# --- CNN/Daily Mail ---


def test_articles_with_either_names_of_columns(tmp_path: Path) -> None:
    text = 'id,highlights,article\n1,"One.\nTwo.","By. Someone.\nHe ""said"" so."\n'
    (item,) = reading.summaries(put(tmp_path, "CNNDM/test.csv", text), "").asked
    assert item.context == 'He "said" so.'
    assert item.answers == ("One.\nTwo.",)


@pytest.mark.parametrize(("text", "message"), expected(__file__, "test_a_broken_table_is_named"))
def test_a_broken_table_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        reading.summaries(put(tmp_path, "CNNDM/test.csv", text), "")


@pytest.mark.parametrize(("article", "text"), expected(__file__, "test_who_wrote_an_article_is_none_of_its_text"))
def test_who_wrote_an_article_is_none_of_its_text(article: str, text: str | None) -> None:
    assert reading.without_byline(article) == (text or article)


def test_lede_3_of_the_real_sample_is_that_of_articles() -> None:
    rows = reading.summaries(str(real_data("CNNDM").parent), "").asked
    made = dict(article_baselines(rows))
    assert 100 * rouge(made["Lede-3"], rows)["rouge"] > 26  # published for the whole test set: 31.55
    assert not any(text.startswith("By. ") for text in made["Lede-3"])


# --- SQuAD and games ---


def squad(*questions: dict[str, object]) -> str:
    named = [{"id": f"q{number}", **question} for number, question in enumerate(questions)]
    paragraph = {"context": "Rollo led the Normans.", "qas": named}
    return json.dumps({"version": "v2.0", "data": [{"title": "Normans", "paragraphs": [paragraph]}]})


def test_a_question_without_an_answer(tmp_path: Path) -> None:
    one = {"question": "Who led?", "answers": [{"text": "Rollo", "answer_start": 0}] * 2, "is_impossible": False}
    two = {"question": "When?", "answers": [], "is_impossible": True}
    items = reading.questions(put(tmp_path, "SQuAD/dev-v2.0.json", squad(one, two))).asked
    assert [item.answers for item in items] == [("Rollo",), ("unknown",)]
    assert items[1].earlier == (("\nQ: Who led?\nA:", "Rollo"),)


@pytest.mark.parametrize(
    ("text", "message"), [*expected(__file__, "test_a_broken_file_of_questions"), ("[" * 100_000, "expected JSON")]
)
def test_a_broken_file_of_questions(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        reading.questions(put(tmp_path, "SQuAD/dev-v2.0.json", text))


@pytest.mark.parametrize("game", expected(__file__, "test_a_broken_game"))
def test_a_broken_game(tmp_path: Path, game: dict[str, object]) -> None:
    with pytest.raises(InputError, match=r"recall\.jsonl, line 1: expected"):
        reading.games(put(tmp_path, "Games/recall.jsonl", json.dumps(game) + "\n"), "recall")


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    for read, folder in (
        (reading.lambada, "LAMBADA"),
        (reading.questions, "SQuAD"),
        (PROMPT_TASKS["summaries"].read, "CNNDM"),
    ):
        with pytest.raises(InputError, match=f"{folder}: found no .* there, expected the public file"):
            read(str(tmp_path))
    put(tmp_path, "SQuAD/dev-v2.0.json", '{"data": []}')
    with pytest.raises(InputError, match="SQuAD: found no row to ask, expected one or more"):
        read_rows(PROMPT_TASKS["squad"], str(tmp_path))
    (tmp_path / "SQuAD" / "dev-v2.0.json").unlink()
    (tmp_path / "SQuAD").rmdir()
    with pytest.raises(InputError, match="no data for any of mnli"):
        available_prompt_tasks(str(tmp_path))


# --- the children's book test ---


def block(last: str, sentences: int = 20) -> str:
    lines = [f"{number} Sentence {number} , she said ." for number in range(1, sentences + 1)]
    return "\n".join([*lines, f"{sentences + 1} {last}"]) + "\n\n"


CANDIDATES = "ball|boat|cup|hat|kite|map|pen|ring|shoe|top"
QUERY = f"`` Do n't take the XXXXX -LRB- or me -RRB- ! ''\tkite\t\t{CANDIDATES}"


def test_a_sentence_with_a_blank_is_asked_with_each_candidate_and_what_follows(tmp_path: Path) -> None:
    """The candidate's probability counts with that of the rest of the sentence (GPT-2's paper, section 3.2)."""
    url = put(tmp_path, "CBT/cbtest_CN_valid_2000ex.txt", block(QUERY) * 2)
    put(tmp_path, "CBT/cbtest_CN_test_2500ex.txt", "not asked")
    items = PROMPT_TASKS["cbt-cn"].read(url).asked
    assert len(items) == 2
    item = items[0]
    assert isinstance(item, MultipleChoice)
    assert item.question.startswith("Sentence 1, she said. Sentence 2, she said.")
    assert item.question.endswith("Sentence 20, she said. \"Don't take the")
    assert item.answers == tuple(f'{word} (or me)!"' for word in CANDIDATES.split("|"))
    assert item.shown[1] == 'kite (or me)!"'
    with pytest.raises(InputError, match=r"CBT: found no cbtest_NE_valid\*\.txt or cbtest_NE_test\*\.txt there"):
        PROMPT_TASKS["cbt-ne"].read(url)


def test_a_mark_that_opens_before_the_blank_comes_with_the_candidate(tmp_path: Path) -> None:
    url = put(tmp_path, "CBT/cbtest_CN_test_2500ex.txt", block(f"`` XXXXX ! ''\tkite\t\t{CANDIDATES}"))
    (item,) = PROMPT_TASKS["cbt-cn"].read(url).asked
    assert item.shown[0].endswith("she said.")
    assert item.shown[1] == '"kite!"'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (block(QUERY.replace("|top", "")), "line 21: found .*, expected a sentence with XXXXX, the word .* 10 can"),
        (block(QUERY.replace("\tkite\t", "\tfish\t")), "line 21: found .* expected a sentence"),
        (block(QUERY.replace("XXXXX", "kite")), "line 21: found .* expected a sentence with XXXXX"),
        (block("No fields XXXXX ."), "line 21: found .* expected a sentence"),
        (block(QUERY, 19), "line 21: found 20 lines before the empty one, expected 21"),
        (block(QUERY).rstrip().rpartition("\n")[0], "line 20: found the end of the file after 20 lines of"),
        (block(QUERY).replace("7 Sentence", "8 Sentence"), "line 7: found .*, expected sentence 7 of a block"),
        (block(QUERY).replace("3 Sentence 3 , she said .", "3 "), "line 3: found '3 ', expected sentence 3"),
    ],
)
def test_a_broken_block_of_the_childrens_books_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        PROMPT_TASKS["cbt-cn"].read(put(tmp_path, "CBT/cbtest_CN_valid_2000ex.txt", text))


# --- Winograd schemas ---


def test_the_challenge_in_both_of_its_formats(tmp_path: Path) -> None:
    url = put(tmp_path / "xml", "WSC273/WSCollection.xml", XML)
    found = read_wsc273(url)
    assert found == [
        Pronoun(
            "The city councilmen refused the demonstrators a permit because",
            "feared violence.",
            ("The city councilmen", "The demonstrators"),
            0,
            "they",
        ),
        Pronoun("Paul tried to call George.", "wasn't available.", ("Paul", "George"), 1, "He"),
    ]
    text = (
        "The city councilmen refused the demonstrators a permit because they feared violence.\nthey\n"
        "The city councilmen,The demonstrators\nThe city councilmen\n\n"
    )
    assert read_wsc273(put(tmp_path / "text", "WSC273/wsc273.txt", text)) == found[:1]
    masked = text.replace(" they ", " [MASK]  ").replace("they", "[MASK]").replace("men,", "men ,").replace("\n", " \n")
    (schema,) = read_wsc273(put(tmp_path / "masked", "WSC273/wsc273.txt", masked))
    assert (schema.before, schema.after, schema.referents) == (found[0].before, found[0].after, found[0].referents)
    assert [item.questions for item in PROMPT_TASKS["wsc273"].read(url).asked] == [
        (
            "The city councilmen refused the demonstrators a permit because the city councilmen",
            "The city councilmen refused the demonstrators a permit because the demonstrators",
        ),
        ("Paul tried to call George. Paul", "Paul tried to call George. George"),
    ]


@pytest.mark.parametrize(("pronoun", "after", "told"), expected(__file__, "test_whose_something_is"))
def test_whose_something_is(pronoun: str, after: str, told: str) -> None:
    assert Pronoun("so", after, ("Tom", "The man"), 0, pronoun).resolved(0) == told
    assert Pronoun("so", after, ("Tom", "The man"), 0, pronoun).resolved(1) == told.replace("Tom", "the man")
    assert Pronoun("so", "hat fell.", ("Tom's", "Ann's"), 0, "his").resolved(1) == "so Ann's"


def test_only_the_schemas_of_the_challenge_count(tmp_path: Path) -> None:
    schema = XML[XML.index("<schema>") : XML.index("</schema>") + len("</schema>")]
    url = put(tmp_path, "WSC273/WSCollection.xml", f"<collection>{schema * 285}</collection>")
    assert len(read_wsc273(url)) == 273


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace("</collection>", ""), "expected XML"),
        (lambda text: text.replace(" A. ", "C"), "schema 1: expected a text, a pronoun, two answers"),
        (lambda text: text.replace("<answer>Paul</answer>", ""), "schema 2: expected"),
        (lambda text: '<!DOCTYPE c [<!ENTITY a "b">]>' + text.partition("\n")[2], "found an entity"),
    ],
)
def test_a_broken_collection(tmp_path: Path, change: Callable[[str], str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_wsc273(put(tmp_path, "WSC273/WSCollection.xml", change(XML)))
    with pytest.raises(InputError, match=r"found neither wsc273\.txt nor WSCollection\.xml"):
        read_wsc273(str(tmp_path / "elsewhere"))


# --- the real files ---


@pytest.mark.parametrize(("name", "folder", "asked", "pool"), expected(__file__, "test_real_rows_are_all_read"))
def test_real_rows_are_all_read(name: str, folder: str, asked: int | None, pool: int) -> None:
    url = str(real_data(folder).parent)
    rows = PROMPT_TASKS[name].read(url)
    assert len(rows.pool) == pool
    if asked is None:
        data = json.loads((Path(url) / "SQuAD/dev-v2.0.json").read_text())["data"]
        asked = sum(len(paragraph["qas"]) for article in data for paragraph in article["paragraphs"])
    assert len(rows.asked) == asked
    assert all(all(item.questions) and all(item.shown) for item in rows.asked)
    assert not any("``" in item.shown[0] for item in rows.asked if name == "lambada")
