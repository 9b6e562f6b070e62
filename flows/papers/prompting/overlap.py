"""How much of the test sets stands in the training text (GPT-2's paper, section 4 and Table 6)."""

from __future__ import annotations

from prefect import flow

from flows.forms.parameters import AnalysisParameters
from flows.forms.run_names import from_form
from flows.servers import signals
from flows.trainings.chain import books_and_datasets
from gptcore.base.filesystems import is_synthetic
from gptcore.evaluation.overlap import N
from gptcore.text.sources import RawCorpus
from tasks.papers.prompting.overlap import OverlapCounts, measure_overlap
from tasks.report.analysis import Analysis, publish_all
from tasks.report.card import SYNTHETIC
from tasks.stages.corpus import clean_corpus
from tasks.store.counts import CorpusCounts


@flow(name="analysis-overlap", flow_run_name=from_form, persist_result=False)
def overlap(parameters: AnalysisParameters) -> list[Analysis]:
    """Share of every test set's 8-grams that stand in the corpus, beside that in the task's own training rows.

    Only the corpus is made for it, no tokenizer and no model.

    :raises InputError: missing or broken input, before anything is computed from it.
    """
    signals.listen()
    request = parameters.request
    store = request.store
    corpus_url, datasets_url = books_and_datasets(store, request.corpus, request.datasets, request.family)
    config = request.preset.corpus
    corpus = clean_corpus(store, RawCorpus.at(corpus_url, config.text_field), config, request.dask)
    built = measure_overlap(store, corpus, datasets_url, request.dask)
    words = CorpusCounts.of(store, corpus).words
    counted = OverlapCounts.parse(built.counts).sets
    wanted = set(map(str, parameters.tasks)) or {name.partition(" ")[0] for name in counted}
    sets = {name: shares for name, shares in counted.items() if name.partition(" ")[0] in wanted}
    body = [
        (
            name,
            f"{shares.corpus.rows:,}",
            f"{shares.corpus.ngrams:,}",
            _share(shares.corpus.found, shares.corpus.ngrams),
            _share(shares.corpus.rows_found, shares.corpus.rows),
            _share(shares.train.found, shares.train.ngrams) if shares.train else "-",
        )
        for name, shares in sets.items()
    ]
    header = ("test set", "rows", f"{N}-grams", "in the corpus, %", "rows with any, %", "in its own train rows, %")
    notes = [
        *([SYNTHETIC] if is_synthetic(datasets_url) else []),
        f"corpus {corpus.short}: {words:,} words, of which the training documents count",
        f"{N}-grams of lower-cased alphanumeric words; a text that several rows have is counted once",
        "published, of WebText: 3.2 % on average over common test sets (GPT-2's paper, section 4)",
    ]
    metrics = {
        f"{name}/overlap": 100 * shares.corpus.found / shares.corpus.ngrams
        for name, shares in sets.items()
        if shares.corpus.ngrams
    }
    title = f"Overlap: {N}-grams of test sets that stand in the training text"
    identity = {"overlap": built.artifact.digest, "sets": list(sets)}
    return publish_all([Analysis("overlap", title, header, body, identity, metrics, notes)], parameters.out)


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.2f}" if whole else "-"
