"""What the product does on a GPU: is it right, does everything run, how fast, where does the time go.

    infra/gpu-trial OUT [--rehearse] [--data FOLDER] [--minutes N]

Each part of trial.toml is a process with a time limit; what it finds is in OUT/results.jsonl at once, so that the
rest may fail. OUT then has results.jsonl, table.md, log.txt, profile.txt and books.jsonl. FOLDER: token shards to
pre-train on; its tasks/NAME: encoded rows to fine-tune on. No Prefect, MLflow, spaCy, ftfy or network is needed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gptcore.base.tables import read_table


def table(out: Path) -> str:
    """The findings as Markdown."""
    rows = map(json.loads, (out / "results.jsonl").read_text(encoding="utf-8").splitlines())
    lines = [f"| {row['part']} | {row['what']} | {row['found']} |".replace("\n", " ") for row in rows]
    return "\n".join(["| part | what | found |", "|---|---|---|", *lines]) + "\n"


def main() -> int:
    """0 where every part came to its end, else 1."""
    parser = argparse.ArgumentParser(prog="infra/gpu-trial", description="What the product does on a GPU.")
    parser.add_argument("out", type=Path, help="folder for the results")
    parser.add_argument("--rehearse", action="store_true", help="the same in small, on a CPU, too")
    parser.add_argument("--data", type=Path, help="token shards to pre-train on; left out: a generated world's")
    parser.add_argument("--minutes", type=float, default=9.0, help="for all of it (9)")
    parser.add_argument("--parts", help="only these, as in trial.toml, with commas; jobs need the part world")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    end, failed = time.time() + 60 * asked.minutes - 5, False
    with tempfile.TemporaryDirectory(prefix="gptmill-gpu-") as work, (asked.out / "log.txt").open("w") as log:
        for part, most in read_table(__file__, "trial.toml")["seconds"].items():
            began, status = time.time(), "LEFT OUT, no time was left"
            if asked.parts and part not in asked.parts.split(","):
                continue
            if (seconds := min(1000 if asked.rehearse else most, end - began)) > 1:
                given = {"out": asked.out, "work": work, "data": asked.data, "end": began + seconds}
                settings = json.dumps({**given, "small": asked.rehearse, "part": part}, default=str)
                command = [sys.executable, "-m", "tests.trials.gpu.parts", settings]
                child = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
                try:
                    status = "done" if (code := child.wait(seconds)) == 0 else f"FAILED, exit code {code}"
                except subprocess.TimeoutExpired:
                    status = f"CUT OFF after {seconds:.0f} s"
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)  # with the jobs that it started
            failed |= status != "done"
            line = {"part": part, "what": "all of it", "found": f"{status}, {time.time() - began:.0f} s"}
            with (asked.out / "results.jsonl").open("a", encoding="utf-8") as results:
                print(json.dumps(line), file=results)
            print(f"{part}: {line['found']}", file=sys.stderr, flush=True)
    (asked.out / "table.md").write_text(table(asked.out), encoding="utf-8")
    print(table(asked.out))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
