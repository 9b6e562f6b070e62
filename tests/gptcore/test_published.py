"""Published rows: where they stand, and by which rule their averages were made."""

from __future__ import annotations

import re
import statistics
from decimal import ROUND_HALF_UP, Decimal

import pytest

from gptcore.nlu import COLUMNS, REGISTRY
from gptcore.nlu import blimp as blimp_files
from gptcore.nlu.published import OURS, PUBLISHED, PublishedRow, _leaderboard
from gptcore.nlu.registry import BEYOND
from gptcore.papers.analyses.published import ABLATIONS, AblationRow
from tests.expected import expected
from tests.realdata import real_data

BERT_TABLE, SQUAD, SWAG, COMMONSENSE, BABYLM = (
    _leaderboard[name]["table"] for name in ("bert", "squad", "swag", "commonsenseqa", "babylm")
)
SUCCESSORS = expected(__file__, "SUCCESSORS")
"""Where the rows of later encoders are printed, and on which split."""
BERT = {row.method: row for row in PUBLISHED if row.table == BERT_TABLE}


def printed(value: float) -> float:
    """One decimal, half up, of a mean of decimals."""
    return float(Decimal(repr(round(value, 6))).quantize(Decimal("0.1"), ROUND_HALF_UP))


def glue_rule(row: PublishedRow) -> float:
    """MNLI once, as the mean of its two test sets."""
    others = [score for column, score in row.percent.items() if not column.startswith("mnli")]
    return statistics.fmean([statistics.fmean([row.percent["mnli_m"], row.percent["mnli_mm"]]), *others])


def test_the_papers_own_rows() -> None:
    tables = {row.table: row.percent for row in PUBLISHED if row.method == OURS}
    assert tables == {
        "Table 2": {"mnli_m": 82.1, "mnli_mm": 81.4, "snli": 89.9, "scitail": 88.3, "qnli": 88.1, "rte": 56.0},
        "Table 3": {"storycloze": 86.5, "race_m": 62.9, "race_h": 57.4, "race": 59.0},
        "Table 4": {"cola": 45.4, "sst2": 91.3, "mrpc": 82.3, "stsb": 82.0, "qqp": 70.3},
    }
    assert {column for percent in tables.values() for column in percent} == set(COLUMNS)


def test_every_row_says_table_and_split_and_knows_its_columns() -> None:
    tables = [row.table for row in PUBLISHED]
    assert [tables.count(f"Table {number}") for number in (2, 3, 4)] == [7, 5, 6]
    assert set(BERT) == {"Pre-OpenAI SOTA", "BiLSTM+ELMo+Attn", "OpenAI GPT", "BERT base", "BERT large"}
    released = [row for row in PUBLISHED if "README" in row.table and row.table not in SUCCESSORS]
    assert [row.percent for row in released] == [{"storycloze": 85.8}]
    assert [tables.count(table) for table in SUCCESSORS] == [2, 3, 1, 3, 1]
    for row in PUBLISHED:
        assert row.percent.keys() <= {*COLUMNS, *BEYOND}
        assert row.split == SUCCESSORS.get(row.table, "dev" if row.table == BABYLM else "test")


def test_babylms_baselines_have_blimp_by_field_and_no_average() -> None:
    rows = {row.method: row for row in PUBLISHED if row.table == BABYLM}
    assert {name: row.zero_shot["blimp"] for name, row in rows.items()} == {
        "BabyLM OPT-125m": 62.6,
        "BabyLM RoBERTa-base": 69.5,
    }
    for row in rows.values():
        assert set(row.percent) == {"sst2", "mrpc", "qqp", "mnli_m", "mnli_mm", "qnli", "rte"}
        assert tuple(row.zero_shot) == blimp_files.COLUMNS
        assert row.average is None
        assert "filtered" in row.note
    assert all(not row.zero_shot for row in PUBLISHED if row.table != BABYLM)
    assert {row.table for row in PUBLISHED if row.note} == {BABYLM, BERT_TABLE, SQUAD, *SUCCESSORS}


