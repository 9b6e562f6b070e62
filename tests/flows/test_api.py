"""What programs call: tables of pandas, as the commands of these names have them; the page that shows it."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from flows.api import finetune, leaderboard, predict, score
from gptcore.base.errors import InputError
from tests.flows.foreign import foreign
from tests.flows.test_foreign import FEW

PAGE = Path(__file__).parents[2] / "infra/docs/reference/python.md"
PAIR = {"sentence1": "a cat sat on the mat .", "sentence2": "the cat sat ."}


@pytest.mark.usefixtures("prefect_server")
def test_a_fine_tune_its_answers_and_the_leaderboard_are_tables(
    world: tuple[str, str], store: str, tmp_path: Path
) -> None:
    folder = str(foreign(tmp_path / "anna", "bert"))
    board = finetune("rte", folder, datasets=world[1], store=store, seeds=1, overrides=FEW)
    assert set(board["kind"]) >= {"ours", "baseline", "published"}
    (row,) = board[board["kind"] == "ours"].to_dict("records")
    assert row["suite"].startswith("anna imported ")
    assert 0 <= row["rte"] <= 100
    whole = leaderboard()
    assert row["suite"] in set(whole["suite"])

    rows = [PAIR, {**PAIR, "sentence2": "nobody knew ."}]
    answers = predict("rte", rows, store=store)
    assert set(answers) == {"label", "probability entailment", "probability not_entailment"}
    pd.testing.assert_frame_equal(predict("rte", pd.DataFrame(rows), store=store), answers)
    labelled = tmp_path / "labelled.csv"
    pd.DataFrame([{**row, "label": "entailment"} for row in rows]).to_csv(labelled, index=False)
    found = score("rte", str(labelled), store=store)
    assert found["rows"] == 2
    assert found["accuracy"] == 50 * (answers["label"] == "entailment").sum()
    messy = [{**PAIR, "id": 7, "day": pd.Timestamp("2026-12-01"), "x": math.nan}, {"sentence1": math.nan, "id": 8}]
    told = predict("rte", pd.DataFrame([*messy, *rows], index=[3, 1, 4, 5]), store=store)
    assert told["id"].tolist()[:2] == [7, 8]
    assert told["day"][3].startswith("2026-12-01T00:00")
    assert told["label"].isna().tolist() == [False, True, False, False]
    assert told["note"][1].endswith("found '', expected text that is not empty")
    assert predict("rte", [], store=store).empty
    for given, said in ((PAIR, "rows: found one alone"), ([{"a": 1}], "rows, line 1: found only 'a'")):
        with pytest.raises(InputError, match=said):
            predict("rte", given, store=store)
    with pytest.raises(InputError, match="found 'rtee', did you mean rte"):
        score("rtee", str(labelled), store=store)
    with pytest.raises(InputError, match="found no model for sst2"):
        predict("sst2", rows, store=store)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"chekpoint": "a"}, "chekpoint: did you mean checkpoint"),
        ({"epochs": "few"}, "epochs: found 'few', expected a valid integer$"),
        ({"lr": math.inf}, "lr: found inf, expected a finite number"),
        ({"overrides": 5}, "overrides: found 5, expected a valid dictionary"),
        ({"task": "rtee"}, "task: found 'rtee', did you mean rte"),
    ],
)
def test_a_wrong_argument_is_told_in_a_line(
    fields: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPTMILL_HOME", str(tmp_path))
    with pytest.raises(InputError, match=said):
        finetune(**{"task": "rte", **fields})


def test_the_page_names_what_there_is() -> None:
    code = "\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL))
    compile(code, str(PAGE), "exec")
    (names,) = re.findall(r"from flows\.api import (.*)", code)
    assert sorted(names.split(", ")) == sorted(each.__name__ for each in (finetune, leaderboard, predict, score))
