"""Published results, to stand beside ours, and the paper's ablations (Table 5), which never do.

Numbers are as printed: per cent, on the TEST split (GLUE's test server where the task belongs to GLUE), but for the
BabyLM challenge's and some encoders', which are on dev rows. A local run reports dev scores where test labels are not
public, so the split is part of every row.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field

from gptcore.nlu.blimp import BLIMP, FIELDS
from gptcore.nlu.published_encoders import DISTILLED, ERNIE, FAMILIES, PublishedModel
from gptcore.nlu.registry import REGISTRY

OURS = "Finetuned Transformer LM (ours)"
"""The paper's name of the model that this project implements."""


@dataclass(frozen=True)
class PublishedRow:
    """One method's row of one table; the paper's own rows are put together from the registry's entries."""

    method: str
    table: str
    """Where it is printed: "Table 2" and so on of the paper; anything else names its source."""
    percent: dict[str, float]
    """Leaderboard column -> score in per cent, as printed."""
    average: float | None = None
    """The table's own average, as printed. Table 4's is GLUE's score, which counts WNLI and second metrics that are
    not printed: it cannot be worked out from the cells. That of the BERT table is the plain mean of its nine cells,
    so that MNLI counts twice, and is not GLUE's average either."""
    split: str = "test"
    zero_shot: dict[str, float] = field(default_factory=dict)
    """Zero-shot column (:data:`gptcore.nlu.blimp.COLUMNS`) -> accuracy in per cent."""
    note: str = ""
    """What sets the numbers apart from ours."""


@dataclass(frozen=True)
class AblationRow:
    """One row of Table 5. A type of its own, so that an ablated model never stands among the leaderboard's rows."""

    method: str
    average: float
    """As printed."""
    percent: dict[str, float]
    """Task -> score in per cent, as printed; MNLI is one number, the mean of its two test sets."""
    table: str = "Table 5"
    split: str = "test"

    @property
    def mean(self) -> float:
        """Unweighted mean of the eight cells.

        Rounded half up to one decimal it is the printed average, but for the LSTM: 69.1625, printed 69.1. Cells are
        rounded to 0.05, and so is what a mean of them can tell of the mean of the unrounded scores.
        """
        return statistics.fmean(self.percent.values())


def _cells(columns: str, scores: Iterable[float | None]) -> dict[str, float]:
    found = zip(columns.split(), scores, strict=True)
    return {column: score for column, score in found if score is not None}


def _row(
    table: int | str, columns: str, method: str, *scores: float | None, average: float | None = None
) -> PublishedRow:
    name = f"Table {table}" if isinstance(table, int) else table
    note = _BERT_NOTE if table == BERT_TABLE else ""
    return PublishedRow(method, name, _cells(columns, scores), average, note=note)


def _babylm(method: str, scores: tuple[float, ...], fields: tuple[float, ...]) -> PublishedRow:
    """:param fields: of BLiMP, in the order of :data:`gptcore.nlu.blimp.FIELDS`, which is the printed one."""
    zero_shot = {f"{BLIMP}/{name}": score for name, score in zip(FIELDS, fields, strict=True)}
    zero_shot = {BLIMP: round(statistics.fmean(fields), 1), **zero_shot}  # not printed
    percent = _cells(_BABYLM, scores)
    return PublishedRow(method, BABYLM, percent, split="dev", zero_shot=zero_shot, note=_BABYLM_NOTE)


def _squad(method: str, *scores: tuple[float, float]) -> PublishedRow:
    """:param scores: exact match and F1, of version 1.1 and then, where it is printed, of 2.0."""
    printed = dict(zip(("squad", "squad2"), scores, strict=False))
    note = ", ".join(f"{name} {exact:.1f}" for name, (exact, _) in printed.items())
    percent = {name: f1 for name, (_, f1) in printed.items()}
    return PublishedRow(method, SQUAD, percent, note=f"exact match: {note}")


def _encoder(model: PublishedModel, method: str, note: str) -> PublishedRow:
    """A row of an analysis' table. Of two numbers the first counts: matched MNLI, SQuAD's F1."""
    percent = {}
    for task, printed in model.scores.items():
        first, _, second = printed.partition("/")
        percent["mnli_m" if task == "mnli" else task] = float(first)
        if task == "mnli" and second:
            percent["mnli_mm"] = float(second)
    source, _, split = model.source.rstrip(")").rpartition("(")
    average = float(model.average) if model.average else None
    return PublishedRow(method, source.strip(), percent, average, split.split()[-1], note=note)


