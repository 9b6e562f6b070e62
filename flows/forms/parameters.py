"""The forms: one flat pydantic model a flow. The Prefect UI draws them, the options of the command line fill them.

Flat and without unions on purpose: nested optionals and unions come out wrong in the browser, a StrEnum of two or
more values comes out as a drop-down. The number of each field orders the fields.

Checks are imported where a form is checked: who asks for `--help` waits for none of what they need.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field

from flows.forms.fields import FamilyName, Form, InheritedPresetName, PresetName, Rate, TaskChoice, field
from flows.forms.settings import chosen_preset, preset_on, require_one_family, with_options
from gptcore.base.errors import require
from gptcore.config import Preset, network_config
from gptcore.families import Family, recorded_family

if TYPE_CHECKING:
    from flows.forms.requests import BooksRequest, FineTunesRequest, Given, ShardsRequest
    from tasks.store.artifact import Artifact
    from tasks.store.store import Store

_OPTIONS = ("lr", "batch_size", "epochs", "lm_coef", "clf_pdrop", "max_train_rows", "layer_decay")
"""The settings of fine-tuning that are options of the form of one task; its defaults leave them to the preset."""


class OnBooks(Form):
    """Books become a pre-trained model and tasks are encoded, which are then fine-tuned."""

    preset: PresetName = field("preset", 0)
    store: str = field("store", 1)
    corpus: str = field("corpus", 2)
    datasets: str = field("twelve-datasets", 3)
    tasks: list[TaskChoice] = field("tasks", 4)
    seeds: int = field("books-seeds", 5)
    overrides: dict[str, Any] = field("books-overrides", 6)
    nproc: int = field("nproc", 7)
    jobs: int = field("jobs", 8)
    dask: str = field("dask", 9)
    tokenizer: str = field("tokenizer", 10)
    start: str = field("start", 11)
    shard: bool = field("shard", 12)
    family: FamilyName = field("family", 13)
    teacher: str = field("teacher", 16)
    graph: str = field("graph", 17)
    links: str = field("links", 18)
    ngrams: bool = field("ngrams", 19)

    compares: ClassVar[bool] = False
    """Whether networks are compared, without n-grams beside them that nobody asks for."""

    @property
    def chosen_preset(self) -> Preset:
        """The preset, of the family that is asked for, with the overrides applied.

        :raises InputError: an unknown setting, or a value that does not fit.
        """
        require_one_family(self.overrides, self.family)
        return chosen_preset(self.preset, self.overrides, self.family, getattr(self, "from_task", ""))

    def resolve(self, store: Store) -> BooksRequest:
        from flows.forms import checks

        preset = self.chosen_preset
        checks.check_sharded(self.shard, preset)
        checks.check_corpus(self.corpus)
        # with the weights of a model latest means the model's own
        named = "" if self.start and self.tokenizer == "latest" else self.tokenizer
        tokenizer = checks.given_tokenizer(store, named)
        start = checks.given_start(store, self.start, preset.model, checks.digest_of(store, tokenizer))
        teacher = checks.given_teacher(store, self.teacher, preset, self.start)
        checks.check_graph(store, self.graph, preset.family, self.links)
        checks.check_dask(self.dask)
        checks.check_tasks(self.tasks, self.datasets)
        return self.books(store, preset, tokenizer, start, teacher)

    def books(
        self,
        store: Store,
        preset: Preset,
        tokenizer: Given | None,
        start: Artifact | None = None,
        teacher: Artifact | None = None,
    ) -> BooksRequest:
        """The form's request, where its names have been looked up."""
        from flows.forms.requests import BooksRequest

        return BooksRequest(
            store,
            preset,
            start,
            teacher,
            self.graph,
            self.links,
            self.nproc,
            self.shard,
            corpus=self.corpus,
            datasets=self.datasets,
            tasks=tuple(self.tasks),
            tokenizer=tokenizer,
            by_partition=bool(self.tokenizer),
            dask=self.dask,
            ngrams=self.ngrams,
            compares=self.compares,
        )


