"""The full stack from nothing, as its owner lives with it: a schedule, a form, a power cut.

    python -m tests.trials.production [--demo] [--port 4300]

In a fresh state folder: `gptmill up --full`, timed; both servers refuse whoever has no password; a schedule fires the
pipeline, whose store is counted in the bucket and whose runs are counted in PostgreSQL; a fine-tune from the form ends
as a card and a row (`tests.trials.pages`); everything is killed with SIGKILL and comes back with the same leaderboard;
`down --wipe` leaves nothing. Needs what `tests.trials.pages` needs.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from flows.servers.credentials import MLFLOW_DATABASE_PASSWORD, PREFECT_DATABASE_PASSWORD, S3
from tests.trials.scenarios import call, credentials_of, environment, options, output_of, small, toml, wait

_RUN_SECONDS = 1500.0
_ENDED = ["COMPLETED", "FAILED", "CRASHED", "CANCELLED"]


class Trial:
    """One state folder and its ports."""

    def __init__(self, home: Path, port: int) -> None:
        self.home = home
        self.ports = ["--prefect-port", str(port), "--mlflow-port", str(port + 1)]
        self.ports += ["--postgres-port", str(port + 2), "--s3-port", str(port + 10)]
        self.environment = environment(home, {}, ("PREFECT_", "MLFLOW_", "AWS_"))

    def gptmill(self, *arguments: str) -> str:
        """Standard output of a command that must succeed."""
        return output_of("flows.cli", *arguments, variables=self.environment)

    def up(self) -> float:
        """Start the full stack; the seconds until it was healthy."""
        begun = time.monotonic()
        self.gptmill("up", "--full", *self.ports)
        return time.monotonic() - begun

    def pages(self, shots: Path) -> str:
        """Standard output of `tests.trials.pages`, which must find no problem."""
        return output_of("tests.trials.pages", "--shots", str(shots), variables=self.environment)

    def record(self) -> dict[str, Any]:
        return dict(json.loads((self.home / "stack.json").read_text(encoding="utf-8")))

    def load_credentials(self) -> dict[str, str]:
        """Into this process's environment, for what it asks the servers itself."""
        credentials = credentials_of(self.home)
        os.environ.update(credentials)
        return credentials

    def schedule(self, quick: bool, active: bool) -> None:
        """The settings file: the pipeline every minute."""
        form: dict[str, Any] = {"preset": "demo"} | ({"seeds": 1} if quick else {})
        lines = ["[[schedule]]", 'name = "every-minute"', 'cron = "* * * * *"', f"active = {str(active).lower()}"]
        lines += ["[schedule.parameters]", *(f"{name} = {json.dumps(value)}" for name, value in form.items())]
        text = "\n".join(lines) + "\n" + (toml(small(60), "schedule.parameters.overrides.") if quick else "")
        (self.home / "deploy.toml").write_text(text, encoding="utf-8")


def main() -> int:
    """Run it; 0 if all holds."""
    parser = options(__doc__)
    parser.add_argument("--demo", action="store_true", help="the whole demo pipeline (a small one)")
    parser.add_argument("--port", type=int, default=4300, help="the first of the ports that are used (%(default)s)")
    parser.add_argument("--shots", type=Path, default=Path("shots"), help="folder for the screenshots (%(default)s)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gptmill-production-") as folder:
        trial = Trial(Path(folder), given.port)
        try:
            _run(trial, quick=not given.demo, shots=given.shots.absolute())
        finally:
            print(trial.gptmill("down", "--wipe"), end="")
    return 0


def _run(trial: Trial, quick: bool, shots: Path) -> None:
    trial.schedule(quick, active=True)
    print(f"up --full, databases made: healthy after {trial.up():.1f} s")
    assert "already running" in trial.gptmill("up", "--full", *trial.ports)
    credentials = trial.load_credentials()
    mode = (trial.home / "credentials").stat().st_mode & 0o777
    assert mode == 0o600, f"credentials: mode {mode:o}"
    prefect_url = trial.record()["prefect_url"]
    _scheduled_run(prefect_url, [*_ENDED, "RUNNING"])
    trial.schedule(quick, active=False)  # one run is enough
    trial.gptmill("deploy")
    run = _scheduled_run(prefect_url, _ENDED)
    print(f"the schedule's first run: {run['state_type']} {run['name']} ({run['total_run_time']:.0f} s)")
    assert run["state_type"] == "COMPLETED"
    for line in (*_in_bucket(credentials), *_in_databases(trial, credentials)):
        print(line)
    print(trial.pages(shots), end="")
    before = trial.gptmill("leaderboard", "--format", "csv")
    for process in trial.record()["processes"].values():
        os.killpg(process["pid"], signal.SIGKILL)
    print(f"everything killed, up --full again: healthy after {trial.up():.1f} s")
    assert trial.gptmill("leaderboard", "--format", "csv") == before
    print(f"the same leaderboard: {len(before.splitlines())} lines")


def _scheduled_run(prefect_url: str, states: list[str]) -> dict[str, Any]:
    """The first run that the schedule made, once it is in one of ``states``."""
    query = {"flow_runs": {"state": {"type": {"any_": states}}}, "sort": "EXPECTED_START_TIME_ASC"}

    def runs() -> list[dict[str, Any]]:
        return [
            run
            for run in call(f"{prefect_url}/api/flow_runs/filter", query, os.environ.get("PREFECT_API_AUTH_STRING", ""))
            if run["auto_scheduled"]
        ]

    wait(runs, f"a scheduled run that is {' or '.join(states)}", _RUN_SECONDS, pause=2)
    return dict(runs()[0])


def _in_bucket(credentials: dict[str, str]) -> list[str]:
    import s3fs

    files = s3fs.S3FileSystem(key=credentials[S3[1]], secret=credentials[S3[2]], endpoint_url=credentials[S3[0]])
    counts = {folder: len(files.find(f"gptmill/{folder}")) for folder in ("runs", "mlflow")}
    manifests = sum(path.endswith("/manifest.json") for path in files.find("gptmill/runs"))
    assert manifests, "the store in the bucket has no artifact"
    return [f"bucket gptmill: {manifests} artifacts in {counts['runs']} objects; {counts['mlflow']} of MLflow's"]


def _in_databases(trial: Trial, credentials: dict[str, str]) -> list[str]:
    import psycopg2

    lines = []
    passwords = {"prefect": PREFECT_DATABASE_PASSWORD, "mlflow": MLFLOW_DATABASE_PASSWORD}
    for database, tables in {"prefect": ("flow_run", "task_run", "artifact"), "mlflow": ("runs", "metrics")}.items():
        connection = psycopg2.connect(
            host="127.0.0.1",
            port=trial.record()["layout"]["postgres_port"],
            user=database,
            dbname=database,
            password=credentials[passwords[database]],
        )
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'")
            counts = [f"{cursor.fetchone()[0]} tables"]
            for table in tables:
                cursor.execute(f"SELECT count(*) FROM {table}")  # our own names
                counts.append(f"{table} {cursor.fetchone()[0]} rows")
        connection.close()
        assert not any(item.endswith(" 0 rows") for item in counts), f"PostgreSQL, {database}: {counts}"
        lines.append(f"PostgreSQL, database {database}: {', '.join(counts)}")
    return lines


if __name__ == "__main__":
    sys.exit(main())