def _ours(table: int, average: float | None = None) -> PublishedRow:
    cells = {column: score for spec in REGISTRY.values() if spec.table == table for column, score in spec.paper.items()}
    return _row(table, " ".join(cells), OURS, *cells.values(), average=average)


_2 = "mnli_m mnli_mm snli scitail qnli rte"
_3 = "storycloze race_m race_h race"
_4 = "cola sst2 mrpc stsb qqp"
_5 = "cola sst2 mrpc stsb qqp mnli qnli rte"
_BERT = "mnli_m mnli_mm qqp qnli sst2 cola stsb mrpc rte"
BERT_TABLE = "GLUE results, BERT (arXiv, first version)"
"""By its numbers the first version (QNLI 1), which the slides call NAACL 2019; WNLI is left out. Its row of the paper's
model ("OpenAI GPT") has another STS-B score than Table 4 (80.0, not 82.0), so the two rows stay apart."""
_BERT_NOTE = "STS-B is a Spearman correlation there (of the pre-OpenAI state of the art Pearson's), ours is Pearson's"

SQUAD = "SQuAD's leaderboards, October 2018"
"""As a course's slides on pre-trained models print them, with SWAG's."""
SWAG = "SWAG's leaderboard, October 2018"
COMMONSENSE = "CommonsenseQA's in-house split, as MHGRN's code reports it"
"""Lin et al. 2019 cut it; github.com/INK-USC/MHGRN and qagnn report these on its test set."""

BABYLM = "baselines of the BabyLM challenge 2023, track strict-small"
"""As the README of its evaluation pipeline (github.com/babylm/evaluation-pipeline-2023) prints them; its CoLA is an
accuracy and has no column here."""
_BABYLM = "sst2 mrpc qqp mnli_m mnli_mm qnli rte"
_BABYLM_NOTE = (
    "pre-trained on 10 million words; rows and minimal pairs filtered by their vocabulary, train sets larger than "
    "ours where ours are samples; F1 is called macro-F1"
)

_SINGLE = "MNLI is one number there, and which metrics MRPC, STS-B and QQP have is not said"
_TINY = "SQuAD is on dev rows; MRPC and QQP are F1, STS-B a Spearman correlation, ours is Pearson's"
_FAMILIES = {model.method: model for model in FAMILIES}
_STUDENTS = {model.method: model for model in DISTILLED}
_ENCODERS: tuple[tuple[PublishedModel, str, str], ...] = (
    (_STUDENTS["BERT-Base"], "BERT base, DistilBERT's teacher", f"{_SINGLE}; the average counts WNLI"),
    (_STUDENTS["DistilBERT"], "DistilBERT", f"{_SINGLE}; the average counts WNLI"),
    (_STUDENTS["BERT-Base, the teacher"], "BERT base, TinyBERT's teacher", _TINY),
    (_STUDENTS["TinyBERT4"], "TinyBERT, 4 layers", _TINY),
    (_STUDENTS["TinyBERT6"], "TinyBERT, 6 layers", _TINY),
    (_FAMILIES["ALBERT-Base v2"], "ALBERT base, version 2", "MNLI is one number there; the average is of these five"),
    (_FAMILIES["ELECTRA-Small++"], "ELECTRA small ++", _SINGLE),
    (_FAMILIES["ELECTRA-Base"], "ELECTRA base", _SINGLE),
    (_FAMILIES["ELECTRA-Large"], "ELECTRA large", _SINGLE),
    (ERNIE, "ERNIE", "FewRel is of 80 relations, ours of 16"),
)
"""Row of an analysis' table, its name here, and what sets it apart."""

