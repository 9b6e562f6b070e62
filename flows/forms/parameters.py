"""The forms: one flat pydantic model a flow. The Prefect UI draws them, the options of the command line fill them.

Flat and without unions on purpose: nested optionals and unions come out wrong in the browser, a StrEnum of two or
more values comes out as a drop-down. The number of each field orders the fields.

Checks are imported where a form is checked: who asks for `--help` waits for none of what they need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from flows.forms import fields
from flows.forms.fields import Option, field
from flows.forms.form import FamilyName, Form, PresetName, Rate, StudentName, TaskChoice
from flows.forms.readers import budgets, task_name
from flows.forms.settings import STUDENT, chosen_preset
from gptcore.families import DEFAULT, FAMILIES, students
from gptcore.nlu.registry import BEYOND, REGISTRY

if TYPE_CHECKING:
    from tasks.store.store import Store


class OnBooks(Form):
    """From books to a pre-trained model and encoded tasks, which are then fine-tuned."""

    preset: PresetName = fields.preset("demo")
    store: str = fields.store(1)
    corpus: str = fields.corpus(2)
    datasets: str = fields.datasets(3)
    tasks: list[TaskChoice] = fields.tasks(4)
    seeds: int = fields.seeds(5, "Fine-tunes of each task, with seeds 0, 1, 2, ...")
    overrides: dict[str, Any] = fields.overrides(
        6, '{"finetune": {"lr": 1e-4}}', "Settings that differ from the preset"
    )
    nproc: int = fields.nproc(7)
    jobs: int = fields.jobs(8)
    dask: str = fields.dask(9)
    tokenizer: str = fields.tokenizer(10)
    start: str = fields.start(11)
    shard: bool = fields.shard(12)
    family: FamilyName = fields.family(13)
    teacher: str = fields.teacher(16)
    graph: str = fields.graph(17)
    links: str = fields.links(18)

    def _look_up(self, store: Store) -> None:
        from flows.forms import checks, students

        preset = chosen_preset(self)
        checks.check_sharded(self, preset)
        checks.check_corpus(self.corpus)
        tokenizer = checks.known_tokenizer(store, self.tokenizer)
        checks.check_weights(store, self.start, preset.model, tokenizer)
        students.check_teacher(store, self.teacher, preset, self.start)
        checks.check_graph(store, self.graph, preset.family, self.links)
        checks.check_dask(self.dask)
        checks.check_tasks(self.tasks, self.datasets)


class PipelineParameters(OnBooks):
    """The whole chain: books to leaderboard."""

    from_task: str = fields.from_task(14, "RTE, STS-B and MRPC")
    rates: list[Rate] = fields.rates(15)

    def _look_up(self, store: Store) -> None:
        from flows.forms import checks

        super()._look_up(store)
        checks.check_from_task(self, chosen_preset(self), self.datasets)
        checks.check_rates(self.rates)


class AnalysisParameters(OnBooks):
    """One of the paper's analyses, from the artifacts of a pipeline; what is missing is made."""

    max_rows: int = field(
        14, 1000, "Zero-shot rows of each task (of BLiMP pairs of each field), drawn by a seed. 0: all.", ge=0
    )
    out: str = fields.out(15)
    operations: list[Annotated[float, Field(gt=0, lt=1e30, allow_inf_nan=False)]] = field(
        16,
        [],
        "Floating-point operations of each family's pre-trainings (objectives).",
        empty="an eighth, a quarter and a half of what the preset's GPT-1 takes",
        option=Option(metavar="N,N", read=budgets),
    )

    def _look_up(self, store: Store) -> None:
        from flows.forms import checks

        super()._look_up(store)
        if self.tasks:  # else each analysis has its own
            checks.check_sources(chosen_preset(self), self.tasks, self.datasets)


class StudentsParameters(AnalysisParameters):
    """A teacher and its students, from the artifacts of a pipeline; what is missing is made."""

    def _look_up(self, store: Store) -> None:
        from flows.forms import students

        students.check_students(store, self)
        self._look_up_text()

    def _look_up_text(self) -> None:
        """Those of the checks on books that a teacher of the store leaves."""
        from flows.forms import checks

        checks.check_corpus(self.corpus)
        checks.check_dask(self.dask)
        checks.check_tasks(self.tasks, self.datasets)


