"""The forms of abstracts that a language model writes from titles."""

from __future__ import annotations

import dataclasses
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from flows.forms.fields import Form, field
from gptcore.base.errors import InputError
from gptcore.base.filesystems import require_address
from gptcore.config import Preset
from gptcore.config.sizes import shape_given
from gptcore.papers.abstracts.config import BY_SIZE, PRESETS, TABLES, AbstractsPreset, SamplingConfig

if TYPE_CHECKING:
    from flows.forms.requests import Given
    from tasks.store.artifact import Artifact
    from tasks.store.store import Store

AbstractsPresetName = StrEnum("AbstractsPresetName", {name: name for name in PRESETS})  # type: ignore[misc]  # known at run time
AbstractsTableName = StrEnum("AbstractsTableName", {name: name for name in TABLES})  # type: ignore[misc]  # as above
_SAMPLING = SamplingConfig()


@dataclasses.dataclass(frozen=True)
class PapersRequest:
    """What the names of a form about papers stand for."""

    store: Store
    preset: Preset
    """Settings of the language model."""
    own: AbstractsPreset
    """How it is fine-tuned on abstracts, and writes them."""
    checkpoint: Artifact | None
    """None: the language model is pre-trained."""
    tokenizer: Given | None
    beside: tuple[Artifact, ...]
    """Further models that are fine-tuned, too."""


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

    @property
    def section(self) -> str:
        """The section of the settings that the first fine-tune has."""
        return "adapt"

    def resolve(self, store: Store) -> PapersRequest:
        from flows.forms import checks
        from flows.papers.abstracts.settings import check_positions, chosen_abstracts
        from gptcore.papers.abstracts.documents import archive_files

        preset, own = chosen_abstracts(self.preset, self.overrides)
        if self.arxiv:
            archive_files(self.arxiv)
        self._check_pretraining()
        tokenizer = checks.given_tokenizer(store, self.tokenizer)
        checks.digest_of(store, tokenizer)
        checks.check_dask(self.dask)
        self._check_tables()
        checkpoint = self._start(store, self.checkpoint, preset) if self.checkpoint else None
        checks.check_corpus(self.corpus)
        beside = tuple(self._start(store, ref, preset) for ref in self._beside())
        n_ctx = store.manifest(checkpoint)["config"]["model"]["n_ctx"] if checkpoint else preset.model.n_ctx
        check_positions(self.section, [getattr(own, self.section)], n_ctx)
        return PapersRequest(store, preset, own, checkpoint, tokenizer, beside)

    def _check_pretraining(self) -> None:
        """:raises InputError: a model to start from, and settings of another that would be pre-trained."""
        from flows.papers.abstracts.settings import language_overrides

        idle = [f"--{name}" for name in ("corpus", "tokenizer") if getattr(self, name)]
        idle += [name for name in language_overrides(self.overrides) if name != "family"]
        if self.checkpoint and idle:
            raise InputError(f"--checkpoint: nothing is pre-trained then; expected no {idle[0]} beside it")

    def _check_tables(self) -> None:
        """Nothing is wanted of tables but where they are chosen."""

    def _beside(self) -> list[str]:
        """Further models that are fine-tuned, too."""
        return []

    def _start(self, store: Store, ref: str, preset: Preset) -> Artifact:
        """A model to start from.

        :raises InputError: it is not there, or reads other text.
        """
        from flows.forms.references import pretrained_model
        from tasks.stages.tokenizer import check_kind  # brings Prefect
        from tasks.store.lineage import tokenizer_of

        model = pretrained_model(store, ref, generates=True)
        check_kind(store, tokenizer_of(store, model), preset.tokenizer)
        return model


class AbstractsParameters(OnPapers):
    """Abstracts from titles: a GPT-2 fine-tuned on arXiv's papers, its losses and what it writes."""

    titles: int = field("abstracts-titles", 6)
    beside: list[str] = field("abstracts-beside", 11)

    def _beside(self) -> list[str]:
        for ref in self.beside:
            require_address(ref, "--beside")
        return self.beside


class AbstractsTablesParameters(OnPapers):
    """The paper's Tables 3 to 7, one setting changed in each, and models of other sizes."""

    only: list[AbstractsTableName] = field("abstracts-tables-only", 6)

    @property
    def section(self) -> str:
        return "star"

    @property
    def tables(self) -> list[str]:
        """The tables to make: those wanted, else every one.

        :raises InputError: models of other sizes are wanted where nothing is pre-trained, or where all would have one
            size.
        """
        if not self.checkpoint and not shape_given(self.overrides):
            return list(self.only) or list(TABLES)
        if BY_SIZE in self.only:
            given = "--checkpoint" if self.checkpoint else shape_given(self.overrides)[0]
            raise InputError(f"--only {BY_SIZE}: each size is pre-trained with its own shape; expected no {given}")
        return list(self.only) or [name for name in TABLES if name != BY_SIZE]

    def _check_tables(self) -> None:
        _ = self.tables


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
