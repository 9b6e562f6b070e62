"""Secrets planted in the environment and in addresses, then looked for in every byte.

    python -m tests.trials.planted FOLDER

Runs a small pipeline and commands that fail, with --verbose and --debug, and searches what they print, their state
folder (MLflow's and Prefect's databases, logs, artifacts, cards), the store, and the command lines of their processes.
Exit code 1: a secret was found somewhere.
"""

from __future__ import annotations

import base64
import os
import secrets
import sys
import threading
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import psutil

from tests.trials.scenarios import started

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "HF_TOKEN", "SLACK_WEBHOOK_URL", "SOMEBODYS_PASSWORD")
LOGINS = ("PREFECT_API_AUTH_STRING", "PREFECT_SERVER_API_AUTH_STRING", "MLFLOW_TRACKING_PASSWORD")


def main(folder: Path) -> int:
    """Plant, run, search; the exit code."""
    folder.mkdir(parents=True)
    planted = {name: f"planted-{secrets.token_hex(12)}" for name in (*NAMES, *LOGINS, "address")}
    planted[LOGINS[1]] = planted[LOGINS[0]]  # the temporary server's own
    address = f"http://user:{planted['address']}@127.0.0.1:9"
    values = {name: value for name, value in planted.items() if name != "address"}
    values |= {name: f"admin:{planted[name]}" for name in LOGINS[:2]}
    values["SLACK_WEBHOOK_URL"] = f"https://hooks.example.com/services/{planted['SLACK_WEBHOOK_URL']}"
    environment = {**os.environ, **values, "GPTMILL_HOME": str(folder / "home"), "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}
    store = ["--store", str(folder / "store")]
    pipeline = ["pipeline", "--config", str(ROOT / "infra" / "short-demo.toml"), "--tasks", "rte", *store]
    tracker = {"MLFLOW_TRACKING_URI": address}
    database = {"MLFLOW_TRACKING_URI": f"postgresql://user:{planted['address']}@127.0.0.1:9/mlflow"}
    server = {"PREFECT_API_URL": f"{address}/api"}
    runs: list[tuple[list[str], dict[str, str], int]] = [
        ([*pipeline, "--verbose"], {}, 0),
        (["--debug", *pipeline], tracker, 2),
        (["--debug", *pipeline, "--verbose"], database, 2),
        (["--debug", *pipeline, "--verbose"], server, 2),
        (["--debug", "pipeline", "--store", f"{address}/store"], {}, 2),
        (["--debug", "pipeline", "--corpus", f"{address}/books", *store, "--verbose"], {}, 2),
        (["--debug", "datasets", "--datasets", f"{address}/data"], {}, 2),
        (["--debug", "datasets", "get", "rte", "--to", str(folder / "data"), "--mirror", address], {}, 1),
        (["gc", *store, "--older-than", "0"], {}, 0),
        (["leaderboard", "--format", "csv"], {}, 0),
    ]
    seen = 0
    for number, (arguments, more, expected) in enumerate(runs):
        code = _run(arguments, {**environment, **more}, folder / f"output-{number}.txt", folder / "command-lines.txt")
        seen += code == expected
        shown = " ".join(arguments).replace(planted["address"], "***")
        print(f"{'as expected' if code == expected else 'NOT as expected'}: exit code {code}: {shown}"[:150])
    found = [(name, path) for path in _files(folder) for name in _named(path, planted)]
    for name, path in found:
        print(f"FOUND the secret {name} in {path}")
    total = sum(path.stat().st_size for path in _files(folder))
    print(
        f"{len(set(planted.values()))} secrets, {len(runs)} commands ({seen} as expected), "
        f"{len(_files(folder))} files of {total / 1e6:.1f} MB searched: found {len(found)} times"
    )
    return 1 if found or seen < len(runs) else 0


def _run(arguments: list[str], environment: dict[str, str], output: Path, lines: Path) -> int:
    """One command; command lines of it and of all that it starts are written down, without our own arguments."""
    process = started([sys.executable, "-m", "flows.cli", *arguments], output, environment, cwd=ROOT)
    ended = threading.Event()

    def watch() -> None:
        given = set(arguments)
        while not ended.wait(0.05):
            with suppress(psutil.NoSuchProcess), open(lines, "a", encoding="utf-8") as file:
                for child in psutil.Process(process.pid).children(recursive=True):
                    with suppress(psutil.NoSuchProcess):
                        file.write(" ".join(word for word in child.cmdline() if word not in given) + "\n")

    watcher = threading.Thread(target=watch)
    watcher.start()
    code = process.wait()
    ended.set()
    watcher.join()
    return code


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _named(path: Path, planted: dict[str, str]) -> list[str]:
    """The secrets that a file holds, as they are or as addresses and headers write them."""
    data = path.read_bytes()
    spelt = {
        name: (value.encode(), quote(value, safe="").encode(), base64.b64encode(value.encode()).rstrip(b"="))
        for name, value in planted.items()
    }
    return [name for name, forms in spelt.items() if any(form in data for form in forms)]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m tests.trials.planted FOLDER (a new one)")
    sys.exit(main(Path(sys.argv[1])))
