"""How a pipeline ends when it is told to: what is printed, what is left, and whether the same command goes on.

    python -m tests.trials.termination [--ways group-TERM,KILL] [--stages pre-training]

Each trial starts `gptmill pipeline` on a small generated world, with a store that holds what comes before a stage,
waits for the stage, sends a signal and looks: seconds until the exit, exit code, lines after the signal, processes left
ten seconds later (every process that inherited the trial's state folder), and the exit code of the same command
afterwards. In the stage `waiting` another process holds the lock of the training, in `retrying` its job was killed and
is about to be started again, and in `committing` the store takes seconds to take over what was made.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from gptcore.base.files import try_lock
from tests.expected import expected
from tests.trials.scenarios import Trial, heading, make_world, options, row, small

_LEFT_SECONDS = 10.0
WAYS: dict[str, tuple[signal.Signals, bool]] = {
    "TERM": (signal.SIGTERM, False),
    "group-TERM": (signal.SIGTERM, True),
    "timeout-TERM": (signal.SIGTERM, True),  # as coreutils' timeout: the process, then its group
    "group-INT": (signal.SIGINT, True),
    "KILL": (signal.SIGKILL, False),
}
"""Name -> the signal, and whether the whole process group gets it."""


def locks(trial: Trial) -> list[Path]:
    """The files that who trains holds locked."""
    return [path for path in trial.stored(".locks/pretrain-*") if "." not in path.name]


def was_killed(trial: Trial) -> bool:
    """Whether its end has been seen; kills it once."""
    if b"is tried again" in (trial.folder / "err.txt").read_bytes():
        return True
    if trial.stored(".work/pretrain/*/metrics.jsonl") and not (trial.folder / "killed").exists():
        (trial.folder / "killed").touch()
        for pid in (pid for pid, words in trial.processes().items() if "gptcore.training.pretrain" in words):
            os.kill(pid, signal.SIGKILL)
    return False


_NOT_YET: dict[str, list[str]] = expected(__file__, "_NOT_YET")
"""Stage -> the parts of a finished store that a trial of it begins without."""
STAGES: dict[str, Callable[[Trial], bool]] = {
    "import": lambda trial: bool(trial.processes()),
    "start-up": lambda trial: trial.has("temporary_server"),
    "corpus": lambda trial: trial.has("multiprocessing.spawn") and not trial.stored("corpus/*"),
    "pre-training": lambda trial: bool(trial.stored(".work/pretrain/*/metrics.jsonl")),
    "fine-tuning": lambda trial: bool(trial.stored(".work/finetune/*/metrics.jsonl")),
    "report": lambda trial: len(trial.stored("finetune/*/manifest.json")) == 2 and not trial.has("gptcore.training"),
    "exit": lambda trial: b"pre-trained" in (trial.folder / "out.txt").read_bytes(),
    "waiting": lambda trial: any(map(trial.has_open, locks(trial))),
    "retrying": was_killed,
    "committing": lambda trial: (trial.home / "committing").exists(),
}
"""Name -> how to see that the command has come to that stage."""
_LATER = {"import": 0.3, "start-up": 1.0, "corpus": 0.3, "pre-training": 0.5, "fine-tuning": 1.0}  # seconds


_SLOWLY = """
import os, pathlib, time
from tasks.store.shelf import LocalShelf
publish = LocalShelf.publish
def slowly(self, workspace, manifest):
    if manifest["stage"] == "pretrain":
        pathlib.Path(os.environ["GPTMILL_HOME"], "committing").touch()
        time.sleep(4)
    return publish(self, workspace, manifest)
LocalShelf.publish = slowly
import sys
from flows.cli.main import main
sys.exit(main())
"""
"""The program, whose store is as slow as one behind a network."""


def run(trial: Trial, stage: str, way: str) -> list[str]:
    """The trial's row of the table."""
    number, group = WAYS[way]
    with ExitStack() as others:
        for path in locks(trial) if stage == "waiting" else ():
            try_lock(others.enter_context(open(path, "a")))
        process = trial.start(*(("-c", _SLOWLY) if stage == "committing" else ()))
        while not STAGES[stage](trial):
            if process.poll() is not None:
                return [stage, way, "-", str(process.returncode), "ended before the stage came", "", ""]
            time.sleep(0.01)
        time.sleep(_LATER.get(stage, 0.0))
        before = (trial.folder / "err.txt").stat().st_size
        started = time.monotonic()
        if way == "timeout-TERM":
            os.kill(process.pid, number)
        (os.killpg if group else os.kill)(process.pid, number)
        code = process.wait(300)
        seconds = time.monotonic() - started
    time.sleep(max(0.0, _LEFT_SECONDS - seconds if way == "KILL" else _LEFT_SECONDS))
    left = [" ".join(words.split()[:4])[-60:] for words in trial.processes().values()]
    said = (trial.folder / "err.txt").read_bytes()[before:].decode(errors="replace").splitlines()
    (trial.folder / f"said-{stage}-{way}.txt").write_text("\n".join(said))
    lines = [line for line in said if line.startswith("gptmill:")]
    bad = [line for line in said if "Traceback" in line or "Error" in line]
    saved = len(trial.stored(".work/*/*/checkpoints/step-*/manifest.json"))
    again = trial.start().wait(600)
    words = f"{len(said)} lines, {len(bad)} of errors; {'; '.join(lines)}"
    return [stage, way, f"{seconds:.1f}", str(code), words, str(saved), ", ".join(left) or "nothing", str(again)]


def main() -> None:
    """All trials, one after the other; a row is printed as it is known."""
    parser = options(__doc__)
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--stages", default=",".join(STAGES))
    parser.add_argument("--folder", help="keep the trials' output there")
    given = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a shell's background, and so by children
    root = Path(given.folder or tempfile.mkdtemp(prefix="gptmill-manners-"))
    world = root / "world"
    make_world(world, small(1500, 60, eval_every=500))
    finished = Trial(root / "finished", world)
    if not finished.folder.exists() and (code := finished.start().wait()):
        sys.exit(f"the undisturbed run ended with exit code {code}; see {finished.folder / 'err.txt'}")
    heading("stage", "signal", "seconds", "exit code", "said after it", "checkpoints", "left after 10 s", "again")
    for stage in given.stages.split(","):
        for way in given.ways.split(","):
            folder = root / f"{stage}-{way}"
            shutil.rmtree(folder, ignore_errors=True)
            trial = Trial(folder, world)
            trial.begin_with(finished, _NOT_YET[stage])
            if stage != "start-up":  # there the first start of all, which takes longest
                shutil.copytree(finished.home, trial.home)
            Path(trial.store, ".locks").mkdir()
            for path in locks(finished):  # of the trainings that a trial will make
                Path(trial.store, ".locks", path.name).touch()
            row(*run(trial, stage, way))
            shutil.rmtree(folder / "store")


if __name__ == "__main__":
    main()
