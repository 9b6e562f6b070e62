"""What plugins add is found by their tables: the core names none of them, and a package of others may be one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from flows.plugins import added, named, ordered, part
from gptcore.base.errors import InputError
from tests.packages import ROOT, install, naming, runner


def test_the_core_of_flows_names_no_room_of_the_papers() -> None:
    files = [path for path in (ROOT / "flows").rglob("*") if path.suffix in (".py", ".toml")]
    core = [path for path in files if "papers" not in path.parts and path.parent.name != "flows"]
    core += [path for path in (ROOT / "flows").glob("*.py") if path.name != "__init__.py"]  # which tells former names
    assert len(core) > 60
    room = re.compile(r"\b(flows|tasks|gptcore)[./]papers[./]\w")
    assert [path for path in core if room.search(path.read_text(encoding="utf-8"))] == []


def test_what_a_table_names_is_there() -> None:
    paths = [path for section in ("trainings", "parts") for path in added(section).values()]
    paths += [table["scheduled"] for table in added("deployments").values() if "scheduled" in table]
    assert len(paths) > 3
    assert all(map(named, paths))
    with pytest.raises(InputError, match="tides: found no plugin that has it"):
        part("tides")


def test_what_plugins_add_stands_where_its_table_says() -> None:
    tables = {"late": {"after": "nothing"}, "last": {}, "third": {"after": "second"}, "second": {"after": "first"}}
    assert ordered(["first", "fourth"], tables) == ["first", "second", "third", "fourth", "last", "late"]
    assert ordered(["first"], {"first": {"after": "none"}}) == ["first"], "of equal names the core's counts"


@pytest.mark.timeout(300)
def test_a_plugin_from_outside_goes_the_whole_way(tmp_path: Path, prefect_server: Path) -> None:
    assert naming("toy_plugin", "tides") == []
    install(tmp_path / "site", "gptmill.plugins", "tides", "tests.toy_plugin")
    run = runner(tmp_path, prefect_server)
    listed = re.findall(r"^  ([a-z-]+) ", run("-m", "flows.cli", "--help"), re.MULTILINE)
    assert listed[listed.index("finetune") + 1] == "tides"
    assert "coast whose tides are told (north)" in " ".join(run("-m", "flows.cli", "tides", "--help").split())
    store = ("--store", str(tmp_path / "store"))
    table = run("-m", "flows.cli", "tides", "--coast", "west", *store)
    assert "Tides of a coast" in table
    assert re.search(r"west +\| high", table)
    assert "rte: a new moon" in run("-m", "flows.cli", "predict", "rte", "--by-the-moon", *store)
    offers = "from flows.deployments.catalog import OFFERS; print([offer.name for offer in OFFERS][1:3])"
    assert "['pretrain', 'tides']" in run("-c", offers)
