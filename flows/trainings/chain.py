"""From raw books to a pre-trained model and encoded tasks: the part that the pipeline and every analysis begin with."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flows.forms.checks import chosen_tasks, datasets_folder
from flows.forms.choices import list_checkpoints
from flows.forms.parameters import OnBooks
from flows.forms.references import in_store, pretrained_model
from flows.forms.settings import chosen_preset
from flows.forms.teachers import check_teacher
from flows.knowledge.graph import mentioned
from flows.servers import signals
from flows.trainings.dispatch import pretrained
from flows.trainings.failures import Failures, leave_out, raise_if_all
from gptcore.base.errors import InputError
from gptcore.config import NetworkConfig, Preset, PretrainConfig
from gptcore.config.operations import updates_of
from gptcore.config.training import OF_OBJECTIVES
from gptcore.families import FAMILIES, Family
from gptcore.nlu.own_task import Task
from gptcore.text.sources import RawCorpus
from tasks.stages.corpus import clean_corpus
from tasks.stages.dataset import encode_dataset, score_baselines
from tasks.stages.ngrams import measure_ngrams
from tasks.stages.partitions import clean_partitions, encode_partitions, is_one_split
from tasks.stages.shards import encode_shards
from tasks.stages.storyworld import generate_world
from tasks.stages.tokenizer import import_model, is_model_folder, pin_tokenizer, train_tokenizer
from tasks.store.artifact import Artifact
from tasks.store.lineage import ancestor, own_tokenizer
from tasks.store.references import check_start, teacher_model
from tasks.store.store import Store


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
    ngrams: Artifact
    checkpoint: Artifact
    left_out: Failures
    """Tasks whose data is broken."""
    start: Artifact | None
    """The model whose weights the checkpoint's training went on from."""
    known: Mapping[str, Artifact]
    """The arguments of pre-training that put entities beside words; none of most families."""

    @property
    def stages(self) -> list[Artifact]:
        """Every artifact, in the order in which they were made."""
        return [self.corpus, self.tokenizer, *self.datasets.values(), self.shards, self.ngrams, self.checkpoint]

    def pretrain(
        self, parameters: OnBooks, model: NetworkConfig, config: PretrainConfig | None = None, **arguments: Any
    ) -> Artifact:
        """Another network on the same shards, with the preset's settings or others.

        :param arguments: further ones of :func:`tasks.stages.pretrain.pretrain_model`.
        """
        checkpoint = pretrained(
            self.store,
            shards=self.shards,
            model=model,
            config=config or self.preset.pretrain,
            ngrams=self.ngrams,
            **_processes(parameters),
            **arguments,
        )
        list_checkpoints(self.store)
        return checkpoint

    def pretrain_lstm(self, parameters: OnBooks, operations: float | None = None) -> Artifact:
        """The LSTM of Table 5 on the same text with the same settings, but for those that only other objectives read.

        :param operations: see :func:`run_chain`.
        """
        others = set(OF_OBJECTIVES) - set(FAMILIES["lstm"].objective_settings)
        without: dict[str, Any] = dict.fromkeys(others)
        config = dataclasses.replace(self.preset.pretrain, **without)
        if operations:
            config = _for_operations(self.store, self.shards, self.preset.lstm, config, operations)
        return self.pretrain(parameters, self.preset.lstm, config)


def run_chain(
    parameters: OnBooks, tasks: Sequence[str] = (), whole: bool = True, operations: float | None = None
) -> Chain:
    """Clean -> BPE -> shards -> pre-train, and the tasks' rows encoded; what the store holds is not made again.

    With a tokenizer that is given, books are cleaned and encoded one by one, so that a new one is all that is read;
    one or two, of which nothing would be held out, are cleaned as a whole.
    The baselines come first: fitting them reads every row, so a broken one costs seconds, not days of training.

    :param tasks: only these; empty: the form's, or every one whose data is there.
    :param whole: stop at the first task whose data is broken; else such a task is left out, and said.
    :param operations: pre-train for so many floating-point operations; None: for as many updates as the settings say.
    :raises InputError: missing or broken input, before anything is computed from it.
    """
    signals.listen()
    preset = chosen_preset(parameters)
    store = Store(parameters.store)
    family = FAMILIES[preset.family]
    corpus_url, datasets_url = books_and_datasets(store, parameters.corpus, parameters.datasets, family)
    raw = RawCorpus.at(corpus_url)  # all inputs answer before anything is computed
    pinned = pin_tokenizer(store, parameters.tokenizer, preset.tokenizer) if parameters.tokenizer else None
    start = started_from(store, parameters.start) if parameters.start else None
    if start and not pinned and family.knowledge:  # its text is another one than the model's
        pinned = own_tokenizer(store, start)
    taught = taught_by(store, parameters.teacher, preset)
    if start:
        known = store.manifest(pinned)["counts"]["tokenizer_digest"] if pinned else ""
        check_start(store, start, preset.model, known)
    chosen, left_out = _readable(store, datasets_url, tasks or parameters.tasks, family, whole)

    dask = parameters.dask
    corpus, encode = None, encode_partitions
    if pinned:
        corpus = clean_partitions(store, raw, preset.corpus, dask)
    if corpus is None or is_one_split(store, corpus):
        corpus, encode = clean_corpus(store, raw, preset.corpus, dask), encode_shards
    tokenizer = pinned or train_tokenizer(store, corpus, preset.tokenizer, dask)
    datasets = {task.name: encode_dataset(store, datasets_url, task.spec, tokenizer) for task in chosen}
    shards = encode(store, corpus, tokenizer, preset.shards, dask)
    if operations:
        config = _for_operations(store, shards, preset.model, preset.pretrain, operations)
        preset = dataclasses.replace(preset, pretrain=config)
    known = mentioned(store, parameters.graph, parameters.links, family, shards)
    how = {**taught, **known, **_processes(parameters)}
    ngrams, checkpoint = pretrain_on(store, shards, preset, dask, start=start, **how)
    made = (corpus, tokenizer, datasets, shards, ngrams, checkpoint)
    return Chain(store, preset, datasets_url, chosen, *made, left_out, start, known)


