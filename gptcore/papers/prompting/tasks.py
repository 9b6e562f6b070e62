"""The tasks that are put to a model as prompts: the twelve of the leaderboard, and what GPT-2 was asked beside them.

The others are those of ``tasks.toml``. The texts of every test set whose files are there, of BLiMP's, too, are what
training text is searched for. Scores of GPT-2's paper and its rivals, to stand beside ours, are those of
``published.toml``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from gptcore.base.errors import InputError, nearest, require
from gptcore.base.files import sha256_json
from gptcore.base.named import named_part
from gptcore.base.settings import recorded
from gptcore.base.tables import read_table
from gptcore.evaluation.held_rows import EvaluationTexts, Texts, sets_of_task
from gptcore.nlu.blimp import BLIMP, PARADIGMS, blimp_fingerprint, has_blimp, read_paradigm
from gptcore.nlu.encoded import dataset_fingerprint
from gptcore.nlu.forms import form_of
from gptcore.nlu.own_task import is_task_file, read_own_task
from gptcore.nlu.readers import available, has_folder
from gptcore.nlu.registry import REGISTRY, TaskSpec
from gptcore.papers.prompting import measures
from gptcore.papers.prompting.items import Decoding, FreeForm, Item, MultipleChoice, Normalisation, Rows
from gptcore.papers.prompting.rows import dataset_rows, digest


@dataclass(frozen=True)
class PublishedScore:
    """One score of one model."""

    who: str
    score: float
    """The score in per cent; a perplexity as it is."""
    of: str = ""
    """Which of the task's scores it is; empty for the headline."""
    parts: tuple[float, ...] = ()
    """What the score is the mean of, in per cent: ROUGE-1, -2 and -L."""

    def __str__(self) -> str:
        parts = f" ({', '.join(f'{part:.2f}' for part in self.parts)})" if self.parts else ""
        return f"{self.who} {self.score:.2f}{parts}{f' ({self.of})' if self.of else ''}"


SIZES = ("117M", "345M", "762M", "1542M")
"""GPT-2's, as its paper's Table 3 names them."""
NO_STOP_WORDS = "accuracy, no stop words"
"""The score of LAMBADA that leaves out words which can hardly end a passage."""
WORD_PERPLEXITY = "perplexity of the word"
"""The score of LAMBADA that the right word's probability gives."""


def _scores(table: Mapping[str, Any]) -> Iterator[PublishedScore]:
    for row in table["rows"]:
        if "sizes" not in row:
            yield PublishedScore(**row)
            continue
        for size, score in zip(SIZES, row["sizes"], strict=True):
            yield PublishedScore(f"GPT-2 {size}", score, row.get("of", ""))


_published = read_table(__file__, "published.toml")

PUBLISHED_PROMPTED: Mapping[str, Sequence[PublishedScore]] = {
    task: tuple(_scores(_published[table.get("same_as", task)])) for task, table in _published.items()
}
"""Task -> scores."""


@dataclass(frozen=True)
class PromptTask:
    """One task."""

    name: str
    folder: str
    """The task's folder among those of the datasets."""
    metric: str
    """Name of the headline's metric."""
    read: Callable[[str], Rows]
    """Reads the rows from the folder of datasets.

    :raises InputError: a missing file or a broken row.
    """
    normalisation: Normalisation = Normalisation.TOTAL
    """How the candidates of the headline compare."""
    decoding: Decoding | None = None
    """How an answer is generated; None where it is chosen among candidates."""
    measure: measures.Measure | None = None
    """How generated answers are scored."""
    word: bool = False
    """Whether the answer is one word, whose probability counts too (LAMBADA)."""
    spec: TaskSpec | None = None
    """The entry of one of the twelve, or a user's own task; None for the others."""
    baselines: Callable[[Sequence[FreeForm]], Iterable[tuple[str, list[str]]]] | None = None
    """Names and answers that are given without a model; the first is what a blind guess gets."""

    @property
    def published(self) -> Sequence[PublishedScore]:
        """Scores of papers, to stand beside ours."""
        return PUBLISHED_PROMPTED.get(self.name, ())

    def has_room(self, n_ctx: int) -> bool:
        """Whether a model has positions for the task's generated answers, and as many for what it is asked."""
        return self.decoding is None or self.decoding.room(n_ctx) >= self.decoding.needed

    def check_room(self, n_ctx: int) -> None:
        """Refuse a model that has too few positions for the task's generated answers.

        :raises InputError: naming the task, the model's positions and how many are needed.
        """
        if self.decoding is not None and not self.has_room(n_ctx):
            raise InputError(
                f"{self.name}: found a model with n_ctx = {n_ctx}, expected {2 * self.decoding.needed} or more, "
                f"as answers have {self.decoding.needed} tokens"
            )

    @property
    def recorded(self) -> dict[str, Any]:
        """What of the task decides the scores, beside the rows."""
        decoding = None if self.decoding is None else recorded(self.decoding)
        normalisation = None if self.decoding is not None else self.normalisation.value
        return {"metric": self.metric, "decoding": decoding, "word": self.word, "normalisation": normalisation}


def _normalisation(spec: TaskSpec) -> Normalisation:
    """How the candidates of one of the twelve compare, as in GPT-3's paper, section 2.4.

    RACE is among the three datasets that it divides by the answer's unconditional probability; the others compare by
    the likelihood a token. Grades need probabilities.
    """
    if spec.name == "race":
        return Normalisation.UNCONDITIONAL
    return Normalisation.TOTAL if spec.score_range else Normalisation.PER_TOKEN