class DistillationParameters(StudentsParameters):
    """Students whose loss has one part less, from the artifacts of a pipeline; what is missing is made."""

    def _look_up(self, store: Store) -> None:
        from flows.forms import students

        students.check_distillation(store, self)
        self._look_up_text()


class PretrainParameters(Form):
    """Pre-training alone, on shards that are there."""

    preset: PresetName = fields.preset("paper")
    store: str = fields.store(1)
    shards: str = field(
        2, "latest", "Shards: digest (or its beginning), URL, or latest.", option=Option(metavar="URL|DIGEST")
    )
    steps: int = field(3, 0, "Updates.", empty="as the preset says", ge=0)
    overrides: dict[str, Any] = fields.overrides(4, '{"pretrain": {"lr": 1e-3}}')
    nproc: int = fields.nproc(5)
    start: str = fields.start(6)
    shard: bool = fields.shard(7)
    family: FamilyName = fields.family(8)
    teacher: str = fields.teacher(9)
    graph: str = fields.graph(10)
    links: str = fields.links(11)

    def _look_up(self, store: Store) -> None:
        from flows.forms import checks, students
        from tasks.store.counts import ShardsCounts

        preset = chosen_preset(self)
        checks.check_sharded(self, preset)
        checks.check_graph(store, self.graph, preset.family, self.links)
        shards = ShardsCounts.of(store, store.resolve(self.shards, "shards"))
        checks.check_weights(store, self.start, preset.model, shards.tokenizer_digest)
        students.check_teacher(store, self.teacher, preset, self.start)


class DistilParameters(Form):
    """A student of a model that is there, on the text that the model was made from, and both on the tasks."""

    preset: PresetName = fields.preset(
        "demo", "Schedules of pre-training and fine-tuning: demo, small, long, best or paper."
    )
    teacher: str = field(
        1,
        "latest",
        "Pre-trained model to learn from: one of the store's, or type a digest (or its beginning), a URL, latest, or a "
        "folder of Hugging Face's.",
        title="Teacher",
        option=fields.MODEL,
    )
    family: StudentName = field(
        2,
        STUDENT,
        "What it learns: distilbert (the teacher's predictions) or tinybert (its layers). A decoder's student is of "
        "its own family, and learns predictions.",
        title="Family",
        option=Option(metavar="NAME", help=f"what it learns: {', '.join(students())}"),
    )
    layers: int = field(3, 0, "Layers of the student.", empty="half of the teacher's", ge=0)
    store: str = fields.store(4)
    corpus: str = fields.corpus(5, "Books, where the teacher is a folder.", "those that the teacher was made from")
    datasets: str = fields.datasets(6)
    tasks: list[TaskChoice] = fields.tasks(7)
    seeds: int = fields.seeds(8)
    overrides: dict[str, Any] = fields.overrides(9, '{"distil": {"word_weight": 0.0}}')
    nproc: int = fields.nproc(10)
    jobs: int = fields.jobs(11)
    dask: str = fields.dask(12)

    def _look_up(self, store: Store) -> None:
        from flows.forms import checks, students

        checks.check_dask(self.dask)
        students.check_distil(store, self)


