"""The forms: one flat pydantic model a flow. The Prefect UI draws them, the options of the command line fill them.

Flat and without unions on purpose: nested optionals and unions come out wrong in the browser, a StrEnum of two or
more values comes out as a drop-down. The number of each field orders the fields.

Checks are imported where a form is checked: who asks for `--help` waits for none of what they need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from flows.forms.fields import FamilyName, Form, InheritedPresetName, PresetName, Rate, TaskChoice, field
from flows.forms.settings import chosen_preset, preset_on, with_options
from gptcore.families import recorded_family

if TYPE_CHECKING:
    from tasks.store.store import Store


class OnBooks(Form):
    """From books to a pre-trained model and encoded tasks, which are then fine-tuned."""

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

    @property
    def named_tokenizer(self) -> str:
        """The tokenizer to use, where that is said; with the weights of a model latest means the model's own."""
        return "" if self.start and self.tokenizer == "latest" else self.tokenizer

    def _look_up(self, store: Store) -> None:
        from flows.forms import checks

        preset = chosen_preset(self)
        checks.check_sharded(self, preset)
        checks.check_corpus(self.corpus)
        tokenizer = checks.known_tokenizer(store, self.named_tokenizer)
        checks.check_weights(store, self.start, preset.model, tokenizer)
        checks.check_teacher(store, self.teacher, preset, self.start)
        checks.check_graph(store, self.graph, preset.family, self.links)
        checks.check_dask(self.dask)
        checks.check_tasks(self.tasks, self.datasets)


class PipelineParameters(OnBooks):
    """The whole chain: books to leaderboard."""

    from_task: str = field("from_task", 14)
    rates: list[Rate] = field("rates", 15)

    def _look_up(self, store: Store) -> None:
        from flows.forms import checks

        super()._look_up(store)
        checks.check_from_task(self, chosen_preset(self), self.datasets)
        checks.check_rates(self.rates)


class AnalysisParameters(OnBooks):
    """One of the paper's analyses, from the artifacts of a pipeline; what is missing is made."""

    preset: PresetName = field("analysis-preset", 0)
    max_rows: int = field("analysis-max_rows", 14)
    out: str = field("out", 15)
    operations: list[Annotated[float, Field(gt=0, lt=1e30, allow_inf_nan=False)]] = field("analysis-operations", 16)

    def _look_up(self, store: Store) -> None:
        from flows.forms import checks

        super()._look_up(store)
        if self.tasks:  # else each analysis has its own
            checks.check_sources(chosen_preset(self), self.tasks, self.datasets)


class PretrainParameters(Form):
    """Pre-training alone, on shards that are there."""

    preset: PresetName = field("preset", 0, "paper")
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
        config = chosen_preset(self).pretrain
        steps = self.steps or config.steps
        return [*super().headline(), f"{steps:,} updates" if steps else f"{config.epochs:g} epochs"]

    def _look_up(self, store: Store) -> None:
        from flows.forms import checks
        from tasks.store.counts import ShardsCounts

        preset = chosen_preset(self)
        checks.check_sharded(self, preset)
        checks.check_graph(store, self.graph, preset.family, self.links)
        shards = ShardsCounts.of(store, store.resolve(self.shards, "shards"))
        checks.check_weights(store, self.start, preset.model, shards.tokenizer_digest)
        checks.check_teacher(store, self.teacher, preset, self.start)


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

    def _look_up(self, store: Store) -> None:
        from flows.forms import checks
        from flows.forms.references import pretrained_model

        checks.check_rates(self.rates)
        checks.check_start_task(self)
        source = self.from_task or None
        if self.checkpoint:
            checkpoint = pretrained_model(store, self.checkpoint)
            checks.check_layers(store, checkpoint, self.layers)
            family, preset, _ = preset_on(self, store, checkpoint)
            if self.pretrained:
                decay = None if self.layer_decay in (0, 1) else self.layer_decay
                checks.check_taught(family, {"from-task": source, "layer-decay": decay})
            task, *_ = checks.chosen_tasks([self.task], checks.datasets_folder(store, self.datasets, [self.task]))
            config = with_options(self, family, {task.name: task.settings(preset.finetune_for(task.name))})[task.name]
            source = config.from_task if self.pretrained else None
        wanted = [self.task, *([source] if source else [])]
        checks.chosen_tasks(wanted, checks.datasets_folder(store, self.datasets, wanted))


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

    def _look_up(self, store: Store) -> None:
        from flows.forms import checks
        from flows.forms.references import pretrained_model

        checks.check_rates(self.rates)
        checkpoint = pretrained_model(store, self.checkpoint) if self.checkpoint else None
        if checkpoint:
            family = recorded_family(store.manifest(checkpoint)["config"]["model"])
            checks.check_taught(family, {"from-task": self.from_task or None})
        _, preset, _ = preset_on(self, store, checkpoint)
        datasets_url = checks.datasets_folder(store, self.datasets, self.tasks)
        checks.chosen_tasks(self.tasks, datasets_url)
        checks.check_from_task(self, preset, datasets_url)


class UpkeepParameters(Form):
    """What keeps this home and its store small and sound: a backup, what is over deleted, every byte read."""

    store: str = field("store", 0)
    backup_to: str = field("upkeep-backup", 1)
    keep: int = field("upkeep-keep", 2)
    history: int = field("upkeep-history", 3)
    artifacts: bool = field("upkeep-artifacts", 4)
    verify: bool = field("upkeep-verify", 5)
