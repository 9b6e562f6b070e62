"""The forms of abstracts that a language model writes from titles."""

from __future__ import annotations

import dataclasses
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from flows.forms.fields import Form, field
from gptcore.papers.abstracts.config import PRESETS, TABLES, SamplingConfig

if TYPE_CHECKING:
    from tasks.store.store import Store

AbstractsPresetName = StrEnum("AbstractsPresetName", {name: name for name in PRESETS})  # type: ignore[misc]  # known at run time
AbstractsTableName = StrEnum("AbstractsTableName", {name: name for name in TABLES})  # type: ignore[misc]  # as above
_SAMPLING = SamplingConfig()


class OnPapers(Form):
    """Papers, and the language model that is fine-tuned on them."""

    preset: AbstractsPresetName = field("papers-preset", 0)
    store: str = field("store", 1)
    arxiv: str = field("papers-arxiv", 2)
    checkpoint: str = field("papers-checkpoint", 3)
    corpus: str = field("corpus", 4)
    overrides: dict[str, Any] = field("papers-overrides", 5)
    nproc: int = field("nproc", 7)
    jobs: int = field("papers-jobs", 8)
    out: str = field("papers-out", 9)
    categories: list[str] = field("papers-categories", 10)
    dask: str = field("dask", 12)
    tokenizer: str = field("tokenizer", 13)

    def _look_up(self, store: Store) -> None:
        from flows.forms.checks import check_corpus, check_dask, known_tokenizer
        from flows.papers.abstracts import checks

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

    titles: int = field("abstracts-titles", 6)
    beside: list[str] = field("abstracts-beside", 11)

    def _look_up(self, store: Store) -> None:
        from flows.papers.abstracts import checks

        super()._look_up(store)
        checks.check_beside(store, self)


class AbstractsTablesParameters(OnPapers):
    """The paper's Tables 3 to 7, one setting changed in each, and models of other sizes."""

    only: list[AbstractsTableName] = field("abstracts-tables-only", 6)

    def _look_up_tables(self) -> None:
        from flows.papers.abstracts import checks

        checks.chosen_tables(self)


class GenerateParameters(Form):
    """Abstracts under titles of your own, by a model that is there."""

    # `gptmill abstracts generate` draws as its preset and --config say, and prints: the fields without an option.

    titles: list[str] = field("generate-titles", 0)
    model: str = field("generate-model", 1)
    store: str = field("store", 2)
    max_tokens: int = field("generate-max_tokens", 3, _SAMPLING.max_tokens)
    temperature: float = field("generate-temperature", 4, _SAMPLING.temperature)
    top_k: int = field("generate-top_k", 5, _SAMPLING.top_k)
    top_p: float = field("generate-top_p", 6, _SAMPLING.top_p)
    repetition_penalty: float = field("generate-repetition_penalty", 7, _SAMPLING.repetition_penalty)
    seed: int = field("generate-seed", 8, _SAMPLING.seed)
    out: str = field("generate-out", 9)

    @property
    def sampling(self) -> SamplingConfig:
        """How the abstracts are drawn.

        :raises InputError: a value out of range.
        """
        return SamplingConfig(**{each.name: getattr(self, each.name) for each in dataclasses.fields(SamplingConfig)})