def chain_of(parameters: OnBooks, checkpoint: Artifact, tasks: Sequence[str] = ()) -> Chain:
    """The chain that ended in a model of the store: the text that it was made from, and the tasks' rows in its pieces.

    :param tasks: only these; empty: the form's, or every one whose data is there.
    :raises InputError: missing or broken data, before anything is computed from it, or the store lost the text.
    """
    signals.listen()
    preset = chosen_preset(parameters)
    store = Store(parameters.store)
    datasets_url = datasets_folder(store, parameters.datasets, parameters.tasks)
    chosen, left_out = _readable(store, datasets_url, tasks or parameters.tasks, FAMILIES[preset.family])
    tokenizer = own_tokenizer(store, checkpoint)
    datasets = {task.name: encode_dataset(store, datasets_url, task.spec, tokenizer) for task in chosen}
    corpus, shards = (ancestor(store, checkpoint, stage) for stage in ("corpus", "shards"))
    ngrams = measure_ngrams(store, shards, parameters.dask)
    made = (corpus, tokenizer, datasets, shards, ngrams, checkpoint)
    return Chain(store, preset, datasets_url, chosen, *made, left_out, None, {})


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
        family.require_form(task.name, task.spec.form)
    left_out: Failures = {}
    for task in chosen:
        try:
            score_baselines(store, datasets_url, task.spec)
        except InputError as error:
            if whole:
                raise
            leave_out(left_out, task.name, error)
    raise_if_all(left_out, [task.name for task in chosen])
    return [task for task in chosen if task.name not in left_out], left_out


def _for_operations(
    store: Store, shards: Artifact, model: NetworkConfig, config: PretrainConfig, operations: float
) -> PretrainConfig:
    """The settings with as many updates as take so many operations; ``model``'s vocabulary is that of the shards."""
    model = dataclasses.replace(model, n_vocab=store.manifest(shards)["counts"]["n_vocab"])
    return dataclasses.replace(config, steps=updates_of(operations, model, config))


def pretrain_on(
    store: Store, shards: Artifact, preset: Preset, dask: str = "", **arguments: Any
) -> tuple[Artifact, Artifact]:
    """N-grams of the shards and, beside them, a language model pre-trained on them, which the forms then list.

    :param arguments: further ones of :func:`tasks.stages.pretrain.pretrain_model`.
    """
    ngrams = measure_ngrams(store, shards, dask)
    checkpoint = pretrained(
        store,
        shards=shards,
        model=preset.model,
        config=preset.pretrain,
        ngrams=ngrams,
        **arguments,
    )
    list_checkpoints(store)
    return ngrams, checkpoint


def started_from(store: Store, ref: str) -> Artifact:
    """The model whose weights a pre-training goes on from; of a folder of Hugging Face's a copy in the store."""
    return import_model(store, ref) if is_model_folder(ref) else pretrained_model(store, ref)


def taught_by(store: Store, ref: str, preset: Preset) -> dict[str, Any]:
    """The arguments of pre-training that make the network a student; none where ``ref`` is empty.

    :raises InputError: a teacher that is not there or does not fit, or a family that needs one.
    """
    check_teacher(store, ref, preset)
    if not ref:
        return {}
    return {"teacher": teacher_model(store, in_store(store, ref, ("pretrain",))), "distil": preset.distil}


def books_and_datasets(store: Store, corpus_url: str, datasets_url: str, family: Family) -> tuple[str, str]:
    """The two addresses; the generated world's in place of an empty one, of its texts the one about its graph's
    entities for a family that has them beside words."""
    if not corpus_url or not datasets_url:
        world = store.local(generate_world(store))
        corpus_url = corpus_url or str(world / ("chronicle" if family.knowledge else "books"))
        datasets_url = datasets_url or str(world / "datasets")
    return corpus_url, datasets_url


def _processes(parameters: OnBooks) -> dict[str, Any]:
    """What the processes of a pre-training are."""
    return {"nproc": parameters.nproc, "sharded": parameters.shard}
