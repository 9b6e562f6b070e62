"""What the pipeline and every analysis begin with: raw books become a pre-trained model, tasks are encoded.

Every pre-training from raw text begins with a tokenizer and encoded shards.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from flows.forms.checks import chosen_tasks
from flows.forms.choices import list_checkpoints
from flows.forms.parameters import OnBooks
from flows.forms.requests import BooksRequest, Given, NetworkRequest
from flows.plugins import part
from flows.servers import signals
from flows.trainings.failures import Failures, each_apart
from flows.trainings.grid import Arm, Grid, grid_of
from flows.trainings.train import run_one
from gptcore.config import NetworkConfig, Preset, PretrainConfig, ShardConfig
from gptcore.config.operations import updates_of
from gptcore.config.training import OF_OBJECTIVES
from gptcore.families import FAMILIES, Family
from gptcore.nlu.forms import form_of
from gptcore.nlu.own_task import Task
from gptcore.text.sources import RawCorpus
from tasks.report.card import amount
from tasks.stages.corpus import clean_corpus, encode_shards, generate_world, ngrams_beside
from tasks.stages.dataset import encode_dataset, score_baselines
from tasks.stages.partitions import clean_partitions, encode_partitions, is_one_split
from tasks.stages.pretrain import PretrainRequest
from tasks.stages.tokenizer import check_kind, pin_tokenizer, train_tokenizer
from tasks.stages.training import Distillation
from tasks.store.artifact import Artifact
from tasks.store.counts import ShardsCounts
from tasks.store.lineage import ancestor, own_tokenizer
from tasks.store.references import n_parameters
from tasks.store.store import Store


@dataclass(frozen=True)
class Books:
    """Cleaned books and their tokenizer, by which they are encoded once the shards are asked for."""

    store: Store
    corpus: Artifact
    tokenizer: Artifact
    config: ShardConfig
    dask: str = ""
    by_partition: bool = False
    """Whether each file of the corpus is an artifact of its own."""
    count_ngrams: bool = False
    """Whether n-grams are counted of a large text, too."""

    @cached_property
    def shards(self) -> Artifact:
        encode = encode_partitions if self.by_partition else encode_shards
        return encode(self.store, self.corpus, self.tokenizer, self.config, self.dask)

    @cached_property
    def ngrams(self) -> Artifact | None:
        """N-gram perplexities of the shards, unless these are large."""
        return ngrams_beside(self.store, self.shards, self.dask, self.count_ngrams)

    def pretraining(self, preset: Preset, nproc: int) -> PretrainRequest:
        return PretrainRequest(
            self.store, self.shards, preset.model, preset.pretrain, self.ngrams, nproc=nproc, preset=preset.name
        )


def books_to_shards(
    store: Store,
    raw: RawCorpus,
    preset: Preset,
    dask: str = "",
    tokenizer: Artifact | None = None,
    by_partition: bool = True,
) -> Books:
    """Clean books and learn a tokenizer from them, unless one is given; what the store holds is not made again.

    With a tokenizer that is given, books are cleaned and encoded one by one, so that a new one is all that is read;
    one or two, of which nothing would be held out, are cleaned as a whole.

    :param by_partition: whether books are cleaned one by one at all.
    :raises InputError: broken books, or nothing left of them.
    """
    if tokenizer and by_partition:
        corpus = clean_partitions(store, raw, preset.corpus, dask)
        if not is_one_split(store, corpus):
            return Books(store, corpus, tokenizer, preset.shards, dask, by_partition=True)
    corpus = clean_corpus(store, raw, preset.corpus, dask)
    return Books(
        store, corpus, tokenizer or train_tokenizer(store, corpus, preset.tokenizer, dask), preset.shards, dask
    )


def books_and_datasets(store: Store, corpus_url: str, datasets_url: str, family: Family) -> tuple[str, str]:
    """The two addresses; the generated world's in place of an empty one, of its texts the one about its graph's
    entities for a family that has them beside words."""
    if not corpus_url or not datasets_url:
        world = store.local(generate_world(store))
        corpus_url = corpus_url or str(world / ("chronicle" if family.knowledge else "books"))
        datasets_url = datasets_url or str(world / "datasets")
    return corpus_url, datasets_url


@dataclass(frozen=True)
class Chain:
    """The artifacts that fine-tunes and analyses hang on."""

    store: Store
    preset: Preset
    datasets_url: str
    tasks: list[Task]
    corpus: Artifact
    tokenizer: Artifact
    datasets: dict[str, Artifact]
    """Task -> its encoded rows."""
    shards: Artifact
    ngrams: Artifact | None
    checkpoint: Artifact
    left_out: Failures
    """Tasks whose data is broken."""
    start: Artifact | None = None
    """The model whose weights the checkpoint's training went on from."""
    mentions: Artifact | None = None
    """What put entities beside words in that training; None for most families."""
    nproc: int = 0
    sharded: bool = False
    """How further networks are pre-trained: see :class:`tasks.stages.pretrain.PretrainRequest`."""
    alone: bool = True
    """Whether networks are compared (:func:`flows.trainings.grid.grid_of`); False: the rows are the leaderboard's."""

    @property
    def stages(self) -> list[Artifact]:
        ngrams = [self.ngrams] if self.ngrams else []
        return [self.corpus, self.tokenizer, *self.datasets.values(), self.shards, *ngrams, self.checkpoint]

    def grid(self, arms: Sequence[Arm], seeds: int, tasks: Collection[str] = ()) -> Grid:
        """Its tasks in some arms.

        :param seeds: as a form has it.
        :param tasks: only these; empty: all.
        """
        datasets = {name: rows for name, rows in self.datasets.items() if not tasks or name in tasks}
        return grid_of(self.store, self.preset, self.datasets_url, self.tasks, datasets, arms, seeds, alone=self.alone)

    def pretrain(
        self,
        model: NetworkConfig,
        config: PretrainConfig | None = None,
        start: Artifact | None = None,
        distillation: Distillation | None = None,
        mentions: Artifact | None = None,
    ) -> Artifact:
        """Another network on the same shards, with the preset's settings or others.

        See :class:`tasks.stages.pretrain.PretrainRequest` for the parameters.
        """
        request = PretrainRequest(
            self.store,
            self.shards,
            model,
            config or self.preset.pretrain,
            self.ngrams,
            nproc=self.nproc,
            sharded=self.sharded,
            start=start,
            distillation=distillation,
            mentions=mentions,
            preset=self.preset.name,
        )
        return trained_model(request)

    def pretrain_lstm(self, operations: float | None = None) -> Artifact:
        """The LSTM of Table 5 on the same text with the same settings, but for those that only other objectives read.

        :param operations: see :func:`run_chain`.
        """
        others = set(OF_OBJECTIVES) - set(FAMILIES["lstm"].objective_settings)
        without: dict[str, Any] = dict.fromkeys(others)
        config = dataclasses.replace(self.preset.pretrain, **without)
        if operations:
            config = _for_operations(self.store, self.shards, self.preset.lstm, config, operations)
        return self.pretrain(self.preset.lstm, config)


