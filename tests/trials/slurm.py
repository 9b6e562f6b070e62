"""Training as jobs of a real Slurm: a cluster of two nodes on this machine, and what becomes of jobs on it.

    python -m tests.trials.slurm [--only scancel,killed] [--folder FOLDER]

Needs Slurm's daemons (Debian: apt-get install slurmctld slurmd slurm-client munge) and, for slurmd, root. munged,
slurmctld and two slurmd listen on 127.0.0.1 with their keys, ports and state in a temporary folder, and are ended
at the end. Each trial runs `gptmill pretrain` on a small generated world with GPTMILL_JOBS=slurm; its row says what
was done to it, how its jobs ended, and whether its weights are those of an undisturbed child process, bit for bit.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from string import Template

from tests.trials import scenarios
from tests.trials.scenarios import free_ports, make_world, of_world, small, started, wait

_SETTINGS = small(2000, batch_size=8) | {"model": {"n_ctx": 32, "n_layer": 2, "n_head": 2, "n_embd": 32, "n_inner": 64}}
_START_SECONDS = 60.0
_STAGE_SECONDS = 1800.0  # a busy machine takes its time


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[dict[str, str]]:
    """A cluster of the nodes n1 and n2 while the ``with`` block runs; gives the environment of its clients."""
    folder.mkdir()
    folder.chmod(0o755)  # munged's clients must be able to go through
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(1024))
    key.chmod(0o400)
    for name in ("state", "n1", "n2"):
        (folder / name).mkdir()
    controller, *nodes = free_ports(3)
    host = socket.gethostname().partition(".")[0]
    text = Path(__file__).with_name("slurm.conf").read_text(encoding="utf-8")
    values = {"host": host, "controller": controller, "folder": folder, "cpus": os.cpu_count()}
    values |= {f"port{number}": port for number, port in enumerate(nodes, 1)}
    configuration = folder / "slurm.conf"
    configuration.write_text(Template(text).substitute(values), encoding="utf-8")
    environment = {**os.environ, "SLURM_CONF": str(configuration)}
    names = {"socket": "socket", "pid-file": "pid", "log-file": "log"}
    files = [f"--{option}={folder / f'munge.{name}'}" for option, name in names.items()]
    files += [f"--key-file={key}", f"--seed-file={folder / 'munge.seed'}"]
    daemons: list[subprocess.Popen[bytes]] = []

    def start(name: str, *command: str) -> None:
        daemons.append(started(command, folder / f"{name}.out", environment, start_new_session=True))

    try:
        start("munged", "/usr/sbin/munged", "--force", "--foreground", *files)
        _until((folder / "munge.socket").exists, "munged")
        start("slurmctld", "/usr/sbin/slurmctld", "-D", "-c", "-f", str(configuration))
        for node in ("n1", "n2"):
            start(node, "/usr/sbin/slurmd", "-D", "-N", node, "-f", str(configuration))
        _until(lambda: _said(environment, "sinfo", "-h", "-o", "%D %t") == "2 idle", "the nodes")
        yield environment
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)  # a second one would leave daemons behind
        with contextlib.suppress(
            subprocess.TimeoutExpired, TimeoutError
        ):  # the controller itself may be the one that is stuck
            subprocess.run(["scancel", "--user=root"], env=environment, check=False, capture_output=True, timeout=20)
            _until(lambda: not _said(environment, "squeue", "--noheader"), "the end of all jobs")  # after KillWait
        for daemon in reversed(daemons):
            daemon.terminate()
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


@dataclass
class Trial:
    """`gptmill pretrain` in a store that has shards only."""

    folder: Path
    world: Path
    environment: dict[str, str]
    nproc: int = 1
    place: str = "slurm"
    happened: list[str] = field(default_factory=list)
    commands: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self) -> subprocess.Popen[bytes]:
        """The command as a person would give it."""
        slurm = {name: value for name, value in self.environment.items() if value != os.environ.get(name)}
        environment = scenarios.environment(self.folder / "home", {**slurm, "GPTMILL_JOBS": self.place})
        command = [sys.executable, "-m", "flows.cli", "pretrain", "--preset", "demo", "--nproc", str(self.nproc)]
        command += ["--config", str(self.world / "settings.toml"), "--store", str(self.folder / "store")]
        self.commands.append(started(command, self.folder / "out.txt", environment, process_group=0))
        return self.commands[-1]

    def end(self) -> None:
        """Kill the commands that still run: the trial broke down, or was told to end."""
        for process in self.commands:
            process.kill()
            process.wait()

    def said(self, *command: str) -> str:
        """What a client of Slurm prints."""
        return _said(self.environment, *command)

    def jobs(self) -> list[str]:
        """Ids of the jobs that wait or run."""
        return self.said("squeue", "--noheader", "--format=%A").split()

    def wait_for_steps(self, more: int = 1) -> None:
        """Until the job has come to its next steps."""
        _until(lambda: self._steps() >= more, "the job's steps", _STAGE_SECONDS)

    def ended(self, process: subprocess.Popen[bytes]) -> None:
        """Wait for the command and note how it ended; one that does not is killed."""
        try:
            self.happened.append(f"exit code {process.wait(_STAGE_SECONDS)}")
        except subprocess.TimeoutExpired:
            process.kill()
            raise

    def weights(self) -> bytes:
        """The bytes of the finished model."""
        (path,) = (self.folder / "store").glob("pretrain/*/model/model.safetensors")
        return path.read_bytes()

    def _steps(self) -> int:
        return sum(
            len(path.read_text().splitlines()) for path in self.folder.glob("store/.work/pretrain/*/metrics.jsonl")
        )


def undisturbed(trial: Trial) -> None:
    """nothing"""
    trial.ended(trial.start())


def cancelled(trial: Trial) -> None:
    """scancel by somebody else; the command tries again by itself"""
    process = trial.start()
    trial.wait_for_steps()
    subprocess.run(["scancel", *trial.jobs()], env=trial.environment, check=True)
    trial.ended(process)


def terminated(trial: Trial) -> None:
    """SIGTERM to the command; the same command again"""
    process = trial.start()
    trial.wait_for_steps()
    process.terminate()
    trial.ended(process)
    trial.happened.append(f"{len(trial.jobs())} jobs left")
    trial.ended(trial.start())


def killed(trial: Trial) -> None:
    """kill -9 of the command; the same command again"""
    process = trial.start()
    trial.wait_for_steps()
    process.kill()
    trial.ended(process)
    left = trial.jobs()
    again = trial.start()
    time.sleep(8)
    trial.happened.append(
        f"job {','.join(left)} ran on, after 8 s of the second call there is {','.join(trial.jobs())}"
    )
    trial.ended(again)


def queued(trial: Trial) -> None:
    """no node is free until the command has said that it waits"""
    hold = trial.said("sbatch", "--parsable", "--exclusive", "--nodes=2", "--output=/dev/null", "--wrap=sleep 600")
    trial.place += " --exclusive"
    process = trial.start()
    words = "waiting in the queue"
    _until(lambda: words in (trial.folder / "out.txt").read_text(), repr(words), _STAGE_SECONDS)
    trial.happened.append(f"it said {words!r}")
    trial.said("scancel", hold)
    trial.ended(process)


def failed_node(trial: Trial) -> None:
    """a node fails under the job; the command tries again by itself"""
    process = trial.start()
    trial.wait_for_steps()
    node = trial.said("squeue", "--noheader", "--format=%N")
    trial.said("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=trial")
    time.sleep(2)
    trial.said("scontrol", "update", f"NodeName={node}", "State=IDLE")
    trial.ended(process)


TRIALS: dict[str, tuple[Callable[[Trial], None], int]] = {
    "undisturbed": (undisturbed, 1),
    "scancel": (cancelled, 1),
    "terminated": (terminated, 1),
    "killed": (killed, 1),
    "queued": (queued, 1),
    "node failure": (failed_node, 1),
    "two nodes": (undisturbed, 2),
    "two nodes scancel": (cancelled, 2),
    "two nodes killed": (killed, 2),
}
"""Name -> what is done to the command, and its processes: one a node."""


def main() -> None:
    """All trials, one after the other; a row is printed as it is known."""
    parser = scenarios.options(__doc__)  # SIGTERM is an exception: the daemons are ended
    parser.add_argument("--only", default=",".join(TRIALS), help="of: %(default)s")
    parser.add_argument("--folder", help="keep the trials' output there (a new folder)")
    given = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("tests.trials.slurm: slurmd has to run as root")
    root = Path(given.folder or tempfile.mkdtemp(prefix="gptmill-slurm-")).absolute()
    root.mkdir(parents=True, exist_ok=True)
    world = root / "world"
    names = given.only.split(",")
    _prepare(world)
    expected = {nproc: _reference(root, world, nproc) for nproc in sorted({TRIALS[name][1] for name in names})}
    scenarios.heading("trial", "what was done", "what happened", "Slurm's jobs", "weights")
    failed = False
    with cluster(root / "slurm") as environment:
        print(f"<!-- {_said(environment, 'sinfo', '--version')} -->", flush=True)
        for name in names:
            act, nproc = TRIALS[name]
            trial = _trial(root / name.replace(" ", "-"), world, environment, nproc)
            before = _last_job(environment)
            try:
                act(trial)
            finally:
                trial.end()
            jobs = [_outcome(environment, number) for number in range(before + 1, _last_job(environment) + 1)]
            equal = trial.weights() == expected[nproc]
            failed |= not equal
            words = "equal bits" if equal else "DIFFERENT"
            scenarios.row(name, act.__doc__, "; ".join(trial.happened), ", ".join(jobs), words)
    sys.exit(int(failed))


def _prepare(world: Path) -> None:
    """The generated world, its settings, and a store with everything up to the shards."""
    make_world(world, _SETTINGS)
    command = [sys.executable, "-m", "flows.cli", "pipeline", "--preset", "demo", "--tasks", "rte", "--seeds", "1"]
    command += of_world(world, world / "store")
    if code := started(command, world / "out.txt", {**os.environ, "GPTMILL_HOME": str(world / "home")}).wait():
        sys.exit(f"the pipeline before the trials ended with exit code {code}; see {world / 'out.txt'}")
    for stage in ("pretrain", "finetune"):
        shutil.rmtree(world / "store" / stage)


def _trial(folder: Path, world: Path, environment: dict[str, str], nproc: int) -> Trial:
    folder.mkdir()
    shutil.copytree(world / "store", folder / "store")
    shutil.copytree(world / "home", folder / "home")
    cores = max(1, (os.cpu_count() or 1) // nproc)  # as the reference's processes have: other threads are other bits
    return Trial(folder, world, environment, nproc, f"slurm --ntasks-per-node=1 --cpus-per-task={cores}")


def _reference(root: Path, world: Path, nproc: int) -> bytes:
    """The weights that child processes of this machine come to."""
    trial = _trial(root / f"reference-{nproc}", world, dict(os.environ), nproc)
    trial.place = ""
    try:
        undisturbed(trial)
    finally:
        trial.end()
    return trial.weights()


def _last_job(environment: dict[str, str]) -> int:
    numbers = [
        word.partition("=")[2]
        for word in _said(environment, "scontrol", "show", "job", "-o").split()
        if word.startswith("JobId=")
    ]
    return max(map(int, numbers), default=0)


def _outcome(environment: dict[str, str], number: int) -> str:
    fields = dict(
        word.partition("=")[::2] for word in _said(environment, "scontrol", "show", "job", "-o", str(number)).split()
    )
    return f"{number} {fields['JobState']} {fields['ExitCode']} on {fields['NodeList']}"


def _said(environment: dict[str, str], *command: str) -> str:
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stdout.strip()


def _until(true: Callable[[], bool], what: str, seconds: float = _START_SECONDS) -> None:
    wait(true, what, seconds, pause=0.2)


if __name__ == "__main__":
    main()
