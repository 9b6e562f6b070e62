"""The forms: one flat pydantic model a flow. The Prefect UI draws them, the command line fills the same ones.

Flat and without unions on purpose: nested optionals and unions come out wrong in the browser, a StrEnum of two or
more values comes out as a drop-down. `position` orders the fields.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from gptcore.abstracts.config import PRESETS as ABSTRACTS
from gptcore.abstracts.config import AbstractsPreset, SamplingConfig
from gptcore.abstracts.published import TABLES
from gptcore.config import PRESETS, FinetuneConfig, Preset, preset_named
from gptcore.errors import InputError
from gptcore.families import offered
from gptcore.nlu.registry import REGISTRY
from gptcore.prompting.tasks import PROMPT_TASKS
from gptcore.settings import replace_settings
from gptcore.sizes import SIZES

TaskName = StrEnum("TaskName", {name: name for name in REGISTRY})  # type: ignore[misc]  # values known at run time
PromptTaskName = StrEnum("PromptTaskName", {name: name for name in PROMPT_TASKS})  # type: ignore[misc]  # as above
FamilyName = StrEnum("FamilyName", {name: name for name in offered()})  # type: ignore[misc]  # as above
PresetName = StrEnum("PresetName", {name: name for name in PRESETS})  # type: ignore[misc]  # as above
AbstractsPresetName = StrEnum("AbstractsPresetName", {name: name for name in ABSTRACTS})  # type: ignore[misc]  # as above
AbstractsTableName = StrEnum("AbstractsTableName", {name: name for name in TABLES})  # type: ignore[misc]  # as above
SizedPresetName = StrEnum("SizedPresetName", {name: name for name in SIZES})  # type: ignore[misc]  # as above

_PAPER = FinetuneConfig()
_SAMPLING = SamplingConfig()


def _field(position: int, default: Any = ..., *, description: str, **limits: Any) -> Any:
    return Field(default, description=description, json_schema_extra={"position": position}, **limits)


_CHECKPOINT = (
    "Pre-trained model: one of the store's, or type a digest (or its beginning), a URL, latest, or "
    "models:/NAME@ALIAS of MLflow's registry."
)


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid", use_enum_values=True)


def chosen_preset(form: Any) -> Preset:
    """The preset of a form, of the family that it may ask for, with its overrides applied.

    :raises InputError: an unknown setting, or a value that does not fit.
    """
    family = getattr(form, "family", "gpt")
    if (found := form.overrides.get("family", family)) != family != "gpt":
        raise InputError(f"family = {found!r} in the settings, --family {family}; expected one of the two")
    return preset_named(form.preset, {"family": family, **form.overrides})


_ADAPTATION = ("adapt", "sampling", "star")
"""Sections of the settings that are about fine-tuning on abstracts; the others are the language model's."""


def chosen_abstracts(form: Any) -> tuple[Preset, AbstractsPreset]:
    """The language model's preset that a form asks for, and that of its fine-tuning on abstracts.

    :raises InputError: an unknown setting, or a value that does not fit.
    """
    own, overrides = ABSTRACTS[form.preset], language_overrides(form.overrides)
    changes = {
        name: replace_settings(getattr(own, name), form.overrides.get(name, {}), f"overrides: {name}")
        for name in _ADAPTATION
    }
    if overrides.get("family", "gpt2") != "gpt2":
        raise InputError(f"overrides: family = {overrides['family']!r}; expected gpt2, whose vocabulary has the marks")
    return preset_named(form.preset, {**overrides, "family": "gpt2"}), dataclasses.replace(own, **changes)


