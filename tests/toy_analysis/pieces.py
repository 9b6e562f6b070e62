"""How many tokens the books are by the tokenizer that was learnt from them."""

from __future__ import annotations

from prefect import flow

from flows.forms.parameters import AnalysisParameters
from flows.forms.run_names import from_form
from flows.papers.analyses.common import synthetic_notes
from flows.trainings.chain import run_chain
from tasks.report.analysis import Analysis, publish_all


@flow(name="analysis-pieces", flow_run_name=from_form, persist_result=False)
def pieces(parameters: AnalysisParameters) -> list[Analysis]:
    """Tokens of each split of the books."""
    chain = run_chain(parameters)
    splits = chain.store.manifest(chain.shards)["counts"]["splits"]
    body = [(split, f"{counts['n_tokens']:,}") for split, counts in splits.items()]
    identity = {"shards": chain.shards.digest}
    title, notes = "Pieces of the books", synthetic_notes(chain)
    return publish_all([Analysis("pieces", title, ("split", "tokens"), body, identity, notes=notes)], parameters.out)