class PipelineParameters(OnBooks):
    """The whole chain: books to leaderboard."""

    from_task: str = field("from_task", 14)
    rates: list[Rate] = field("rates", 15)

    def resolve(self, store: Store) -> BooksRequest:
        from flows.forms import checks

        request = super().resolve(store)
        checks.check_sources(request.preset, self.tasks, self.datasets, self.from_task)
        checks.check_rates(self.rates)
        return request


class AnalysisParameters(OnBooks):
    """One of the paper's analyses, from the artifacts of a pipeline; what is missing is made."""

    preset: PresetName = field("analysis-preset", 0)
    max_rows: int = field("analysis-max_rows", 14)
    out: str = field("out", 15)
    operations: list[Annotated[float, Field(gt=0, lt=1e30, allow_inf_nan=False)]] = field("analysis-operations", 16)

    compares: ClassVar[bool] = True

    def resolve(self, store: Store) -> BooksRequest:
        from flows.forms import checks

        request = super().resolve(store)
        if self.tasks:  # else each analysis has its own
            checks.check_sources(request.preset, self.tasks, self.datasets)
        return request


class PretrainParameters(Form):
    """Pre-training alone, on shards that are there."""

    preset: PresetName = field("preset", 0)
    store: str = field("store", 1)
    shards: str = field("pretrain-shards", 2)
    steps: int = field("pretrain-steps", 3)
    overrides: dict[str, Any] = field("pretrain-overrides", 4)
    nproc: int = field("nproc", 5)
    start: str = field("start", 6)
    shard: bool = field("shard", 7)
    family: FamilyName = field("family", 8)
    teacher: str = field("teacher", 9)
    graph: str = field("graph", 10)
    links: str = field("links", 11)

    def headline(self) -> list[str]:
        config = self.chosen_preset.pretrain
        return [*super().headline(), f"{config.steps:,} updates" if config.steps else f"{config.epochs:g} epochs"]

    @property
    def chosen_preset(self) -> Preset:
        """The preset, of the family that is asked for, with the overrides and the number of updates.

        :raises InputError: an unknown setting, or a value that does not fit.
        """
        require_one_family(self.overrides, self.family)
        preset = chosen_preset(self.preset, self.overrides, self.family)
        steps = self.steps or preset.pretrain.steps
        return dataclasses.replace(preset, pretrain=dataclasses.replace(preset.pretrain, steps=steps))

    def resolve(self, store: Store) -> ShardsRequest:
        from flows.forms import checks
        from flows.forms.requests import ShardsRequest
        from tasks.store.counts import ShardsCounts

        preset = self.chosen_preset
        checks.check_sharded(self.shard, preset)
        checks.check_graph(store, self.graph, preset.family, self.links)
        shards = store.resolve(self.shards, "shards")
        digest = ShardsCounts.of(store, shards).tokenizer_digest
        start = checks.given_start(store, self.start, preset.model, digest)
        teacher = checks.given_teacher(store, self.teacher, preset, self.start)
        return ShardsRequest(
            store, preset, start, teacher, self.graph, self.links, self.nproc, self.shard, shards=shards
        )