PUBLISHED: tuple[PublishedRow, ...] = (
    _row(2, _2, "ESIM + ELMo (5x)", None, None, 89.3, None, None, None),
    _row(2, _2, "CAFE (5x)", 80.2, 79.0, 89.3, None, None, None),
    _row(2, _2, "Stochastic Answer Network (3x)", 80.6, 80.1, None, None, None, None),
    _row(2, _2, "CAFE", 78.7, 77.9, 88.5, 83.3, None, None),
    _row(2, _2, "GenSen", 71.4, 71.3, None, None, 82.3, 59.2),
    _row(2, _2, "Multi-task BiLSTM + Attn", 72.2, 72.1, None, None, 82.1, 61.7),
    _ours(2),
    _row(3, _3, "val-LS-skip", 76.5, None, None, None),
    _row(3, _3, "Hidden Coherence Model", 77.6, None, None, None),
    _row(3, _3, "Dynamic Fusion Net (9x)", None, 55.6, 49.4, 51.2),
    _row(3, _3, "BiAttention MRU (9x)", None, 60.2, 50.3, 53.3),
    _ours(3),
    _row(4, _4, "Sparse byte mLSTM", None, 93.2, None, None, None),
    _row(4, _4, "TF-KLD", None, None, 86.0, None, None),
    _row(4, _4, "ECNU (mixed ensemble)", None, None, None, 81.0, None),
    _row(4, _4, "Single-task BiLSTM + ELMo + Attn", 35.0, 90.2, 80.2, 55.5, 66.1, average=64.8),
    _row(4, _4, "Multi-task BiLSTM + ELMo + Attn", 18.9, 91.6, 83.5, 72.8, 63.3, average=68.9),
    _ours(4, average=72.8),
    _row("README of the released code", "storycloze", "Released code (median of 10 runs)", 85.8),
    _row(BERT_TABLE, _BERT, "Pre-OpenAI SOTA", 80.6, 80.1, 66.1, 82.3, 93.2, 35.0, 81.0, 86.0, 61.7, average=74.0),
    _row(BERT_TABLE, _BERT, "BiLSTM+ELMo+Attn", 76.4, 76.1, 64.8, 79.9, 90.4, 36.0, 73.3, 84.9, 56.8, average=71.0),
    _row(BERT_TABLE, _BERT, "OpenAI GPT", 82.1, 81.4, 70.3, 88.1, 91.3, 45.4, 80.0, 82.3, 56.0, average=75.2),
    _row(BERT_TABLE, _BERT, "BERT base", 84.6, 83.4, 71.2, 90.1, 93.5, 52.1, 85.8, 88.9, 66.4, average=79.6),
    _row(BERT_TABLE, _BERT, "BERT large", 86.7, 85.9, 72.1, 91.1, 94.9, 60.5, 86.5, 89.3, 70.1, average=81.9),
    *(_encoder(*row) for row in _ENCODERS),
    _squad("Human performance", (82.304, 91.221), (86.831, 89.452)),
    _squad("BERT (single model)", (85.083, 91.835), (80.005, 83.061)),
    _squad("BERT (ensemble)", (87.433, 93.160)),
    _squad("nlnet (single model)", (83.468, 90.133), (74.272, 77.052)),
    _squad("nlnet (ensemble)", (85.954, 91.677)),
    _squad("QANet (ensemble)", (84.454, 90.490)),
    _row(SWAG, "swag", "Human performance, SWAG", 88.0),
    _row(SWAG, "swag", "BERT, SWAG", 86.28),
    _row(SWAG, "swag", "OpenAI Transformer, SWAG", 77.97),
    _row(SWAG, "swag", "ESIM + ELMo, SWAG", 59.06),
    _row(SWAG, "swag", "ESIM + GloVe, SWAG", 52.45),
    _row(COMMONSENSE, "commonsenseqa", "BERT base, in-house split", 53.5),
    _row(COMMONSENSE, "commonsenseqa", "BERT large, in-house split", 55.4),
    _row(COMMONSENSE, "commonsenseqa", "RoBERTa large, in-house split", 68.7),
    _babylm(
        "BabyLM OPT-125m",
        (81.9, 72.5, 60.4, 57.6, 60.0, 61.5, 60.0),
        (63.8, 70.6, 67.1, 66.5, 78.5, 62.0, 63.8, 67.5, 48.6, 46.7, 59.6, 56.9),
    ),
    _babylm(
        "BabyLM RoBERTa-base",
        (87.0, 79.2, 73.7, 73.2, 74.0, 77.0, 61.6),
        (81.5, 67.1, 67.3, 67.9, 90.8, 76.4, 63.5, 87.4, 39.9, 55.9, 70.5, 65.4),
    ),
)
"""Every method of Tables 2, 3 and 4, the released code's own figure, the rows of BERT's GLUE table, those of its
successors, of SQuAD's and SWAG's leaderboards, and two baselines of the BabyLM challenge."""

ABLATIONS: tuple[AblationRow, ...] = tuple(
    AblationRow(method, average, _cells(_5, scores))
    for method, average, *scores in (
        ("Transformer w/ aux LM (full)", 74.7, 45.4, 91.3, 82.3, 82.0, 70.3, 81.8, 88.1, 56.0),
        ("Transformer w/o pre-training", 59.9, 18.9, 84.0, 79.4, 30.9, 65.5, 75.7, 71.2, 53.8),
        ("Transformer w/o aux LM", 75.0, 47.9, 92.0, 84.9, 83.2, 69.8, 81.1, 86.9, 54.4),
        ("LSTM w/ aux LM", 69.1, 30.3, 90.5, 83.2, 71.8, 68.1, 73.7, 81.1, 54.6),
    )
)
"""Table 5: GLUE test scores of the paper's own runs."""