def prompted(spec: TaskSpec) -> PromptTask:
    """One of the twelve, or a user's own task, as prompts."""
    read = partial(dataset_rows, spec)
    return PromptTask(spec.name, spec.folder, spec.headline, read, _normalisation(spec), spec=spec)


_TABLES = read_table(__file__, "tasks.toml")


def _listed(name: str, table: Mapping[str, Any]) -> PromptTask:
    given = dict(table["read"])
    read = partial(named_part(f"gptcore.papers.prompting.{given.pop('by')}"), **given)
    parts = {part: getattr(measures, table[part]) for part in ("measure", "baselines") if part in table}
    decoding = Decoding(**table["decoding"]) if "decoding" in table else None
    word = table.get("word", False)
    return PromptTask(name, table["folder"], table["metric"], read, decoding=decoding, word=word, **parts)


PROMPT_TASKS: dict[str, PromptTask] = {
    **{name: prompted(spec) for name, spec in REGISTRY.items()},
    **{name: _listed(name, table) for name, table in _TABLES.items()},
}
"""Name -> task."""


def prompt_task(name: str, datasets_url: str = "") -> PromptTask:
    """A task by its name, or by the address of the file of a user's own.

    :raises InputError: there is none of that name, or the file is no task's.
    """
    if is_task_file(name):
        spec = read_own_task(name, datasets_url).spec
        if form_of(spec).several:
            raise InputError(
                f"{name}: form = {spec.form!r}: a prompt has one answer, expected a task whose rows have one"
            )
        return prompted(spec)
    require(name in PROMPT_TASKS, f"task: found {name!r}, {nearest(name, PROMPT_TASKS)}")
    return PROMPT_TASKS[name]


def available_prompt_tasks(datasets_url: str) -> list[str]:
    """Tasks whose folder is there.

    :raises InputError: there is none.
    """
    twelve = available(datasets_url)
    there = [
        name
        for name, task in PROMPT_TASKS.items()
        if (name in twelve if name in REGISTRY else has_folder(task.folder, datasets_url))
    ]
    require(there, f"{datasets_url}: no data for any of {', '.join(PROMPT_TASKS)}")
    return there


def read_rows(task: PromptTask, datasets_url: str) -> Rows:
    """The rows of a task.

    :raises InputError: a missing file, a broken row, or none to ask.
    """
    rows = task.read(datasets_url)
    if not rows.asked:
        folder = task.spec.address(datasets_url, "") if task.spec else f"{datasets_url.rstrip('/')}/{task.folder}"
        raise InputError(f"{folder}: found no row to ask, expected one or more")
    return rows


# --- the texts of every test set ---


def evaluation_texts(datasets_url: str) -> list[EvaluationTexts]:
    """Every test set of a folder of datasets.

    :raises InputError: there is none.
    """
    sets = [texts for name in available(datasets_url) for texts in sets_of_task(REGISTRY[name], datasets_url)]
    for name in PROMPTED:
        if has_folder(PROMPT_TASKS[name].folder, datasets_url):
            asked, pool = (partial(_items, name, datasets_url, part) for part in ("asked", "pool"))
            sets.append(EvaluationTexts(name, asked, pool if "train" in _TABLES[name] else None))
    if has_blimp(datasets_url):
        sets.append(EvaluationTexts(BLIMP, partial(_pairs, datasets_url)))
    require(sets, f"{datasets_url}: found no test set there, expected one sub-folder for each dataset")
    return sets


def fingerprint(datasets_url: str) -> str:
    """SHA-256 of what :func:`evaluation_texts` finds.

    :raises InputError: a missing file or a broken row.
    """
    files = {name: dataset_fingerprint(REGISTRY[name], datasets_url) for name in available(datasets_url)}
    for name in PROMPTED:
        if has_folder(PROMPT_TASKS[name].folder, datasets_url):
            files[name] = digest(PROMPT_TASKS[name].read(datasets_url))
    if has_blimp(datasets_url):
        files[BLIMP] = blimp_fingerprint(datasets_url)
    return sha256_json(files)


def _items(name: str, datasets_url: str, part: str) -> Texts:
    """The texts of each row of a prompt task, without what only the prompt adds."""
    return (PROMPTED[name](item) for item in getattr(PROMPT_TASKS[name].read(datasets_url), part))


def _pairs(datasets_url: str) -> Texts:
    return ((pair.good, pair.bad) for paradigm in PARADIGMS for pair in read_paradigm(datasets_url, paradigm))


def _continued(item: Item) -> tuple[str, ...]:
    """The right answer goes on the question's text."""
    return (" ".join(item.shown),)


def _beside(item: Item) -> tuple[str, ...]:
    """Context, question and right answers are texts of their own."""
    assert isinstance(item, FreeForm)
    question = item.question.removeprefix("\nQ: ").removesuffix("\nA:").removesuffix(" =")
    return tuple(text for text in (item.context, question, *item.answers) if text)


def _turns(item: Item) -> tuple[str, ...]:
    """All lines of a game are one text."""
    assert isinstance(item, MultipleChoice)
    return (" ".join(part for turn in (*(item.earlier or ()), item.shown) for part in turn),)


_TEXTS = {"continued": _continued, "beside": _beside, "turns": _turns}
PROMPTED: dict[str, Callable[[Item], tuple[str, ...]]] = {
    name: _TEXTS[table["texts"]] for name, table in _TABLES.items() if "texts" in table
}
"""Prompt task -> the texts of one of its rows; of tasks that ask the same files, one."""
