"""The full stack's secrets: made once, kept in one file of mode 0600, handed on by environment only.

The file has the form ``KEY=value``, so that ``set -a; . .gptmill/credentials; set +a`` makes a shell, and whatever is
started from it (the AWS, MLflow and Prefect commands too), a client of the stack.
"""

from __future__ import annotations

import secrets
import stat
from collections.abc import Mapping
from pathlib import Path

from gptcore.base.errors import InputError, require
from gptcore.base.files import write_bytes_atomic
from tasks.store.state import state_folder

ADMIN = "admin"
"""The user's name in both servers' log-in."""
PREFECT = ("PREFECT_API_URL", "PREFECT_API_AUTH_STRING")
MLFLOW = ("MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD")
S3 = ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
"""What a client of each server needs."""
POSTGRES_PASSWORD = "GPTMILL_POSTGRES_PASSWORD"  # noqa: S105  # a variable's name, as the next three
PREFECT_DATABASE_PASSWORD = "GPTMILL_PREFECT_DATABASE_PASSWORD"  # noqa: S105
MLFLOW_DATABASE_PASSWORD = "GPTMILL_MLFLOW_DATABASE_PASSWORD"  # noqa: S105
MLFLOW_SECRET_KEY = "MLFLOW_FLASK_SERVER_SECRET_KEY"  # noqa: S105
_SERVERS = (POSTGRES_PASSWORD, PREFECT_DATABASE_PASSWORD, MLFLOW_DATABASE_PASSWORD, MLFLOW_SECRET_KEY)
_NAMES = (*PREFECT, *MLFLOW, *S3, *_SERVERS)
_BYTES = 24  # of randomness in each secret


def credentials_file() -> Path:
    """Where they are; exists from the first `gptmill up --full` to `gptmill down --wipe`."""
    return state_folder() / "credentials"


def ensure_credentials(prefect_url: str, mlflow_url: str, s3_url: str) -> dict[str, str]:
    """The secrets that are there, else new ones, with the addresses that hold from now on.

    :raises InputError: the file is none of ours, or others can read it.
    """
    if credentials_file().exists():
        there = read_credentials()
    else:
        there = {name: secrets.token_hex(_BYTES) for name in (MLFLOW[2], S3[2], *_SERVERS)}
        there |= {PREFECT[1]: f"{ADMIN}:{secrets.token_hex(_BYTES)}", MLFLOW[1]: ADMIN}
        there[S3[1]] = f"gptmill-{secrets.token_hex(4)}"
    addresses = {PREFECT[0]: f"{prefect_url}/api", MLFLOW[0]: mlflow_url, S3[0]: s3_url}
    credentials = {name: {**there, **addresses}[name] for name in _NAMES}
    path = credentials_file()
    lines = [f"# gptmill's full stack; for a shell: set -a; . {path}; set +a", *map("=".join, credentials.items())]
    write_bytes_atomic(path, ("\n".join(lines) + "\n").encode(), mode=0o600)
    return credentials


def read_credentials() -> dict[str, str]:
    """Every variable of the file.

    :raises InputError: there is no such file, others can read it, or it lacks a variable.
    """
    path = credentials_file()
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path}: cannot be read ({reason}); put the file back, or gptmill down --wipe") from None
    require(not mode & 0o077, f"{path}: others may read it (mode {mode:03o}), expected 600; run chmod 600 {path}")
    credentials = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    if missing := [name for name in _NAMES if not credentials.get(name)]:
        raise InputError(f"{path}: found no {', '.join(missing)}; put the file back, or gptmill down --wipe")
    return credentials


def client_environment(credentials: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """What a client is to have beside ``given``, its environment, which goes first.

    A server that the environment names is somebody else's: it does not get our password.
    """
    wanted: dict[str, str] = {}
    for group in (PREFECT, MLFLOW):
        if given.get(group[0], credentials[group[0]]) == credentials[group[0]]:
            wanted |= {name: credentials[name] for name in group}
    if not given.keys() & {"AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ACCESS_KEY_ID", "AWS_PROFILE"}:
        wanted |= {name: credentials[name] for name in S3}
    return {name: value for name, value in wanted.items() if name not in given}