def language_overrides(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Of the settings of a form of abstracts, those of the language model that it starts from."""
    return {name: values for name, values in overrides.items() if name not in _ADAPTATION}


def chosen_sampling(preset: str, overrides: dict[str, Any], seed: int | None) -> SamplingConfig:
    """How abstracts are drawn under a preset with overrides, of which the other sections do not matter here.

    :param seed: None: the settings' own.
    :raises InputError: an unknown preset or setting, or a value that does not fit.
    """
    if preset not in ABSTRACTS:
        raise InputError(f"preset {preset!r} is not known; expected one of {', '.join(ABSTRACTS)}")
    chosen = replace_settings(ABSTRACTS[preset].sampling, overrides.get("sampling", {}), "overrides: sampling")
    return chosen if seed is None else dataclasses.replace(chosen, seed=seed)


_FAMILY = "Network and text: gpt (words, norms last) or gpt2 (bytes of any text, norms first)."
_NPROC = "Training processes for pre-training, one a GPU. 0: as many as a machine has GPUs; without any, one."
_SHARD = "Weights, gradients and optimiser sharded over the processes: for models beyond one GPU. Same results."
_START = "Go on from a pre-trained model's weights: its digest (or beginning), a URL, latest. Empty: random weights."


class PipelineParameters(_Form):
    """The whole chain: books to leaderboard."""

    preset: PresetName = _field(
        0, "demo", title="Preset", description="Sizes and schedules: demo, small, long or paper."
    )
    store: str = _field(1, "runs/demo", description="Where artifacts live: a folder or any fsspec URL (s3://...).")
    corpus: str = _field(2, "", description="Books: folder, glob or URL. Empty: the generated, synthetic world.")
    datasets: str = _field(3, "", description="Folder of the twelve datasets. Empty: the generated, synthetic world.")
    tasks: list[TaskName] = _field(4, [], description="Only these tasks. Empty: every task whose data is there.")
    seeds: int = _field(
        5, 0, ge=0, le=100, description="Fine-tunes of each task, with seeds 0, 1, 2, ... 0: as preset and task say."
    )
    overrides: dict[str, Any] = _field(
        6, {}, description='Settings that differ from the preset, e.g. {"finetune": {"lr": 1e-4}}.'
    )
    nproc: int = _field(7, 0, ge=0, description=_NPROC)
    jobs: int = _field(8, 0, ge=0, description="Fine-tunes at the same time. 0: one a core, or one a GPU; 16 on Slurm.")
    dask: str = _field(9, "", description="Dask scheduler address for the corpus stages. Empty: this machine.")
    tokenizer: str = _field(
        10,
        "",
        description="Pinned tokenizer: digest (or beginning), latest, a URL, or a folder with a vocabulary; then only "
        "new books are read. Empty: learnt from the corpus.",
    )
    start: str = _field(11, "", title="From", description=_START)
    shard: bool = _field(12, False, description=_SHARD)
    family: FamilyName = _field(13, "gpt", title="Family", description=_FAMILY)


class AnalysisParameters(PipelineParameters):
    """One of the paper's analyses, from the artifacts of a pipeline; what is missing is made."""

    max_rows: int = _field(
        14,
        1000,
        ge=0,
        description="Zero-shot rows of each task (of BLiMP pairs of each field), drawn by a seed. 0: all.",
    )
    out: str = _field(
        15, "", description="A local folder for the tables (Markdown, CSV) and figures (PNG). Empty: none."
    )


class OnPapers(_Form):
    """Papers, and the language model that is fine-tuned on them."""

    preset: AbstractsPresetName = _field(
        0, "demo", title="Preset", description="Sizes and schedules: demo, small, paper."
    )
    store: str = _field(1, "runs/demo", description="Where artifacts live: a folder or any fsspec URL (s3://...).")
    arxiv: str = _field(
        2,
        "",
        title="arXiv Archive",
        description="Its file or folder (.tsv.xz). Empty: the generated, synthetic papers.",
    )
    checkpoint: str = _field(
        3,
        "",
        description="GPT-2 to start from: one of the store's, as elsewhere, or a folder of Hugging Face's. Empty: one "
        "is pre-trained on the books.",
    )
    corpus: str = _field(4, "", description="Books: folder, glob or URL. Empty: the generated, synthetic world.")
    overrides: dict[str, Any] = _field(5, {}, description='Settings that differ, e.g. {"adapt": {"lr": 5e-5}}.')
    nproc: int = _field(7, 0, ge=0, description=_NPROC)
    jobs: int = _field(
        8, 0, ge=0, description="Trainings at the same time. 0: both; for tables one a core, or one a GPU."
    )
    out: str = _field(9, "", description="A local folder for the tables (Markdown, CSV). Empty: none.")
    categories: list[str] = _field(
        10,
        [],
        description="arXiv categories, e.g. cs.CL: only papers in one of them. Empty: the paper's four (cs.AI, cs.LG, "
        "cs.CL, cs.CV), or all where none is in those.",
    )


class AbstractsParameters(OnPapers):
    """Abstracts from titles: a GPT-2 fine-tuned on arXiv's papers, its losses and what it writes."""

    titles: int = _field(
        6, 0, ge=0, le=10_000, description="Held-out papers to write abstracts for. 0: as the preset says."
    )


class AbstractsTablesParameters(OnPapers):
    """The paper's Tables 3 to 7, one setting changed in each, and models of other sizes."""

    only: list[AbstractsTableName] = _field(6, [], description="Only these tables. Empty: every one that can be made.")


class GenerateParameters(_Form):
    """Abstracts under titles of your own, by a model that is there."""

    titles: list[str] = _field(0, min_length=1, description="Each gets an abstract.")
    model: str = _field(
        1,
        "",
        description="Fine-tuned on abstracts: digest, beginning of it, or address. Empty: the one that wrote last.",
    )
    store: str = _field(2, "runs/demo", description="Where artifacts live: a folder or any fsspec URL (s3://...).")
    max_tokens: int = _field(3, _SAMPLING.max_tokens, ge=1, description="At most so many tokens an abstract.")
    temperature: float = _field(4, _SAMPLING.temperature, ge=0, description="Below 1: likelier words; 0: likeliest.")
    top_k: int = _field(5, _SAMPLING.top_k, ge=0, description="Draw from so many likeliest tokens. 0: all.")
    top_p: float = _field(6, _SAMPLING.top_p, gt=0, le=1, description="Mass of the nucleus that is drawn from.")
    repetition_penalty: float = _field(
        7, _SAMPLING.repetition_penalty, ge=1, description="Makes what the text holds less likely. 1: off."
    )
    seed: int = _field(8, _SAMPLING.seed, description="Names the draws.")
    out: str = _field(9, "", description="A local folder for the page. Empty: none.")

    @property
    def sampling(self) -> SamplingConfig:
        """How the abstracts are drawn.

        :raises InputError: a value out of range.
        """
        return SamplingConfig(**{each.name: getattr(self, each.name) for each in dataclasses.fields(SamplingConfig)})


class FewShotParameters(_Form):
    """Answers from prompts, without fine-tuning: zero-shot and behind examples."""

    preset: SizedPresetName = _field(
        0, "demo", title="Preset", description="Whose three sizes are pre-trained: demo, small, paper."
    )
    store: str = _field(1, "runs/demo", description="Where artifacts live: a folder or any fsspec URL (s3://...).")
    checkpoints: list[str] = _field(
        2,
        [],
        description="Pre-trained models: digests (or their beginnings), URLs, latest, or folders of Hugging Face's. "
        "Empty: three sizes of GPT-2 are pre-trained on the corpus.",
    )
    datasets: str = _field(3, "", description="Folder of the datasets. Empty: the generated, synthetic world.")
    corpus: str = _field(4, "", description="Text to pre-train on. Empty: the generated world's web.")
    tasks: list[PromptTaskName] = _field(5, [], description="Only these tasks. Empty: every task whose data is there.")
    shots: list[Annotated[int, Field(ge=0, le=100)]] = _field(
        6, [0, 1, 4, 8], min_length=1, description="Examples before a question, each tried."
    )
    max_rows: int = _field(7, 200, ge=0, description="Rows of each task, drawn by a seed. 0: all.")
    overrides: dict[str, Any] = _field(
        8, {}, description='Settings of the pre-training that differ, e.g. {"pretrain": {"steps": 500}}.'
    )
    nproc: int = _field(9, 0, ge=0, description=_NPROC)
    out: str = _field(10, "", description="A local folder for the tables (Markdown, CSV) and figures. Empty: none.")


class PretrainParameters(_Form):
    """Pre-training alone, on shards that are there."""

    preset: PresetName = _field(
        0, "paper", title="Preset", description="Sizes and schedules: demo, small, long or paper."
    )
    store: str = _field(1, "runs/demo", description="Where artifacts live: a folder or any fsspec URL (s3://...).")
    shards: str = _field(2, "latest", description="Shards: digest (or its beginning), URL, or latest.")
    steps: int = _field(3, 0, ge=0, description="Updates. 0: as the preset says.")
    overrides: dict[str, Any] = _field(4, {}, description='Settings that differ, e.g. {"pretrain": {"lr": 1e-3}}.')
    nproc: int = _field(5, 0, ge=0, description=_NPROC)
    start: str = _field(6, "", title="From", description=_START)
    shard: bool = _field(7, False, description=_SHARD)
    family: FamilyName = _field(8, "gpt", title="Family", description=_FAMILY)


class FinetuneParameters(_Form):
    """One task, from one checkpoint. The defaults are the paper's (section 4.1)."""

    task: TaskName = _field(0, title="Task", description="Which of the twelve datasets.")
    checkpoint: str = _field(1, "latest", description=_CHECKPOINT)
    seeds: int = _field(
        2, 0, ge=0, le=100, description="Runs with seeds 0, 1, ...; the median counts. 0: 5 for small sets, else 1."
    )
    lr: float = _field(3, _PAPER.lr, gt=0, allow_inf_nan=False, description="Maximum learning rate (paper: 6.25e-5).")
    batch_size: int = _field(4, _PAPER.batch_size, ge=1, description="Examples an update (paper: 32).")
    epochs: int = _field(5, _PAPER.epochs, ge=1, description="Passes over the training rows (paper: 3).")
    lm_coef: float = _field(
        6, _PAPER.lm_coef, ge=0, allow_inf_nan=False, description="Weight of the auxiliary LM objective (paper: 0.5)."
    )
    clf_pdrop: float = _field(7, _PAPER.clf_pdrop, ge=0, lt=1, description="Dropout on the classifier (paper: 0.1).")
    pretrained: bool = _field(8, True, description="Off: the same network from random weights.")
    layers: int = _field(9, -1, ge=-1, description="Blocks transferred; 0: embeddings only; -1: all.")
    max_train_rows: int = _field(10, 0, ge=0, description="Train on so many rows, drawn by the seed. 0: all.")
    store: str = _field(11, "runs/demo", description="Where artifacts live: a folder or any fsspec URL (s3://...).")
    datasets: str = _field(12, "", description="Folder of the datasets. Empty: the generated, synthetic world.")


class FinetuneAllParameters(_Form):
    """Every task whose data is there, from one checkpoint."""

    preset: PresetName = _field(
        0, "demo", title="Preset", description="Fine-tuning settings: demo, small, long or paper."
    )
    checkpoint: str = _field(1, "latest", description=_CHECKPOINT)
    store: str = _field(2, "runs/demo", description="Where artifacts live: a folder or any fsspec URL (s3://...).")
    datasets: str = _field(3, "", description="Folder of the datasets. Empty: the generated, synthetic world.")
    tasks: list[TaskName] = _field(4, [], description="Only these tasks. Empty: every task whose data is there.")
    seeds: int = _field(5, 0, ge=0, le=100, description="Runs with seeds 0, 1, 2, ... 0: as preset and task say.")
    overrides: dict[str, Any] = _field(6, {}, description='Settings that differ, e.g. {"finetune": {"lr": 1e-4}}.')
    jobs: int = _field(7, 0, ge=0, description="Fine-tunes at the same time. 0: one a core, or one a GPU; 16 on Slurm.")


class SweepParameters(_Form):
    """A search for better settings: trials drawn from a space, of which the best go on to longer trainings."""

    sweep: dict[str, Any] = _field(
        0,
        description='What the file of a sweep holds, as JSON: {"preset": "small", "objective": "validation/loss", '
        '"trials": 9, "space": {"pretrain": {"lr": {"low": 5e-4, "high": 5e-3, "scale": "log"}}}}.',
    )
    store: str = _field(1, "runs/demo", description="Where artifacts live: a folder or any fsspec URL (s3://...).")
    corpus: str = _field(2, "", description="Books: folder, glob or URL. Empty: the generated, synthetic world.")
    datasets: str = _field(3, "", description="Folder of the twelve datasets. Empty: the generated, synthetic world.")
    checkpoint: str = _field(
        4,
        "",
        description="Pre-trained model that every trial fine-tunes: one of the store's, or as elsewhere. Empty: "
        "each trial's own.",
    )
    nproc: int = _field(5, 0, ge=0, description="Training processes of each pre-training, one a GPU. 0: one.")
    jobs: int = _field(
        6, 0, ge=0, description="Trainings at the same time. 0: pre-trainings one a GPU, fine-tunes one a core or GPU."
    )
    dask: str = _field(7, "", description="Dask scheduler address for the corpus stages. Empty: this machine.")
