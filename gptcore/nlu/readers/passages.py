"""SQuAD's files: articles of passages, each with questions whose answers stand in it (Rajpurkar et al. 2016, 2018).

    {"data": [{"title": ..., "paragraphs": [{"context": ..., "qas": [
        {"id": ..., "question": ..., "is_impossible": ..., "answers": [{"text": ..., "answer_start": ...}]}]}]}]}

``is_impossible`` is version 2's. Other entries (plausible answers, the version) are left alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gptcore.nlu.examples import Annotation, Example, Record, show
from gptcore.nlu.readers.text_files import json_object
from gptcore.nlu.registry import TaskSpec


def read_squad(spec: TaskSpec, url: str, datasets_url: str, subset: str = "") -> Iterator[Example]:
    """The questions of one file, in its order; the passage is the last field, and every answer of it an annotation.

    Questions of one article are of one group; of one passage, where the file tells no articles apart.

    :param datasets_url: what rows are named relative to.
    :raises InputError: no such file, not this structure, an answer that does not stand where the file says, none where
        the task knows no question without, two questions of one id; names article, passage, question and field.
    """
    whole = Record(url, "1", json_object(url, "the list data"))
    articles = whole.listed("data")
    titles = {str(article.get("title", "")) for article in articles if isinstance(article, dict)}
    seen: dict[str, str] = {}
    for a, article in enumerate(articles, start=1):
        of_article = replace(whole.inner(article, "data"), line=f"{a}", unit="article")
        title = str(of_article.columns.get("title") or "") if len(titles) > 1 else ""
        for p, paragraph in enumerate(of_article.listed("paragraphs"), start=1):
            of_passage = replace(of_article.inner(paragraph, "paragraphs"), line=f"{a}, passage {p}")
            passage = of_passage.text("context")
            for q, question in enumerate(of_passage.listed("qas"), start=1):
                place = f"{a}, passage {p}, question {q}"
                row = replace(of_passage.inner(question, "qas"), line=place)
                known = row.value("id")
                if not isinstance(known, str) or not known:
                    raise row.error("id", show(known), "text that is not empty")
                if known in seen:
                    raise row.error("id", f"{show(known)} again, as in article {seen[known]}", "another for each")
                seen[known] = place
                answers = _answers(spec, row, passage)
                yield Example(
                    fields=(row.text("question"), passage),
                    choices=(),
                    label=float(len(spec.labels) - 1 if answers else 0),
                    subset=subset,
                    row=row.name(datasets_url, f"article {place}"),
                    annotations=answers,
                    id=known,
                    group=title or f"passage {a}.{p}",
                )


def _answers(spec: TaskSpec, row: Record, passage: str) -> tuple[Annotation, ...]:
    """The places of a question's answers, each once; none where it has none."""
    given = row.listed("answers")
    impossible = row.columns.get("is_impossible", False)
    if not isinstance(impossible, bool):
        raise row.error("is_impossible", show(impossible), "true or false")
    if impossible and given:
        raise row.error("answers", f"{len(given)} of a question that is_impossible", "none")
    if not impossible and not given:
        raise row.error("answers", "none", "one or more, or is_impossible: true")
    if impossible and len(spec.labels) < 2:
        raise row.error("is_impossible", "true", f"false, as every question of {spec.name} has an answer")
    places: dict[Annotation, None] = {}
    for answer in given:
        of_answer = row.inner(answer, "answers")
        text, start = of_answer.text("text"), of_answer.value("answer_start")
        if isinstance(start, bool) or not isinstance(start, int):
            raise row.error("answer_start", show(start), "a whole number")
        if start < 0 or passage[start : start + len(text)] != text:
            found = f"{show(passage[max(0, start) : max(0, start) + len(text)])} at {start}"
            raise row.error("answer_start", found, f"the answer {show(text)}")
        places[Annotation(start, start + len(text))] = None
    return tuple(places)