def run_chain(
    parameters: OnBooks, tasks: Sequence[str] = (), whole: bool = True, operations: float | None = None
) -> Chain:
    """Clean -> BPE -> shards -> pre-train, and the tasks' rows encoded; what the store holds is not made again.

    The baselines come first: fitting them reads every row, so a broken one costs seconds, not days of training.

    :param tasks: only these; empty: the form's, or every one whose data is there.
    :param whole: whether the first task with broken data ends it; otherwise such a task is left out, as the log says.
    :param operations: pre-train for so many floating-point operations; None: for as many updates as the settings say.
    :raises InputError: missing or broken input, before anything is computed from it.
    """
    signals.listen()
    request = parameters.request
    store, preset, family = request.store, request.preset, request.family
    corpus_url, datasets_url = books_and_datasets(store, request.corpus, request.datasets, family)
    raw = RawCorpus.at(corpus_url, preset.corpus.text_field)  # all inputs answer before anything is computed
    tokenizer = pinned(store, request.tokenizer, preset)
    start = request.start
    if start and not tokenizer:
        tokenizer = own_tokenizer(store, start)
    chosen, left_out = _readable(store, datasets_url, tasks or request.tasks, family, whole)

    by_partition = request.by_partition or family.knowledge  # where the text is another one than the model's
    books = books_to_shards(store, raw, preset, request.dask, tokenizer, by_partition)
    books = dataclasses.replace(books, count_ngrams=request.ngrams)
    datasets = {task.name: encode_dataset(store, datasets_url, task.spec, books.tokenizer) for task in chosen}
    shards = books.shards
    if operations:
        config = _for_operations(store, shards, preset.model, preset.pretrain, operations)
        preset = dataclasses.replace(preset, pretrain=config)
    training = pretraining(dataclasses.replace(request, preset=preset), shards)
    checkpoint = trained_model(dataclasses.replace(training, ngrams=books.ngrams))
    return Chain(
        store,
        preset,
        datasets_url,
        chosen,
        books.corpus,
        books.tokenizer,
        datasets,
        shards,
        books.ngrams,
        checkpoint,
        left_out,
        start=start,
        mentions=training.mentions,
        nproc=request.nproc,
        sharded=request.sharded,
        alone=request.compares,
    )


