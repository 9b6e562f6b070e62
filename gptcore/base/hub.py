"""The Hugging Face hub as a place where models go: ``hf://ORG/NAME``, or a branch of it, ``hf://ORG/NAME@BRANCH``.

Its library finds the token, in the environment or where its own login keeps it; it is neither asked for nor shown here.
"""

from __future__ import annotations

import re
from pathlib import Path

from gptcore.base.errors import InputError, require

_ADDRESS = re.compile(r"hf://([\w-][\w.-]*/[\w-][\w.-]*)(?:@([\w-][\w./-]*))?")


def require_hub(address: str) -> None:
    """Refuse an address that a folder cannot be uploaded to, before there is one.

    :raises InputError: no such address, the library is not installed, or it finds no token.
    """
    known = _ADDRESS.fullmatch(address)
    require(known, f"--push: found {address!r}, expected hf://ORG/NAME or hf://ORG/NAME@BRANCH")
    try:
        from huggingface_hub import get_token
    except ImportError:
        raise InputError("--push: found no package huggingface_hub, expected pip install 'gptmill[hf]'") from None
    require(get_token(), "--push: found no token of the hub, expected HF_TOKEN in the environment or hf auth login")


def push(folder: Path, address: str) -> str:
    """Upload a folder as one commit, into a repository and a branch that are made where they are not there.

    :param address: one that :func:`require_hub` takes.
    :return: the commit's page.
    :raises ConnectionError: the hub does not answer, or refuses.
    """
    import httpx
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    found, api = _ADDRESS.fullmatch(address), HfApi()
    assert found is not None, "it was looked at"
    name, branch = found.groups()
    try:
        api.create_repo(name, exist_ok=True)
        if branch:
            api.create_branch(name, branch=branch, exist_ok=True)
        done = api.upload_folder(
            repo_id=name, folder_path=folder, revision=branch, commit_message="Exported by gptmill"
        )
    except (HfHubHTTPError, httpx.HTTPError) as error:
        raise ConnectionError(f"--push {address}: {str(error).strip().splitlines()[0]}") from None
    return str(done.commit_url)
