"""The forms of language models that write: abstracts from titles, answers from prompts."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from flows.forms import fields
from flows.forms.fields import Option, field
from flows.forms.form import AbstractsPresetName, AbstractsTableName, Form, PromptTaskChoice, SizedPresetName
from flows.forms.readers import prompt_task_names, shot_counts
from gptcore.abstracts.config import SamplingConfig
from gptcore.abstracts.published import TABLES

if TYPE_CHECKING:
    from tasks.store.store import Store

_SAMPLING = SamplingConfig()


class OnPapers(Form):
    """Papers, and the language model that is fine-tuned on them."""

    preset: AbstractsPresetName = fields.preset("demo", "Sizes and schedules: demo, small, paper.")
    store: str = fields.store(1)
    arxiv: str = field(
        2,
        "",
        "Its file or folder (.tsv.xz).",
        empty="the generated, synthetic papers",
        title="arXiv Archive",
        option=Option(metavar="URL", help="arXiv Archive: a .tsv, .tsv.xz or .tsv.gz, or a folder"),
    )
    checkpoint: str = field(
        3,
        "",
        "GPT-2 to start from: one of the store's, as elsewhere, or a folder of Hugging Face's.",
        empty="one is pre-trained on the books",
        option=fields.MODEL,
    )
    corpus: str = fields.corpus(4)
    overrides: dict[str, Any] = fields.overrides(5, '{"adapt": {"lr": 5e-5}}')
    nproc: int = fields.nproc(7)
    jobs: int = field(8, 0, "Trainings at the same time.", empty="both; for tables one a core, or one a GPU", ge=0)
    out: str = fields.out(9, "the tables (Markdown, CSV)")
    categories: list[str] = field(
        10,
        [],
        "arXiv categories, e.g. cs.CL: only papers in one of them.",
        empty="the paper's four (cs.AI, cs.LG, cs.CL, cs.CV), or all where none is in those",
    )
    dask: str = fields.dask(12)
    tokenizer: str = fields.tokenizer(13)

    def _look_up(self, store: Store) -> None:
        from flows.forms import generation_checks as checks
        from flows.forms.checks import check_corpus, check_dask, known_tokenizer

        checks.check_papers(self)
        known_tokenizer(store, self.tokenizer)
        check_dask(self.dask)
        self._look_up_tables()
        checks.check_start_of_abstracts(store, self)
        check_corpus(self.corpus)

    def _look_up_tables(self) -> None:
        """Nothing is wanted of tables but where they are chosen."""


class AbstractsParameters(OnPapers):
    """Abstracts from titles: a GPT-2 fine-tuned on arXiv's papers, its losses and what it writes."""

    titles: int = field(6, 0, "Held-out papers to write abstracts for.", empty="as the preset says", ge=0, le=10_000)
    beside: list[str] = field(
        11,
        [],
        "More models to fine-tune, other sizes for instance: one Table 8 has them all.",
        empty="none",
        option=Option(metavar="A,B"),
    )

    def _look_up(self, store: Store) -> None:
        from flows.forms import generation_checks as checks

        super()._look_up(store)
        checks.check_beside(store, self)


class AbstractsTablesParameters(OnPapers):
    """The paper's Tables 3 to 7, one setting changed in each, and models of other sizes."""

    only: list[AbstractsTableName] = field(
        6,
        [],
        "Only these tables.",
        empty="every one that can be made",
        option=Option(help=f"tables: only these of {', '.join(TABLES)}"),
    )

    def _look_up_tables(self) -> None:
        from flows.forms import generation_checks as checks

        checks.chosen_tables(self)


class GenerateParameters(Form):
    """Abstracts under titles of your own, by a model that is there."""

    # `gptmill abstracts generate` draws as its preset and --config say, and prints: the fields without an option.

    titles: list[str] = field(
        0,
        text="Each gets an abstract.",
        min_length=1,
        option=Option("title", "TEXT", "generate: of an abstract to write; may come again", repeated=True),
    )
    model: str = field(
        1,
        "",
        "Fine-tuned on abstracts: digest, beginning of it, or address.",
        empty="the one that wrote last",
        option=Option(metavar="REF", help="generate: a digest or address"),
    )
    store: str = fields.store(2)
    max_tokens: int = field(3, _SAMPLING.max_tokens, "At most so many tokens an abstract.", ge=1, option=None)
    temperature: float = field(4, _SAMPLING.temperature, "Below 1: likelier words; 0: likeliest.", ge=0, option=None)
    top_k: int = field(5, _SAMPLING.top_k, "Draw from so many likeliest tokens. 0: all.", ge=0, option=None)
    top_p: float = field(6, _SAMPLING.top_p, "Mass of the nucleus that is drawn from.", gt=0, le=1, option=None)
    repetition_penalty: float = field(
        7, _SAMPLING.repetition_penalty, "Makes what the text holds less likely. 1: off.", ge=1, option=None
    )
    seed: int = field(8, _SAMPLING.seed, "Names the draws.", option=None)
    out: str = field(9, "", "A local folder for the page.", empty="none", option=None)

    @property
    def sampling(self) -> SamplingConfig:
        """How the abstracts are drawn.

        :raises InputError: a value out of range.
        """
        return SamplingConfig(**{each.name: getattr(self, each.name) for each in dataclasses.fields(SamplingConfig)})


class FewShotParameters(Form):
    """Answers from prompts, without fine-tuning: zero-shot and behind examples."""

    preset: SizedPresetName = fields.preset("demo", "Whose three sizes are pre-trained: demo, small, paper.")
    store: str = fields.store(1)
    checkpoints: list[str] = field(
        2,
        [],
        "Pre-trained models: digests (or their beginnings), URLs, latest, or folders of Hugging Face's.",
        empty="three sizes of GPT-2 are pre-trained on the corpus",
        option=Option("checkpoint"),
    )
    datasets: str = fields.datasets(3, "Folder of the datasets.")
    corpus: str = fields.corpus(4, "Text to pre-train on.", "the generated world's web")
    tasks: list[PromptTaskChoice] = field(
        5, [], "Only these tasks.", empty="every task whose data is there", option=Option(read=prompt_task_names)
    )
    shots: list[Annotated[int, Field(ge=0, le=100)]] = field(
        6,
        [0, 1, 4, 8],
        "Examples before a question, each tried.",
        min_length=1,
        option=Option(metavar="K,L", read=shot_counts),
    )
    max_rows: int = field(7, 200, "Rows of each task, drawn by a seed. 0: all.", ge=0)
    overrides: dict[str, Any] = fields.overrides(
        8, '{"pretrain": {"steps": 500}}', "Settings of the pre-training that differ"
    )
    nproc: int = fields.nproc(9)
    out: str = fields.out(10, "the tables (Markdown, CSV) and figures")
    dask: str = fields.dask(11)
    tokenizer: str = fields.tokenizer(12)

    def _look_up(self, store: Store) -> None:
        from flows.forms import generation_checks as checks
        from flows.forms.checks import check_dask, known_tokenizer

        known_tokenizer(store, self.tokenizer)
        check_dask(self.dask)
        checks.check_prompts(self)
