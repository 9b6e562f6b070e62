"""The paper's analyses, each a flow that makes its table or figure from the stages' artifacts.

    tables      Table 1, rows read beside rows published; Tables 2, 3 and 4, our row under the published ones
    table5      full, without pre-training, without the auxiliary objective, LSTM: on eight tasks
    layers      Figure 2, left: 0 (embeddings only) to all blocks transferred, on MultiNLI and RACE
    zero-shot   Figure 2, right: scores without fine-tuning, from the first updates to the last, Transformer and LSTM;
                BLiMP in the same way, where its files are, with the n-gram models beside it
    learning    what more text brings: every task fine-tuned from models kept on the way, over the tokens they had seen
    families    GPT-1, GPT-2, BERT, ALBERT and ELECTRA side by side, at equal tokens and at equal operations
    objectives  next tokens, hidden words, both, replaced tokens, at equal operations for each of some budgets
    sentences   ALBERT's Table 5: what pre-training tells of pairs of segments
    sharing     ALBERT's Table 4: the width of the embeddings, and parameters that layers share
    replaced    ELECTRA's Table 5: what its gain comes from; beside masked words at equal operations, on the way
    sizes       BERT by its number of layers and their width
    students    a BERT and its students: scores, weights, milliseconds, ONNX and int8
    distillation  DistilBERT's and TinyBERT's ablations: one part of what a student learns left out
    entities    ERNIE's ablation: a graph's entities beside words, and the objective that tells them
    overlap     how much of every test set stands in the corpus, by 8-grams (GPT-2's paper, section 4); trains nothing

What the store holds is not computed again: after a pipeline an analysis adds only its own runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flows.analysis.budgets import objectives
from flows.analysis.curves import learning, zero_shot_curves
from flows.analysis.encoder_objectives import replaced, sentences
from flows.analysis.entities import entities
from flows.analysis.networks import families, sharing, sizes
from flows.analysis.overlap import overlap
from flows.analysis.paper import layers, table5, tables
from flows.analysis.students import distillation, students
from tasks.report.analysis import Analysis

ANALYSES: dict[str, Callable[[Any], list[Analysis]]] = {
    "tables": tables,
    "table5": table5,
    "layers": layers,
    "zero-shot": zero_shot_curves,
    "learning": learning,
    "overlap": overlap,
    "families": families,
    "objectives": objectives,
    "sentences": sentences,
    "sharing": sharing,
    "replaced": replaced,
    "sizes": sizes,
    "students": students,
    "distillation": distillation,
    "entities": entities,
}
"""Name on the command line -> flow, which takes its form."""
