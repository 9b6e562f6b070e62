"""Published tables of encoders, to stand beside our own analyses; numbers are as printed.

Each table says where it is printed; "the lecture" is a course's slides on pre-trained models, which print ALBERT's
tables. Scores are in per cent; F1/EM on SQuAD.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class PublishedModel:
    """One model's row of one table."""

    method: str
    source: str
    """Where it is printed, and on which rows: "dev" or "test"."""
    scores: dict[str, str]
    """Task -> score in per cent, as printed."""
    average: str = ""
    """The table's own average, over the tasks that it has."""
    weights: str = ""
    operations: str = ""
    """Floating-point operations of the pre-training."""
    intrinsic: dict[str, str] = field(default_factory=dict)
    """Held-out accuracy of what pre-training tells: words, nsp, sop."""
    kept: str = ""
    """Of a student: the share of its teacher's average."""


def _scores(tasks: str, printed: str) -> dict[str, str]:
    return {task: score for task, score in zip(tasks.split(), printed.split(), strict=True) if score != "-"}


def _each(source: str, tasks: str, rows: Iterable[tuple[str, str, str, str]]) -> tuple[PublishedModel, ...]:
    """:param rows: method, weights, average, scores."""
    return tuple(
        PublishedModel(method, source, _scores(tasks, printed), average, weights)
        for method, weights, average, printed in rows
    )


_COST = "ELECTRA, Table 1: GLUE, dev"
_GLUE = "cola sst2 mrpc stsb qqp mnli qnli rte"
_README = "README of {} (dev)"

FAMILIES: tuple[PublishedModel, ...] = (
    *(
        PublishedModel(method, _COST, {}, average, weights, operations)
        for method, weights, operations, average in (
            ("GPT-1", "117M", "4.0e19", "78.8"),
            ("BERT-Small", "14M", "1.4e18", "75.1"),
            ("BERT-Base", "110M", "6.4e19", "82.2"),
            ("ELECTRA-Small", "14M", "1.4e18", "79.9"),
            ("ELECTRA-Small, 6.25 % of the updates", "14M", "8.9e16", "74.1"),
            ("ELECTRA-Base", "110M", "6.4e19", "85.1"),
        )
    ),
    *_each(
        _README.format("DistilBERT"),
        _GLUE,
        (("BERT-Base", "", "", "56.3 92.7 88.6 89.0 89.6 84.7 91.8 69.3"),),
    ),
    *_each(
        _README.format("ALBERT"),
        "squad squad2 mnli sst2 race",
        (("ALBERT-Base v2", "", "82.3", "90.2/83.2 82.1/79.3 84.6 92.9 66.8"),),
    ),
    *_each(
        _README.format("ELECTRA"),
        _GLUE,
        (
            ("ELECTRA-Small++", "", "", "57.0 91.2 88.0 87.5 89.0 81.3 88.4 66.7"),
            ("ELECTRA-Base", "", "", "67.7 95.1 89.5 91.2 91.5 88.8 93.2 82.7"),
            ("ELECTRA-Large", "", "89.5", "69.1 96.9 90.8 92.6 92.4 90.9 95.0 88.0"),
        ),
    ),
)
"""What pre-training costs and brings, of each family but GPT-2, of which none has such a table."""

_LITE = "squad squad2 mnli sst2 race"

SENTENCES: tuple[PublishedModel, ...] = tuple(
    PublishedModel(
        method,
        "ALBERT, Table 5 (dev)",
        _scores(_LITE, printed),
        average,
        intrinsic=dict(zip(("words", "nsp", "sop"), told.split(), strict=True)),
    )
    for method, told, printed, average in (
        ("none", "54.9 52.4 53.3", "88.6/81.5 78.1/75.3 81.5 89.9 61.7", "79.0"),
        ("nsp", "54.5 90.5 52.0", "88.4/81.5 77.2/74.6 81.6 91.1 62.3", "79.2"),
        ("sop", "54.0 78.9 86.5", "89.3/82.3 80.0/77.1 82.0 90.3 64.0", "80.1"),
    )
)
"""What the second segment is, by the names of the setting `pretrain.pairs` (section 4.6)."""

SHARING: tuple[PublishedModel, ...] = _each(
    "ALBERT, Table 4 (dev)",
    _LITE,
    (
        ("E = 768, all-shared", "31M", "79.8", "88.6/81.5 79.2/76.6 82.0 90.6 63.3"),
        ("E = 768, shared-attention", "83M", "81.6", "89.9/82.7 80.0/77.2 84.0 91.4 67.7"),
        ("E = 768, shared-FFN", "57M", "79.5", "89.2/82.1 78.2/75.4 81.5 90.8 62.6"),
        ("E = 768, not-shared", "108M", "82.3", "90.4/83.2 80.4/77.6 84.5 92.8 68.2"),
        ("E = 128, all-shared", "12M", "80.1", "89.3/82.3 80.0/77.1 82.0 90.3 64.0"),
        ("E = 128, shared-attention", "64M", "81.7", "89.9/82.8 80.7/77.9 83.4 91.9 67.6"),
        ("E = 128, shared-FFN", "38M", "80.2", "88.9/81.6 78.6/75.6 82.3 91.7 64.4"),
        ("E = 128, not-shared", "89M", "81.6", "89.9/82.8 80.3/77.3 83.2 91.5 67.9"),
    ),
)
"""ALBERT-base: the width of the embeddings, and what all layers share (section 4.5)."""

