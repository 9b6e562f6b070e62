"""CommonsenseQA's files: a question a line with its concept and five choices (Talmor et al. 2019).

    {"id": ..., "answerKey": "B", "question": {"stem": ..., "question_concept": ..., "choices": [
        {"label": "A", "text": ...}, ...]}}

The in-house split (Lin et al. 2019, KagNET) has a test set, as the official one has no answers: beside the train file
lies one with the ids of the questions that are learnt from, and the others of the train file are the test set. Without
that file all of them are learnt from.
"""

from __future__ import annotations

from collections.abc import Iterator

from gptcore.base.filesystems import exists, file_system
from gptcore.nlu.examples import Example, Record, show
from gptcore.nlu.readers.text_files import lines, parse_object
from gptcore.nlu.registry import TaskSpec

TRAIN, IN_HOUSE = "train_rand_split.jsonl", "inhouse_split_qids.txt"


def read_commonsense(spec: TaskSpec, url: str, datasets_url: str, subset: str = "") -> Iterator[Example]:
    """The questions of one file, in its order; of the file of ids, those of the train file that it does not list.

    :param datasets_url: what rows are named relative to.
    :raises InputError: no such file, not this structure, another number of choices, an answer that is none of them, two
        questions of one id; names line and field.
    """
    folder, _, name = url.rpartition("/")
    listed: set[str] | None = None
    if name == IN_HOUSE or (name == TRAIN and exists(*file_system(f"{folder}/{IN_HOUSE}"))):
        listed = {line.strip() for _, line in lines(f"{folder}/{IN_HOUSE}") if line.strip()}
    file = f"{folder}/{TRAIN}" if name == IN_HOUSE else url
    seen: dict[str, int] = {}
    for number, line in lines(file):
        if not line.strip():
            continue
        row = Record(file, str(number), parse_object(line, file, number))
        known = row.text("id")
        if known in seen:
            raise row.error("id", f"{show(known)} again, as in line {seen[known]}", "another for each")
        seen[known] = number
        example = _example(spec, row, datasets_url, subset)
        if listed is None or (known in listed) == (name == TRAIN):
            yield example


def _example(spec: TaskSpec, row: Record, datasets_url: str, subset: str) -> Example:
    question = row.value("question")
    if not isinstance(question, dict):
        raise row.error("question", show(question), "an object with stem and choices")
    inner = Record(row.file, row.line, {**question, "id": row.columns["id"]})
    choices = inner.value("choices")
    n_choices = len(spec.choices)
    if not isinstance(choices, list) or len(choices) != n_choices:
        found = f"{len(choices)} of them" if isinstance(choices, list) else show(choices)
        raise inner.error("choices", found, f"a list of {n_choices}")
    texts: dict[str, str] = {}
    for choice in choices:
        if not isinstance(choice, dict) or choice.get("label") not in spec.labels or choice["label"] in texts:
            raise inner.error("choices", show(choice), f"an object each with label ({', '.join(spec.labels)}) and text")
        texts[choice["label"]] = Record(row.file, row.line, choice).text("text")
    answer = row.value(spec.label)
    if answer not in spec.labels:
        raise row.error(spec.label, show(answer), f"one of {', '.join(spec.labels)}")
    return Example(
        fields=(inner.text("stem"),),
        choices=tuple(texts[label] for label in spec.labels),
        label=float(spec.labels.index(answer)),
        subset=subset,
        row=row.name(datasets_url),
        id=row.text("id"),
    )
