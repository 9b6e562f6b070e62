"""Whatever a file holds, its reader gives a result or one clear line; in bounded time and memory."""

from __future__ import annotations

import logging
import resource
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gptcore.base.errors import InputError
from tests.fuzz.mutations import Damage, damaged, damages
from tests.fuzz.readers import READERS

_LONG = settings.get_current_profile_name() == "fuzz"
_FEW = 12  # inputs a reader in `make test`
_MEMORY = 300  # MB that a reader of files of a few kB may take
_SPACE = 3 << 30  # bytes of address space that it may ask for


@pytest.mark.parametrize("name", READERS)
def test_any_file_is_read_or_refused_in_one_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record_property: pytest.RecordProperty
) -> None:
    reader = READERS[name]
    monkeypatch.setenv("GPTMILL_HOME", str(tmp_path))
    logging.disable(logging.WARNING)
    reader.write(tmp_path)
    paths = sorted(path for path in tmp_path.glob(reader.damaged) if path.is_file() and ".locks" not in path.parts)
    sound = {path: path.read_bytes() for path in paths}
    reader.read(tmp_path)  # as it was written it can be read
    counts = {"inputs": 0, "read": 0, "refused": 0}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    @settings(
        max_examples=settings.default.max_examples if _LONG else _FEW,
        derandomize=not _LONG,
        database=None,
        deadline=settings.default.deadline if _LONG else None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.integers(0, len(paths) - 1), damages)
    def reads(index: int, damage: Damage) -> None:
        path = paths[index]
        path.write_bytes(damaged(sound[path], damage))
        counts["inputs"] += 1
        said = ""
        try:
            reader.read(tmp_path)
        except InputError as error:
            said = str(error) or "\n"
        finally:
            path.write_bytes(sound[path])
        counts["refused" if said else "read"] += 1
        assert "\n" not in said, said
        assert len(said) < 3000, said

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + _SPACE, hard))
    try:
        reads()
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        logging.disable(logging.NOTSET)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
    assert grown < _MEMORY, f"{grown} MB more than before"
    for key, value in {"reader": name, **counts, "megabytes": grown}.items():
        record_property(key, value)


KNOWN = [
    ("settings", "settings.toml", b"seeds = " + b"9" * 5000),
    ("settings", "settings.toml", b"seeds = " + b"[" * 3000),
    ("tokenizer", "vocab.json", b"[" * 3000),
    ("tokenizer", "vocab.json", b'{"<unk>": ' + b"9" * 5000 + b"}"),
    ("job of pre-training", "meta.json", b"7"),
    ("job of pre-training", "meta.json", b"\x80"),
    ("job of fine-tuning", "JOB.json", b'{"' + b"x" * 5000 + b'": 1}'),
    ("shards", "train/index.json", b'{"files": 7}'),
    ("shards", "train/index.json", b"\xed\xa0\x80"),
    ("own model", "config.json", b"[]"),
    ("own model", "config.json", b'{"model_type": "gptmill", "n_vocab": 1' + b"0" * 30 + b"}"),
    ("fine-tuned model", "config.json", b'{"head": [1], "model": {}}'),
    ("released model", "params_6.npy", b"\x93NUMPY\x01\x00v\x00{'descr': '<f4'" + b"[" * 200),
    ("rte", "RTE/train.tsv", b"index\tsentence1\tsentence2\tlabel\n" + b"x" * 5000 + b"\n"),
    ("record of the stack", "stack.json", b'{"prefect_url": 1, "mlflow_url": 2, "processes": 3, "layout": 4}'),
]
"""Reader, file and bytes that were a traceback, or pages of text, before they were found."""


@pytest.mark.parametrize(("name", "file", "data"), KNOWN, ids=lambda value: value if isinstance(value, str) else "")
def test_what_was_found_once_is_one_line_now(
    name: str, file: str, data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPTMILL_HOME", str(tmp_path))
    READERS[name].write(tmp_path)
    assert (tmp_path / file).is_file()
    (tmp_path / file).write_bytes(data)
    with pytest.raises(InputError) as refused:
        READERS[name].read(tmp_path)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 3000
