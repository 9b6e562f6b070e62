"""Distillation: a smaller network learns from a model that is there, and both are fine-tuned on the tasks."""

from __future__ import annotations

from prefect import flow

from flows.forms.run_names import from_form
from flows.papers.students.forms import DistilParameters
from flows.servers import signals
from flows.trainings.chain import books_to_shards, trained_model
from flows.trainings.grid import Arm, encoded_tasks, grid_of, pretrained_arm
from flows.trainings.leaderboard import score_tasks
from gptcore.families import FAMILIES
from gptcore.text.sources import RawCorpus
from tasks.report.leaderboard import Leaderboard
from tasks.stages.corpus import ngrams_beside
from tasks.stages.pretrain import PretrainRequest
from tasks.stages.training import Distillation
from tasks.store.lineage import ancestor, own_tokenizer


@flow(name="distil", flow_run_name=from_form, persist_result=False)
def distil(parameters: DistilParameters) -> Leaderboard:
    """Pre-train a student beside its teacher, then fine-tune both: two rows that stand for the same text."""
    signals.listen()
    request = parameters.request
    store, datasets_url, chosen = request.store, request.datasets_url, request.tasks
    teacher, student = store.adopt(request.teacher), request.student
    preset, tokenizer = student.preset, own_tokenizer(store, teacher)
    datasets, left_out = encoded_tasks(store, datasets_url, chosen, FAMILIES[preset.family], tokenizer)
    if teacher.stage == "pretrain":  # the text that it was made from; of a teacher from elsewhere the given books
        shards = ancestor(store, teacher, "shards")
    else:
        raw = RawCorpus.at(parameters.corpus, preset.corpus.text_field)
        shards = books_to_shards(store, raw, preset, parameters.dask, tokenizer, by_partition=False).shards
    ngrams = ngrams_beside(store, shards, parameters.dask, parameters.ngrams)
    settings = (preset.model, preset.pretrain, ngrams, parameters.nproc)
    distillation = Distillation(teacher, preset.distil)
    training = PretrainRequest(store, shards, *settings, distillation=distillation, preset=preset.name)
    model = trained_model(training)
    taught_by = pretrained_arm(teacher)
    label = f"student of {teacher.digest[:6]}, {preset.model.shape_in_words}"
    arms = [Arm(label, model, teacher=taught_by), taught_by]
    grid = grid_of(store, preset, datasets_url, chosen, datasets, arms, parameters.seeds, student.origin)
    return score_tasks(grid, parameters.jobs, left_out=left_out)
