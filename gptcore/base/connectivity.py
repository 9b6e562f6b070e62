"""Whether an address can be used, asked before any work: a wrong one is said in a line within seconds.

The client libraries would retry a dead server for minutes, which is right in the middle of a training and wrong before.
"""

from __future__ import annotations

import time
from functools import cache
from typing import Any

from gptcore.base.errors import InputError, without_password

_SECONDS = 3.0
_PAUSE = 0.5


@cache
def require_s3(url: str, option: str) -> None:
    """See that the server behind ``url`` answers, takes our key and shows us the bucket; once a process.

    Addresses of another kind than ``s3://`` pass.

    :param option: where the address was given, ``--store``.
    :raises InputError: the server does not answer, refuses the key, or hides the bucket.
    """
    if not url.startswith("s3://"):
        return
    import fsspec

    files, path = fsspec.core.url_to_fs(url)
    bucket = path.split("/", 1)[0]
    try:
        server = files.s3.meta.endpoint_url
    except Exception as error:  # no address, half a key, a profile that is not there: all in the environment
        raise InputError(f"{option} {url}: cannot be used ({_line(error)}); check AWS_ENDPOINT_URL") from None
    if not answers_at(server):
        where = without_password(server)
        raise InputError(f"{option} {url}: the S3 server {where} does not answer; check AWS_ENDPOINT_URL")
    try:
        files.call_s3("list_objects_v2", Bucket=bucket, MaxKeys=1)
    except PermissionError as error:
        raise InputError(
            f"{option} {url}: permission denied ({_line(error)}); either the key is wrong (AWS_ACCESS_KEY_ID, "
            f"AWS_SECRET_ACCESS_KEY), or it may not use the bucket {bucket}, or there is none of that name"
        ) from None
    except FileNotFoundError:
        raise InputError(f"{option} {url}: found no bucket called {bucket}") from None
    except Exception as error:  # no key at all, a certificate, a region: each client has its own words for it
        raise InputError(f"{option} {url}: cannot be used ({_line(error)})") from None


def answers_at(server: str) -> bool:
    """Whether anything answers at an http(s) address; a refusal is an answer, too."""
    import requests

    for pause in (_PAUSE, 0.0):  # a server that is just starting is given a moment
        try:
            requests.head(server, timeout=_SECONDS, allow_redirects=False)
        except (requests.exceptions.SSLError, requests.exceptions.InvalidSchema):
            return True  # its own client knows which certificates it trusts, and what else it speaks
        except (requests.exceptions.MissingSchema, requests.exceptions.InvalidURL):
            return False
        except requests.exceptions.Timeout:
            return False
        except requests.exceptions.ConnectionError:
            time.sleep(pause)
        else:
            return True
    return False


def _line(error: Any) -> str:
    return without_password(str(error).strip().partition("\n")[0])