REPLACED: tuple[PublishedModel, ...] = _each(
    "ELECTRA, Table 5: GLUE, dev",
    "",
    (
        ("ELECTRA", "", "85.0", ""),
        ("All-Tokens MLM", "", "84.3", ""),
        ("Replace MLM", "", "82.4", ""),
        ("ELECTRA 15%", "", "82.4", ""),
        ("BERT", "", "82.2", ""),
    ),
)
"""ELECTRA and the controls that explain what it gains (section 3.4)."""

_SMALL = "cola sst2 qqp mnli qnli rte"

SIZES: tuple[PublishedModel, ...] = (
    *_each(
        "README of BERT: smaller models, GLUE (test)",
        _SMALL,
        (
            ("2 x 128", "", "64.2", "0.0 83.2 62.2/83.4 70.2/70.3 81.5 57.2"),
            ("4 x 256", "", "65.8", "0.0 85.9 66.4/86.2 74.8/74.3 84.1 57.9"),
            ("4 x 512", "", "71.2", "27.8 89.7 68.1/87.0 77.6/77.0 86.4 61.8"),
            ("8 x 512", "", "73.5", "38.0 89.6 69.6/87.9 80.0/79.1 87.7 62.2"),
        ),
    ),
    *_each(
        "GLUE results, BERT (arXiv, first version; test)",
        "cola sst2 qqp mnli qnli rte",
        (
            ("12 x 768", "110M", "79.6", "52.1 93.5 71.2 84.6/83.4 90.1 66.4"),
            ("24 x 1024", "340M", "81.9", "60.5 94.9 72.1 86.7/85.9 91.1 70.1"),
        ),
    ),
)
"""BERT by its number of layers and their width."""

_SPANS = f"{_GLUE} squad squad2"

DISTILLED: tuple[PublishedModel, ...] = (
    *(
        PublishedModel(
            method, "DistilBERT, Table 1 and README (dev)", _scores(_SPANS, printed), average, weights, kept=kept
        )
        for method, weights, average, kept, printed in (
            ("BERT-Base", "110M", "79.5", "", "56.3 92.7 88.6 89.0 89.6 84.7 91.8 69.3 88.5/81.2 -"),
            ("DistilBERT", "66M", "77.0", "96.9 %", "51.3 91.3 87.5 86.9 88.5 82.1 89.2 59.9 85.8/77.7 -"),
        )
    ),
    *(
        PublishedModel(method, "TinyBERT (test)", _scores(_SPANS, printed), average, weights, kept=kept)
        for method, weights, average, kept, printed in (
            ("BERT-Base, the teacher", "", "79.5", "", "52.8 93.4 87.5 85.2 71.1 83.9/83.4 90.9 67.0 - -"),
            (
                "TinyBERT4",
                "14.5M",
                "77.0",
                "96.8 %",
                "44.1 92.6 86.4 80.4 71.3 82.5/81.8 87.7 66.6 82.1/72.7 71.8/68.2",
            ),
            ("TinyBERT6", "", "79.4", "99.9 %", "51.1 93.1 87.3 83.7 71.6 84.6/83.2 90.4 70.0 87.5/79.7 77.7/74.7"),
        )
    ),
)
"""Students and their teachers. TinyBERT4 is 9.4 times as fast as its teacher; DistilBERT takes 410 s for STS-B's dev
rows on a CPU where BERT takes 668."""

WITHOUT: tuple[PublishedModel, ...] = tuple(
    PublishedModel(method, "DistilBERT, Table 4: GLUE, dev", {}, difference)
    for method, difference in (
        ("no soft targets", "-2.96"),
        ("no cosine", "-1.46"),
        ("no masked words", "-0.31"),
        ("random start", "-3.69"),
    )
)
"""What leaving out a part costs, in points of an average: "average" is the difference."""

ENTITIES: tuple[PublishedModel, ...] = tuple(
    PublishedModel(method, "ERNIE (Zhang et al. 2019): FewRel, test, F1", {"fewrel": score})
    for method, score in (
        ("BERT", "84.89"),
        ("ERNIE", "88.32"),
        ("without entities", "85.79"),
        ("without the objective", "85.62"),
    )
)
"""ERNIE's ablation on the paper's own split of FewRel, 80 relations; the rows of our analysis by the same names."""

ERNIE = PublishedModel(
    "ERNIE",
    "ERNIE, Zhang et al. 2019 (test)",
    _scores(f"{_GLUE} fewrel openentity", "52.3 93.5 88.2 83.2 71.2 84.0/83.2 91.3 68.8 88.32 75.56"),
)
"""On GLUE's test server, FewRel and Open Entity (where BERT has 73.56)."""
