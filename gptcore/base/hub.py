"""The Hugging Face hub as a place where models go: ``hf://ORG/NAME``, or a branch of it, ``hf://ORG/NAME@BRANCH``.

Its library finds the token, in the environment or where its own login keeps it; it is neither asked for nor shown here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from gptcore.base.errors import InputError, require

_ADDRESS = re.compile(r"hf://([\w-][\w.-]*/[\w-][\w.-]*)(?:@([\w-][\w./-]*))?")


@dataclass(frozen=True)
class HubModel:
    """A repository of a model, and a branch of it."""

    address: str
    name: str
    branch: str | None

    @classmethod
    def at(cls, address: str) -> HubModel:
        """The model at an address, once it is sure that it can be written.

        :raises InputError: no such address, the library is not installed, or it finds no token.
        """
        found = _ADDRESS.fullmatch(address)
        if found is None:
            raise InputError(f"--push: found {address!r}, expected hf://ORG/NAME or hf://ORG/NAME@BRANCH")
        try:
            from huggingface_hub import get_token
        except ImportError:
            raise InputError("--push: found no package huggingface_hub, expected pip install 'gptmill[hf]'") from None
        require(get_token(), "--push: found no token of the hub, expected HF_TOKEN in the environment or hf auth login")
        return cls(address, *found.groups())

    def push(self, folder: Path) -> str:
        """Upload a folder as one commit, into a repository and a branch that are made where they are not there.

        :return: the commit's page.
        :raises ConnectionError: the hub does not answer, or refuses.
        """
        import httpx
        from huggingface_hub import HfApi
        from huggingface_hub.errors import HfHubHTTPError

        api = HfApi()
        try:
            api.create_repo(self.name, exist_ok=True)
            if self.branch is not None:
                api.create_branch(self.name, branch=self.branch, exist_ok=True)
            done = api.upload_folder(
                repo_id=self.name, folder_path=folder, revision=self.branch, commit_message="Exported by gptmill"
            )
        except (HfHubHTTPError, httpx.HTTPError) as error:
            raise ConnectionError(f"--push {self.address}: {str(error).strip().splitlines()[0]}") from None
        return str(done.commit_url)