def test_berts_table_says_that_its_correlation_is_another() -> None:
    """82.0 and 80.0 are Pearson's and Spearman's correlation of one model."""
    assert all("Spearman" in row.note for row in BERT.values())
    assert (BERT["OpenAI GPT"].percent["stsb"], ours()["stsb"]) == (80.0, 82.0)


def test_rows_stand_in_their_sources() -> None:
    for row in (*PUBLISHED, *ABLATIONS):
        if isinstance(row, PublishedRow) and (
            "README" in row.table or row.table in (BABYLM, COMMONSENSE, SQUAD, SWAG, *SUCCESSORS)
        ):
            continue
        (source,) = (real_data("..") / "seeds").glob("003*" if row in BERT.values() else "001*")
        marks = re.compile(r"<.*?>|\\[\\d+\\]")
        lines = [marks.sub("", line) for line in source.read_text(encoding="utf-8").splitlines()]
        scores = [f"{score:.1f}" for score in (*row.percent.values(), *([row.average] if row.average else []))]
        name = row.method.split(" (")[0].upper()
        there = [line for line in lines if name in re.sub(r" +", " ", line).upper()]
        assert any(all(score in line for score in scores) for line in there), row


def test_leaderboards_of_answers_stand_in_the_slides() -> None:
    (slides,) = (real_data("..") / "seeds").glob("003*")
    lines = re.sub(r"<.*?>|\\*", "", slides.read_text(encoding="utf-8")).splitlines()
    rows = [row for row in PUBLISHED if row.table in (SQUAD, SWAG)]
    assert len(rows) == 11
    for row in rows:
        name = re.split(r"[ ,]", row.method)[0]
        for score in row.percent.values():
            assert any(re.search(rf"{name}.*\b{score}\d?\b", line, re.IGNORECASE) for line in lines), row


@pytest.mark.parametrize("row", ABLATIONS, ids=lambda row: row.method)
def test_table_5_averages_are_the_plain_mean_of_eight_cells(row: AblationRow) -> None:
    assert list(row.percent) == ["cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte"]
    assert row.percent.keys() <= REGISTRY.keys()
    mean = statistics.fmean(row.percent.values())
    assert abs(mean - row.average) < 0.1  # 0.05 for the rounded cells, 0.05 for the rounded average
    assert printed(mean) == (69.2 if row.method == "LSTM w/ aux LM" else row.average)


def ours() -> dict[str, float]:
    return {column: score for row in PUBLISHED if row.method == OURS for column, score in row.percent.items()}


def test_the_full_model_of_table_5_is_the_row_of_tables_2_and_4() -> None:
    full, cells = dict(ABLATIONS[0].percent), ours()
    assert printed((cells["mnli_m"] + cells["mnli_mm"]) / 2) == full.pop("mnli")
    assert full == {task: cells[task] for task in full}


@pytest.mark.parametrize("row", BERT.values(), ids=lambda row: row.method)
def test_berts_averages_count_mnli_twice_and_are_not_glues(row: PublishedRow) -> None:
    assert len(row.percent) == 9
    assert printed(statistics.fmean(row.percent.values())) == row.average
    assert printed(glue_rule(row)) != row.average


def test_glues_own_score_cannot_be_worked_out_from_the_printed_cells() -> None:
    """The server counts WNLI and the second metrics of MRPC, STS-B and QQP; the eight printed cells give 74.6."""
    cells = ours()
    cells["mnli"] = statistics.fmean([cells["mnli_m"], cells["mnli_mm"]])
    assert printed(statistics.fmean(cells[task] for task in ABLATIONS[0].percent)) == 74.6
    scores = {row.method: row.average for row in PUBLISHED if row.table == "Table 4" and row.average}
    assert scores == {"Single-task BiLSTM + ELMo + Attn": 64.8, "Multi-task BiLSTM + ELMo + Attn": 68.9, OURS: 72.8}
