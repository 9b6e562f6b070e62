"""A stand-in for a training job that does what its JOB.json says: `python -m tests.tasks.fake_job JOB.json`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SLEEPER = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(300)"


def main(job: dict[str, Any], workspace: Path) -> int:
    stop: list[int] = []
    if job.get("faithful"):  # it ends with its parent, as real ones do
        from gptcore.machine.process import die_with_parent

        signal.signal(signal.SIGTERM, lambda number, frame: None)  # noted properly by what follows
        die_with_parent()
    if job.get("ignore_sigterm"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda number, frame: stop.append(number))
    if job.get("grandchild"):
        child = subprocess.Popen([sys.executable, "-c", SLEEPER])
        (workspace / "grandchild.pid").write_text(str(child.pid))
    (workspace / "job.pid").write_text(str(os.getpid()))
    print(job.get("say", ""), file=sys.stderr, flush=True)
    with open(workspace / "metrics.jsonl", "a") as metrics:
        for step in range(job.get("steps", 0)):
            metrics.write(
                json.dumps({"step": step, "time": time.time(), "metrics": {"train/loss": 1 / (step + 1)}}) + "\n"
            )
            metrics.flush()
        deadline = time.monotonic() + job.get("seconds", 0)
        while time.monotonic() < deadline and not stop:
            time.sleep(0.02)
        metrics.write(job.get("half_line", ""))
    if stop:
        (workspace / "checkpoint").write_text("saved")
        return 75
    if "signal" in job:
        os.kill(os.getpid(), job["signal"])
    if job.get("result", True):
        (workspace / "result.json").write_text(json.dumps({"steps": job.get("steps", 0)}))
    return int(job.get("code", 0))


if __name__ == "__main__":
    path = Path(sys.argv[1])
    sys.exit(main(json.loads(path.read_text()), path.parent))