class FinetuneParameters(Form):
    """One task, from one checkpoint, with the settings that suit the checkpoint unless a preset is asked for."""

    task: TaskChoice = field("finetune-task", 0)
    checkpoint: str = field("checkpoint", 1)
    preset: InheritedPresetName = field("inherited-preset", 2)
    seeds: int = field("finetune-seeds", 3)
    lr: float = field("finetune-lr", 4)
    batch_size: int = field("finetune-batch_size", 5)
    epochs: int = field("finetune-epochs", 6)
    lm_coef: float = field("finetune-lm_coef", 7)
    clf_pdrop: float = field("finetune-clf_pdrop", 8)
    pretrained: bool = field("finetune-pretrained", 9)
    layers: int = field("finetune-layers", 10)
    max_train_rows: int = field("finetune-max_train_rows", 11)
    store: str = field("store", 12)
    datasets: str = field("datasets", 13)
    from_task: str = field("finetune-from_task", 14)
    rates: list[Rate] = field("rates", 15)
    layer_decay: float = field("finetune-layer_decay", 16)
    overrides: dict[str, Any] = field("finetune-all-overrides", 17)

    def resolve(self, store: Store) -> FineTunesRequest:
        from flows.forms import checks
        from flows.forms.references import pretrained_model
        from flows.forms.requests import FineTunesRequest

        checks.check_rates(self.rates)
        checks.check_start_task(self.from_task, self.task, self.pretrained, self.layers)
        checkpoint = pretrained_model(store, self.checkpoint)
        network = store.manifest(checkpoint)["config"]["model"]
        family, has = recorded_family(network), network_config(network).layers
        require(self.layers <= has, f"--layers: found {self.layers}, the checkpoint has {has} blocks")
        preset, origin = preset_on(store, checkpoint, self.preset, self.overrides)
        if self.pretrained:
            decay = None if self.layer_decay in (0, 1) else self.layer_decay
            checks.check_taught(family, {"from-task": self.from_task or None, "layer-decay": decay})
        datasets_url = checks.datasets_folder(store, self.datasets, [self.task])
        (task,) = checks.chosen_tasks([self.task], datasets_url)
        options = self.options(family)
        settings = {task.name: task.settings(preset)}
        source = with_options(settings, options, self.from_task)[task.name].from_task
        if source and self.pretrained:
            wanted = [self.task, source]
            checks.chosen_tasks(wanted, checks.datasets_folder(store, self.datasets, wanted))
        return FineTunesRequest(
            store, checkpoint, family, preset, origin, datasets_url, (task,), self.from_task, options
        )

    def options(self, family: Family) -> dict[str, Any]:
        """The settings of fine-tuning that the form's options say, of those that a family has."""
        fields = type(self).model_fields
        said = {name: value for name in _OPTIONS if (value := getattr(self, name)) != fields[name].default}
        if not family.auxiliary_loss:
            said.pop("lm_coef", None)
        if said.get("max_train_rows") == 0:
            said["max_train_rows"] = None
        return said | ({"n_transfer": self.layers, "from_task": None} if self.layers >= 0 else {})


class FinetuneAllParameters(Form):
    """Every task whose data is there, from one checkpoint."""

    preset: InheritedPresetName = field("inherited-preset", 0)
    checkpoint: str = field("checkpoint", 1)
    store: str = field("store", 2)
    datasets: str = field("datasets", 3)
    tasks: list[TaskChoice] = field("tasks", 4)
    seeds: int = field("seeds", 5)
    overrides: dict[str, Any] = field("finetune-all-overrides", 6)
    jobs: int = field("jobs", 7)
    from_task: str = field("from_task", 8)
    rates: list[Rate] = field("rates", 9)

    def resolve(self, store: Store) -> FineTunesRequest:
        from flows.forms import checks
        from flows.forms.references import pretrained_model
        from flows.forms.requests import FineTunesRequest

        checks.check_rates(self.rates)
        checkpoint = pretrained_model(store, self.checkpoint)
        family = recorded_family(store.manifest(checkpoint)["config"]["model"])
        checks.check_taught(family, {"from-task": self.from_task or None})
        preset, origin = preset_on(store, checkpoint, self.preset, self.overrides, self.from_task)
        datasets_url = checks.datasets_folder(store, self.datasets, self.tasks)
        tasks = tuple(checks.chosen_tasks(self.tasks, datasets_url))
        checks.check_sources(preset, self.tasks, datasets_url, self.from_task)
        return FineTunesRequest(store, checkpoint, family, preset, origin, datasets_url, tasks, self.from_task)


class UpkeepParameters(Form):
    """What keeps this home and its store small and sound: a backup, what is over deleted, every byte read."""

    store: str = field("store", 0)
    backup_to: str = field("upkeep-backup", 1)
    keep: int = field("upkeep-keep", 2)
    history: int = field("upkeep-history", 3)
    artifacts: bool = field("upkeep-artifacts", 4)
    verify: bool = field("upkeep-verify", 5)
