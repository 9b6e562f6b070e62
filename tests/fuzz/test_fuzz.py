"""Whatever a file holds, its reader gives a result or one clear line; in bounded time and memory."""

from __future__ import annotations

import logging
import resource
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gptcore.errors import InputError
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
