"""Abstracts from titles: arXiv's papers in, a GPT-2 fine-tuned on them, its losses and what it writes out."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from prefect import flow

from flows.forms.choices import list_checkpoints
from flows.forms.run_names import from_form
from flows.papers.abstracts.forms import (
    AbstractsParameters,
    AbstractsTablesParameters,
    GenerateParameters,
    OnPapers,
    PapersRequest,
)
from flows.papers.abstracts.settings import check_positions, language_overrides
from flows.servers import signals
from flows.trainings.chain import Books, books_to_shards, named_by_size, pinned, trained_model
from flows.trainings.failures import CellsFailed, Failures, leave_out, raise_if_all
from flows.trainings.train import policy_for, run_all
from gptcore.base.errors import InputError
from gptcore.config.sizes import SIZES, sized_preset
from gptcore.papers.abstracts.config import BY_SIZE, SWEEPS, AdaptConfig, SweepTable, at_size
from gptcore.text.sources import RawCorpus
from tasks.jobs.placement import slots_and_threads
from tasks.papers.abstracts import report
from tasks.papers.abstracts.counts import PaperIdsCounts
from tasks.papers.abstracts.stages import (
    AdaptRequest,
    collect_papers,
    encode_abstracts,
    read_written,
    write_and_measure,
)
from tasks.report.analysis import Analysis, publish, publish_all
from tasks.stages.corpus import generate_world
from tasks.stages.training import Training
from tasks.store.artifact import Artifact
from tasks.store.counts import PretrainCounts
from tasks.store.lineage import ancestor, own_tokenizer
from tasks.store.store import Store


@flow(name="abstracts", flow_run_name=from_form, persist_result=False)
def abstracts(parameters: AbstractsParameters) -> list[Analysis]:
    """Fine-tune on titles and abstracts, from a pre-trained model and from random weights; write abstracts; compare.

    :raises InputError: missing or broken input, before anything is computed from it.
    """
    signals.listen()
    request = parameters.request
    store, own = request.store, request.own
    arms = [dataclasses.replace(own.adapt, pretrained=pretrained) for pretrained in (True, False)]
    papers, ids, checkpoint, _ = _inputs(request, parameters, arms)
    arms = [_rated(store, checkpoint, parameters, arm) for arm in arms]
    jobs = parameters.jobs or 2  # both arms side by side
    models = _adapted(store, ids, [(checkpoint, arm) for arm in arms], jobs)
    sampling, titles = own.sampling, parameters.titles or own.titles
    written = write_and_measure(store, models[0], papers, sampling, titles)
    analyses = [
        report.split_table(store, papers, ids),
        report.losses_table(store, models, ids, checkpoint),
        report.measures_table(store, written, ids),
        report.generated_page(store, written, read_written(store, written), ids),
    ]
    if request.beside:
        first = {named_by_size(store, checkpoint): (checkpoint, models[0])}
        analyses.append(_beside(request, parameters, first))
    return publish_all(analyses, parameters.out)


@flow(name="abstracts-tables", flow_run_name=from_form, persist_result=False)
def abstracts_tables(parameters: AbstractsTablesParameters) -> list[Analysis]:
    """Tables 3 to 7 at the preset's scale: each changes one setting of 82M*; only what the store lacks is trained.

    Where the language model is trained here, too, and no setting says its shape, one table more (``sizes``) has models
    of other sizes: what Table 8 shows by released weights. Each is pre-trained like the preset's own.

    :raises InputError: missing or broken input, before anything is computed from it.
    :raises CellsFailed: at the end, where a training failed.
    """
    signals.listen()
    request, wanted = parameters.request, parameters.tables
    store, own = request.store, request.own
    tables = [table for table in SWEEPS if table.name in wanted]
    _, ids, checkpoint, books = _inputs(request, parameters, _swept(tables, own.star) or [own.star])
    star = _rated(store, checkpoint, parameters, own.star)
    configs = _swept(tables, star)
    jobs = parameters.jobs or slots_and_threads(0)[0]
    failed: Failures = {}
    names = {config: _difference(config, star) for config in configs}
    requests = {name: AdaptRequest(store, ids, checkpoint, config) for config, name in names.items()}
    models = _each_apart(requests, jobs, failed)
    raise_if_all(failed, list(requests))
    trained = {config: models[name] for config, name in names.items() if name in models}
    analyses = publish_all(
        [report.sweep_table(store, table, star, trained, ids, checkpoint) for table in tables], parameters.out
    )
    if BY_SIZE in wanted and books is not None:
        sizes = _sizes(books, parameters, failed)
        requests = {
            name: AdaptRequest(store, ids, model, _rated(store, model, parameters, own.star))
            for name, model in sizes.items()
        }
        adapted = _each_apart(requests, jobs, failed)
        if adapted:
            ready = {name: sizes[name] for name in adapted}
            seen = PretrainCounts.of(store, next(iter(sizes.values()))).tokens_seen
            origin = f"each pre-trained on the same {seen:,} tokens"
            analyses.append(report.sizes_table(store, ready, list(adapted.values()), ids, origin))
            publish(analyses[-1], parameters.out)
    if failed:
        raise CellsFailed(failed, analyses)
    return analyses


@flow(name="generate", flow_run_name=from_form, persist_result=False)
def generate(parameters: GenerateParameters) -> Analysis:
    """Abstracts under titles, on a page; equal titles, settings and seed give equal abstracts on the same machine.

    :raises InputError: no such model, or a title without words.
    """
    # torch: not before a form is known to be good
    from flows.papers.abstracts.write import abstracts_model, write_abstracts

    signals.listen()
    store = Store(parameters.store)
    model = abstracts_model(store, parameters.model or None)
    written = write_abstracts(store, model.url, parameters.titles, parameters.sampling)
    page = report.own_page(store, model, written, parameters.sampling)
    publish(page, parameters.out)
    return page


def _beside(
    request: PapersRequest, parameters: AbstractsParameters, trained: dict[str, tuple[Artifact, Artifact]]
) -> Analysis:
    """Table 8 of several models: each on the ids of its own tokenizer, all with the same settings but the rate.

    :param trained: name -> language model and what it was fine-tuned into, of those that are done; takes in the others.
    """
    store, config = request.store, request.own.adapt
    for named in request.beside:
        _, ids, start, _ = _inputs(dataclasses.replace(request, checkpoint=named), parameters, [config])
        (model,) = _adapted(store, ids, [(start, _rated(store, start, parameters, config))], 1)
        trained[named_by_size(store, start)] = start, model
    starts = {name: start for name, (start, _) in trained.items()}
    models = [model for _, model in trained.values()]
    ids = ancestor(store, models[0], "papers-ids")
    return report.sizes_table(store, starts, models, ids, "each as it came", name="abstracts-table8-sizes")


def _swept(tables: Sequence[SweepTable], star: AdaptConfig) -> list[AdaptConfig]:
    """The settings of all cells of some tables; what several of them share comes once."""
    return list(dict.fromkeys(config for table in tables for _, _, config in report.cells(table, star)))


def _rated(store: Store, checkpoint: Artifact, parameters: OnPapers, config: AdaptConfig) -> AdaptConfig:
    """The settings, at the paper's scale with Table 2's rate for the model's size unless the user's own have one."""
    if parameters.preset != "paper" or "lr" in parameters.overrides.get(parameters.section, {}):
        return config
    return at_size(config, store.manifest(checkpoint)["config"]["model"])


def _sizes(books: Books, parameters: OnPapers, failed: Failures) -> dict[str, Artifact]:
    models: dict[str, Artifact] = {}
    language = language_overrides(parameters.overrides)
    for size in SIZES[parameters.preset]:
        request = books.pretraining(sized_preset(parameters.preset, size, language), parameters.nproc)
        models |= _each_apart({size.name: request}, 1, failed)
    list_checkpoints(books.store)
    return models


def _adapted(store: Store, ids: Artifact, wanted: Sequence[tuple[Artifact, AdaptConfig]], jobs: int) -> list[Artifact]:
    """A model for each pair of where it starts and its settings, ``jobs`` of them trained at the same time."""
    requests = [AdaptRequest(store, ids, checkpoint, config) for checkpoint, config in wanted]
    trained = run_all(requests, policy_for(requests, jobs), ends_all=Exception)
    return [model for model in trained if not isinstance(model, Exception)]


def _each_apart(wanted: Mapping[str, Training[Artifact]], jobs: int, failed: Failures) -> dict[str, Artifact]:
    """Name -> model, where a training that fails ends no other; ``failed`` takes its name and why.

    :raises InputError: of a training, as bad input is nobody's to go on from.
    """
    requests = list(wanted.values())
    models: dict[str, Artifact] = {}
    trained = run_all(requests, policy_for(requests, jobs), ends_all=InputError)
    for name, model in zip(wanted, trained, strict=True):
        if isinstance(model, Exception):
            leave_out(failed, name, model)
        else:
            models[name] = model
    return models


def _difference(config: AdaptConfig, star: AdaptConfig) -> str:
    own = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    return ", ".join(f"{name} = {value}" for name, value in own.items() if value != getattr(star, name)) or "82M*"


def _inputs(
    request: PapersRequest, parameters: OnPapers, configs: Sequence[AdaptConfig]
) -> tuple[Artifact, Artifact, Artifact, Books | None]:
    """Papers, their ids, the language model to start from, and the books that it was pre-trained on if it was here.

    :param configs: of the fine-tunes, from the form's section of the settings.
    :raises InputError: blocks of more tokens than the model has positions, or than a split holds; before any training.
    """
    store, preset, section = request.store, request.preset, parameters.section
    corpus_url, arxiv_url = parameters.corpus, parameters.arxiv
    if not arxiv_url or not (corpus_url or request.checkpoint):
        world = store.local(generate_world(store))
        corpus_url, arxiv_url = corpus_url or str(world / "books"), arxiv_url or str(world / "arxiv")
    books = None
    if not request.checkpoint:
        check_positions(section, configs, preset.model.n_ctx)
    papers = collect_papers(store, arxiv_url, parameters.categories)
    if checkpoint := request.checkpoint:
        check_positions(section, configs, store.manifest(checkpoint)["config"]["model"]["n_ctx"])
        tokenizer = own_tokenizer(store, checkpoint)
    else:
        given = pinned(store, request.tokenizer, preset)
        books = books_to_shards(
            store, RawCorpus.at(corpus_url, preset.corpus.text_field), preset, parameters.dask, given
        )
        tokenizer = books.tokenizer
    ids = encode_abstracts(store, papers, tokenizer)
    size = max(config.block_size for config in configs)
    for split, tokens in PaperIdsCounts.of(store, ids).tokens.items():
        if tokens < size:
            raise InputError(
                f"{section}.block_size = {size}: the papers' split {split} has {tokens:,} tokens, "
                "expected a block or more; take smaller blocks or more papers"
            )
    if books:
        checkpoint = trained_model(books.pretraining(preset, parameters.nproc))
    assert checkpoint is not None, "given, or pre-trained on the books"
    return papers, ids, checkpoint, books