def chain_of(request: BooksRequest, checkpoint: Artifact, tasks: Sequence[str] = ()) -> Chain:
    """The chain that ended in a model of the store: the text that it was made from, and the tasks' rows in its pieces.

    :param request: has the settings of the model's family, and the datasets.
    :param tasks: only these; empty: the request's, or every one whose data is there.
    :raises InputError: missing or broken data, before anything is computed from it, or the store lost the text.
    """
    signals.listen()
    store, preset, datasets_url = request.store, request.preset, request.datasets
    chosen, left_out = _readable(store, datasets_url, tasks or request.tasks, request.family)
    tokenizer = own_tokenizer(store, checkpoint)
    datasets = {task.name: encode_dataset(store, datasets_url, task.spec, tokenizer) for task in chosen}
    corpus, shards = (ancestor(store, checkpoint, stage) for stage in ("corpus", "shards"))
    ngrams = ngrams_beside(store, shards, request.dask, request.ngrams)
    return Chain(
        store,
        preset,
        datasets_url,
        chosen,
        corpus,
        tokenizer,
        datasets,
        shards,
        ngrams,
        checkpoint,
        left_out,
        nproc=request.nproc,
        sharded=request.sharded,
    )


def _readable(
    store: Store, datasets_url: str, names: Sequence[str], family: Family, whole: bool = True
) -> tuple[list[Task], Failures]:
    """The tasks whose rows can be read, as fitting the baselines does, and why the others cannot.

    :param names: of tasks; empty: every one whose data is there.
    :param whole: stop at the first one that cannot.
    :raises InputError: a task without data, or of a form that the family cannot be fine-tuned on.
    """
    chosen = chosen_tasks(names, datasets_url)
    for task in chosen:
        family.require_form(task.name, form_of(task.spec).places)
    if whole:
        for task in chosen:
            score_baselines(store, datasets_url, task.spec)
        return chosen, {}
    good, left_out = each_apart(chosen, lambda task: score_baselines(store, datasets_url, task.spec))
    return [task for task in chosen if task.name in good], left_out


def _for_operations(
    store: Store, shards: Artifact, model: NetworkConfig, config: PretrainConfig, operations: float
) -> PretrainConfig:
    """The settings with as many updates as take so many operations; ``model``'s vocabulary is that of the shards."""
    model = dataclasses.replace(model, n_vocab=ShardsCounts.of(store, shards).n_vocab)
    return dataclasses.replace(config, steps=updates_of(operations, model, config))


def trained_model(request: PretrainRequest) -> Artifact:
    """The model of a pre-training, here or by a run of its own, which the forms then list."""
    checkpoint = run_one(request)
    list_checkpoints(request.store)
    return checkpoint


# --- what a request names, as parts of a training ---


def pinned(store: Store, named: Given | None, preset: Preset) -> Artifact | None:
    """The tokenizer that a request names, of a folder a copy in the store; None: it names none.

    :raises InputError: it is of another kind than the preset's.
    """
    if isinstance(named, Artifact):
        check_kind(store, named, preset.tokenizer)
        return named
    return pin_tokenizer(store, named, preset.tokenizer) if named else None


def named_by_size(store: Store, model: Artifact) -> str:
    """What tables call a model beside others: its weights, without the commas that MLflow refuses, and its digest."""
    return f"{amount(n_parameters(store, model)).replace(',', '')} {model.short[:6]}"


def pretraining(request: NetworkRequest, shards: Artifact) -> PretrainRequest:
    """The pre-training of the network of a request, on shards, from a model's weights or random ones.

    :raises InputError: its parts do not fit together.
    """
    store, preset, teacher, mentions = request.store, request.preset, request.teacher, None
    if request.family.knowledge:
        mentions = part("mentioned")(store, request.graph, request.links, shards)
    return PretrainRequest(
        store,
        shards,
        preset.model,
        preset.pretrain,
        nproc=request.nproc,
        sharded=request.sharded,
        start=request.start,
        distillation=Distillation(teacher, preset.distil) if teacher else None,
        mentions=mentions,
        preset=preset.name,
    )