class FinetuneParameters(Form):
    """One task, from one checkpoint. The defaults are the paper's (section 4.1)."""

    task: TaskChoice = field(
        0,
        text="One of the twelve datasets, one beyond them (squad, swag ...), or the file of a task of your own.",
        title="Task",
        option=Option(
            metavar="TASK",
            help=f"{' '.join(REGISTRY | BEYOND)}, or the file of your own: ./my-task.toml",
            read=task_name,
            positional=True,
        ),
    )
    checkpoint: str = fields.checkpoint(1)
    seeds: int = fields.seeds(2, "Runs with seeds 0, 1, ...; the median counts.", "5 for small sets, else 1")
    lr: float = fields.published(3, "lr", "Maximum learning rate", gt=0, allow_inf_nan=False)
    batch_size: int = fields.published(4, "batch_size", "Examples an update", ge=1)
    epochs: int = fields.published(5, "epochs", "Passes over the training rows", ge=1)
    lm_coef: float = fields.published(
        6, "lm_coef", "Weight of the auxiliary LM objective; encoders have none", ge=0, allow_inf_nan=False
    )
    clf_pdrop: float = fields.published(7, "clf_pdrop", "Dropout on the classifier", ge=0, lt=1)
    pretrained: bool = field(
        8,
        True,
        "Off: the same network from random weights.",
        option=Option("no-pretraining", help="random weights instead of the checkpoint's"),
    )
    layers: int = field(9, -1, "Blocks transferred; 0: embeddings only", empty="all", ge=-1)
    max_train_rows: int = field(10, 0, "Train on so many rows, drawn by the seed.", empty="all", ge=0)
    store: str = fields.store(11)
    datasets: str = fields.datasets(12, "Folder of the datasets.")
    from_task: str = fields.from_task(13, "Start")
    rates: list[Rate] = fields.rates(14)
    layer_decay: float = field(
        15,
        0.0,
        "Factor of the learning rate from a layer to the one below it. 1: one rate for all.",
        empty="as the model's family has it (ELECTRA: 0.8, others: 1)",
        ge=0,
        le=1,
    )

    def _look_up(self, store: Store) -> None:
        from flows.forms import checks

        checks.check_rates(self.rates)
        checks.check_start_task(self)
        if self.checkpoint:
            family = checks.check_network(store, self.checkpoint, self.layers)
            if self.pretrained:
                decay = None if self.layer_decay in (0, 1) else self.layer_decay
                checks.check_taught(family, {"from-task": self.from_task or None, "layer-decay": decay})
        wanted = [self.task, *([self.from_task] if self.from_task else [])]
        checks.chosen_tasks(wanted, checks.datasets_folder(store, self.datasets, wanted))


class FinetuneAllParameters(Form):
    """Every task whose data is there, from one checkpoint."""

    preset: PresetName = fields.preset("demo", "Fine-tuning settings: demo, small, long, best or paper.")
    checkpoint: str = fields.checkpoint(1)
    store: str = fields.store(2)
    datasets: str = fields.datasets(3, "Folder of the datasets.")
    tasks: list[TaskChoice] = fields.tasks(4)
    seeds: int = fields.seeds(5)
    overrides: dict[str, Any] = fields.overrides(6, '{"finetune": {"lr": 1e-4}}')
    jobs: int = fields.jobs(7)
    from_task: str = fields.from_task(8, "RTE, STS-B and MRPC")
    rates: list[Rate] = fields.rates(9)

    def _look_up(self, store: Store) -> None:
        from flows.forms import checks

        checks.check_rates(self.rates)
        family = checks.check_network(store, self.checkpoint) if self.checkpoint else FAMILIES[DEFAULT]
        checks.check_taught(family, {"from-task": self.from_task or None})
        preset = chosen_preset(self, "" if family.ablation else family.name)
        datasets_url = checks.datasets_folder(store, self.datasets, self.tasks)
        checks.chosen_tasks(self.tasks, datasets_url)
        checks.check_from_task(self, preset, datasets_url)


class SweepParameters(Form):
    """A search for better settings: trials drawn from a space, of which the best go on to longer trainings."""

    sweep: dict[str, Any] = field(
        0,
        text='What the file of a sweep holds, as JSON: {"preset": "small", "objective": "validation/loss", '
        '"trials": 9, "space": {"pretrain": {"lr": {"low": 5e-4, "high": 5e-3, "scale": "log"}}}}.',
        option=Option("file", "FILE", "TOML: what to try, and what decides (see below)", positional=True),
    )
    store: str = fields.store(1)
    corpus: str = fields.corpus(2)
    datasets: str = fields.datasets(3)
    checkpoint: str = field(
        4,
        "",
        "Pre-trained model that every trial fine-tunes: one of the store's, or as elsewhere.",
        empty="each trial's own",
        option=fields.MODEL,
    )
    nproc: int = field(5, 0, "Training processes of each pre-training, one a GPU.", empty="one", ge=0)
    jobs: int = field(
        6, 0, "Trainings at the same time.", empty="pre-trainings one a GPU, fine-tunes one a core or GPU", ge=0
    )
    dask: str = fields.dask(7)

    def _look_up(self, store: Store) -> None:
        from flows.forms import checks

        checks.check_sweep(store, self)
