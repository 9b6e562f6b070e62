"""The hub's parquet: the same rows give the same examples, scores and ids; broken files are named."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gptcore.base.errors import InputError
from gptcore.nlu import REGISTRY, available, load_task
from gptcore.nlu.encoded import dataset_fingerprint
from gptcore.nlu.readers import iterate, iterate_test, labelled_splits, source_files
from gptcore.nlu.registry import task_spec
from tests.gptcore import datasets as written
from tests.gptcore.hub_rows import SHAPES, hub_table, metadata, write_hub, write_table
from tests.gptcore.test_readers import ANY_TEXT
from tests.realdata import real_data

ODD_TEXT = ANY_TEXT | st.sampled_from(
    ['a "quoted\tcell"', "two\nlines", "\r\n.", "\u2028x", "\ufeffmark", "\0zero", "👩‍🔬"]
)


def values(task: str, root: str, split: str) -> list[tuple[Any, ...]]:
    return [(row.fields, row.choices, row.label, row.subset) for row in load_task(task, root, split)]


@pytest.mark.parametrize("task", REGISTRY)
@pytest.mark.parametrize("place", ["own folder", "repository", "beside", "owner", "memory"])
def test_the_same_rows_are_the_same_examples(task: str, place: str, tmp_path: Path) -> None:
    spec, public = REGISTRY[task], str(tmp_path / "public")
    written.write_task(public, spec, rows=11)
    root = str(tmp_path / "hub") if place != "memory" else f"memory://hub/{task}"
    repo = SHAPES[task].repo
    inside = {
        "own folder": f"/{spec.folder.partition('/')[0]}",
        "repository": "",
        "memory": "",
        "beside": f"/{repo.rpartition('/')[2]}",
        "owner": f"/{repo}",
    }
    write_hub(public, spec, root + inside[place], shards=2)
    assert available(root) == [task]
    assert labelled_splits(spec, root) == list(spec.splits)
    for split in spec.splits:
        assert values(task, root, split) == values(task, public, split)
    assert all(url.endswith("-of-00002.parquet") for url in source_files(spec, root))


@pytest.mark.parametrize("task", ["mrpc", "rte", "cola", "mnli"])
def test_real_rows_are_the_same(task: str, tmp_path: Path) -> None:
    spec, public, hub = REGISTRY[task], str(real_data()), str(tmp_path / "hub")
    write_hub(public, spec, hub, shards=3)
    rows = {root: {split: load_task(task, root, split) for split in ("train", "dev")} for root in (public, hub)}
    for split in ("train", "dev"):
        ours, theirs = ([(row.fields, row.label, row.subset) for row in rows[root][split]] for root in (public, hub))
        assert ours == theirs


def test_real_scores_are_as_near_as_the_hub_keeps_them(tmp_path: Path) -> None:
    spec, public, hub = REGISTRY["stsb"], str(real_data()), str(tmp_path / "hub")
    write_hub(public, spec, hub)
    rounded = {}
    for split in ("train", "dev"):
        ours, theirs = (load_task("stsb", root, split) for root in (public, hub))
        assert [row.fields for row in ours] == [row.fields for row in theirs]
        assert [np.float32(row.label) for row in ours] == [np.float32(row.label) for row in theirs]
        rounded[split] = sum(one.label != other.label for one, other in zip(ours, theirs, strict=True))
    assert rounded == {"train": 14, "dev": 1}  # 2.11111111111111: more digits than float32, the hub's type, has


def test_the_public_files_go_first_and_keep_their_digest(tmp_path: Path) -> None:
    public = str(tmp_path)
    written.write_task(public, REGISTRY["rte"], rows=4)
    before, rows = dataset_fingerprint(task_spec("rte"), public), values("rte", public, "dev")
    (tmp_path / "other").mkdir()
    written.write_task(str(tmp_path / "other"), REGISTRY["rte"], rows=9)
    write_hub(str(tmp_path / "other"), REGISTRY["rte"], f"{public}/RTE")
    assert values("rte", public, "dev") == rows
    assert dataset_fingerprint(task_spec("rte"), public) == before
    for name in ("train", "dev"):
        (tmp_path / "RTE" / f"{name}.tsv").unlink()
    assert len(values("rte", public, "dev")) == 9
    assert dataset_fingerprint(task_spec("rte"), public) != before


def test_the_digest_follows_the_content(tmp_path: Path) -> None:
    roots = [str(tmp_path / name) for name in ("one", "same", "other")]
    for root, rows in zip(roots, (5, 5, 6), strict=True):
        written.write_task(f"{root}-public", REGISTRY["cola"], rows=rows)
        write_hub(f"{root}-public", REGISTRY["cola"], root)
    one, same, other = (dataset_fingerprint(task_spec("cola"), root) for root in roots)
    assert one == same != other


def test_snli_rows_without_a_gold_label_are_dropped_and_counted(tmp_path: Path) -> None:
    labels = ["neutral", "-", "entailment", "-"]
    rows = [{"sentence1": "a", "sentence2": f"b{at}", "gold_label": label} for at, label in enumerate(labels)]
    write_table(f"{tmp_path}/SNLI/validation-00000-of-00001.parquet", hub_table("snli", rows))
    dropped = Counter[str]()
    found = list(iterate(REGISTRY["snli"], str(tmp_path), "dev", dropped))
    assert [row.fields[1] for row in found] == ["b0", "b2"]
    assert [row.row for row in found] == [f"SNLI/validation-00000-of-00001.parquet:{at}" for at in (1, 3)]
    assert dropped == {"label -": 2}


def test_scitail_is_read_from_the_config_that_lost_no_rows(tmp_path: Path) -> None:
    rows = [{"premise": "p", "hypothesis": "h", "label": label} for label in ("entails", "neutral", "neutral")]
    columns = {"premise": ["p"], "hypothesis": ["h"], "label": ["entails"]}
    write_table(f"{tmp_path}/tsv_format/validation-00000-of-00001.parquet", pa.table(columns))
    assert [row.label for row in load_task("scitail", str(tmp_path))] == [1]
    write_table(f"{tmp_path}/snli_format/validation-00000-of-00001.parquet", hub_table("scitail", rows))
    assert [row.label for row in load_task("scitail", str(tmp_path))] == [1, 0, 0]


@pytest.mark.parametrize(
    ("path", "task", "index", "file", "columns"),
    [
        ("MNLI/test_matched.tsv", "mnli", "index", "mnli/test_matched", ("premise", "hypothesis")),
        ("QQP/test.tsv", "qqp", "id", "qqp/test", ("question1", "question2")),
        ("WNLI/test.tsv", "mnli", "index", "wnli/test", ("sentence1", "sentence2")),
        ("diagnostic/diagnostic.tsv", "mnli", "index", "ax/test", ("premise", "hypothesis")),
    ],
)
def test_unlabelled_test_rows(
    path: str, task: str, index: str, file: str, columns: tuple[str, str], tmp_path: Path
) -> None:
    table = {columns[0]: ["a", "b"], columns[1]: ["c", "d"], "label": [-1, -1], "idx": [0, 1]}
    write_table(f"{tmp_path}/{file}-00000-of-00001.parquet", pa.table(table))
    found = list(iterate_test(REGISTRY[task], str(tmp_path), path, index))
    assert [(row.fields, row.label) for row in found] == [(("a", "c"), None), (("b", "d"), None)]
    write_table(f"{tmp_path}/{file}-00000-of-00001.parquet", pa.table({**table, "idx": [0, 2]}))
    with pytest.raises(InputError, match=r"row 2, column 'idx': found '2', expected 1, as rows count from 0"):
        list(iterate_test(REGISTRY[task], str(tmp_path), path, index))


@settings(max_examples=60)
@given(texts=st.lists(st.tuples(ODD_TEXT, ODD_TEXT), min_size=1, max_size=4), large=st.booleans())
def test_text_of_any_kind_survives(texts: list[tuple[str, str]], large: bool) -> None:
    rows = [{"#1 String": first, "#2 String": second, "Quality": "1"} for first, second in texts]
    table = hub_table("mrpc", rows)
    if large:
        table = table.set_column(0, "sentence1", table.column("sentence1").cast(pa.large_string()))
        table = table.set_column(1, "sentence2", table.column("sentence2").dictionary_encode())
    write_table("memory://odd/MRPC/validation-00000-of-00001.parquet", table)
    assert [row.fields for row in load_task("mrpc", "memory://odd")] == texts


@settings(max_examples=60)
@given(score=st.integers(0, 5000).map(lambda thousandths: thousandths / 1000), double=st.booleans())
def test_scores_are_the_public_files_decimals(score: float, double: bool) -> None:
    kind = pa.float64() if double else pa.float32()
    table = pa.table({"sentence1": ["a"], "sentence2": ["b"], "label": pa.array([score], kind)})
    write_table("memory://scores/STS-B/validation.parquet", table)
    assert [row.label for row in load_task("stsb", "memory://scores")] == [float(f"{score:.3f}")]


def _rte(**changes: Any) -> pa.Table:
    columns = {"sentence1": ["a", "b"], "sentence2": ["c", "d"], "label": [0, 1], "idx": [0, 1]} | changes
    return pa.table({name: column for name, column in columns.items() if column is not None})


def _invalid() -> pa.Array:
    return pa.Array.from_buffers(pa.string(), 2, [None, pa.py_buffer(np.int32([0, 1, 2])), pa.py_buffer(b"a\xff")])


FILE = "RTE/validation-00000-of-00001.parquet"
BROKEN = {
    "a null text": (_rte(sentence2=["c", None]), ", row 2, column 'sentence2': found None, expected text that is not"),
    "an empty text": (_rte(sentence1=["", "b"]), ", row 1, column 'sentence1': found '', expected text that is not"),
    "no UTF-8": (_rte(sentence1=_invalid()), ", row 2, column 'sentence1': found byte 0xff, expected UTF-8 text"),
    "a label out of range": (
        _rte(label=[0, 2]),
        ", row 2, column 'label': found 2, expected one of not_entailment, entailment",
    ),
    "test rows": (_rte(label=[-1, -1]), ", row 1, column 'label': found -1, expected one of"),
    "a null label": (_rte(label=[0, None]), ", row 2, column 'label': found None, expected one of"),
    "a missing column": (
        _rte(sentence2=None),
        ", column 'sentence2': found 0 times among ['sentence1', 'label', 'idx'], expected once (nyu-mll/glue)",
    ),
    "numbers for texts": (_rte(sentence1=[1, 2]), ", column 'sentence1': found type int64, expected string"),
    "a list for a label": (
        _rte(label=[[0], [1]]),
        ", column 'label': found type list<element: int64>, expected number or string",
    ),
    "the classes in another order": (
        _rte().replace_schema_metadata(metadata("label", ["not_entailment", "entailment"], ["sentence1"])),
        ", column 'label': found the classes ['not_entailment', 'entailment'], expected entailment, not_entailment "
        "in this order (nyu-mll/glue)",
    ),
    "metadata that is no JSON": (
        _rte().replace_schema_metadata({"huggingface": "{"}),
        ", metadata 'huggingface': found b'{', expected JSON with info.features.label",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_table_names_its_place(case: str, tmp_path: Path) -> None:
    table, message = BROKEN[case]
    write_table(f"{tmp_path}/{FILE}", table)
    with pytest.raises(InputError, match=re.escape(f"{tmp_path}/{FILE}{message}")) as raised:
        load_task("rte", str(tmp_path))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("cut", [0, 3, 60, -9])
def test_a_file_cut_short_is_named(cut: int, tmp_path: Path) -> None:
    write_table(f"{tmp_path}/{FILE}", _rte())
    whole = (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(whole[:cut])
    message = re.escape(f"{tmp_path}/{FILE}, after row 0: found ") + ".*, expected a parquet file"
    with pytest.raises(InputError, match=message) as raised:
        load_task("rte", str(tmp_path))
    assert "\n" not in str(raised.value)


def test_a_damaged_page_is_named(tmp_path: Path) -> None:
    write_table(f"{tmp_path}/{FILE}", _rte(), compression="none")
    data = bytearray((tmp_path / FILE).read_bytes())
    data[4:40] = b"\xff" * 36
    (tmp_path / FILE).write_bytes(bytes(data))
    with pytest.raises(InputError, match=re.escape(f"{tmp_path}/{FILE}, after row 0: found ")) as raised:
        load_task("rte", str(tmp_path))
    assert "\n" not in str(raised.value)


def test_scores_out_of_range(tmp_path: Path) -> None:
    for number, shown in ((-1.0, "'-1'"), (5.5, "'5.5'"), (float("nan"), "nan"), (None, "None")):
        table = pa.table({"sentence1": ["a"], "sentence2": ["b"], "label": pa.array([number], pa.float32())})
        write_table(f"{tmp_path}/STS-B/validation.parquet", table)
        with pytest.raises(InputError, match=f"row 1, column 'label': found {shown}, expected a number from 0 to 5"):
            load_task("stsb", str(tmp_path))


def test_race_needs_four_options(tmp_path: Path) -> None:
    table = {"article": ["a"], "question": ["q"], "answer": ["A"], "options": [["w", "x", "y"]]}
    for level in ("middle", "high"):
        write_table(f"{tmp_path}/race/{level}/validation-00000-of-00001.parquet", pa.table(table))
    message = r"race/middle/validation.*row 1, column 'options': found \['w', 'x', 'y'\], expected a list of 4 options"
    with pytest.raises(InputError, match=message):
        load_task("race", str(tmp_path))


def test_missing_shards_and_splits_are_errors(tmp_path: Path) -> None:
    written.write_task(str(tmp_path / "public"), REGISTRY["rte"], rows=6)
    write_hub(str(tmp_path / "public"), REGISTRY["rte"], str(tmp_path), shards=3)
    (tmp_path / "rte" / "train-00001-of-00003.parquet").unlink()
    with pytest.raises(InputError, match=r"rte/train-\*\.parquet: found 2 files, expected 3, as their names say"):
        load_task("rte", str(tmp_path), "train")
    assert len(load_task("rte", str(tmp_path), "dev")) == 6
    first = tmp_path / "rte" / "train-00000-of-00003.parquet"
    (tmp_path / "rte" / "train.parquet").write_bytes(first.read_bytes())  # three files again, and part 1 still missing
    with pytest.raises(InputError, match=r"rte/train-\*\.parquet: found part 00000 twice"):
        load_task("rte", str(tmp_path), "train")
    (tmp_path / "rte" / "train.parquet").unlink()
    for left in (tmp_path / "rte").glob("validation-*"):
        left.unlink()
    with pytest.raises(InputError, match=r"rte/validation-\*\.parquet: found nothing there"):
        load_task("rte", str(tmp_path), "dev")


def test_the_hubs_own_conversion_has_a_folder_a_split(tmp_path: Path) -> None:
    for number in range(2):
        write_table(f"{tmp_path}/rte/validation/{number:04}.parquet", _rte(sentence1=[f"{number}a", f"{number}b"]))
    assert [row.fields[0] for row in load_task("rte", str(tmp_path))] == ["0a", "0b", "1a", "1b"]


def test_both_spellings_of_the_metadata_without_classes(tmp_path: Path) -> None:
    written_as = {"info": {"features": {"label": {"dtype": "int64", "_type": "Value"}}}}
    table = _rte().replace_schema_metadata({"huggingface": json.dumps(written_as)})
    write_table(f"{tmp_path}/{FILE}", table)
    assert [row.label for row in load_task("rte", str(tmp_path))] == [1, 0]
    shutil.rmtree(tmp_path / "RTE")
    assert available(str(tmp_path)) == []
