"""`gptmill verify`: a store's artifacts, byte by byte, and this home's databases; what is damaged is set aside."""

from __future__ import annotations

from rich.filesize import decimal

from tasks.stages.table import STAGES
from tasks.store.sqlite import database_problem
from tasks.store.state import state_folder
from tasks.store.store import Store
from tasks.store.verify import set_aside, verified


class Damaged(RuntimeError):
    """Something is not what was written, and still lies where it is looked for."""


def verify(url: str, repair: bool) -> None:
    """Read all there is, and print a line for each thing that is damaged, or gone though others were made from it.

    :param repair: whether damaged artifacts are set aside, so that the next run makes them again.
    :raises InputError: no such store.
    :raises Damaged: something is damaged and has not been set aside.
    """
    store, size, number, left = Store(url), 0, 0, 0
    for item, problem in verified(store, STAGES):
        number, size = number + (item.kind == "artifact"), size + item.size
        if not problem:
            continue
        print(f"{item.name}: {problem}")
        aside = set_aside(store, item) if repair else ""
        left += not aside
        if aside or not item.path:
            moved = f"set aside in {aside}; " if aside else ""
            print(f"  {moved}made again by {Store.made_by(item.stage, item.manifest)}")
    problems = _databases()
    print("".join(f"{line}\n" for line in problems) + f"{number:,} artifacts read, {decimal(size)}")
    if left:
        hint = "they are gone, or being made right now" if repair else "`gptmill verify --repair` sets them aside"
        raise Damaged(f"{left:,} artifacts of {store.url}; {hint}")
    if problems:
        hint = "`gptmill restore` into another GPTMILL_HOME brings back those of a backup"
        raise Damaged(f"{len(problems)} of the databases; {hint}")


def _databases() -> list[str]:
    home = state_folder()
    paths = [*sorted(home.glob("*.db")), *sorted(home.glob("prefect/*.db"))]
    return [f"{path}: {problem}" for path in paths if (problem := database_problem(path))]
