"""The paper's models on the hub, and how a file of theirs gets onto this machine."""

from __future__ import annotations

import socket
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies

from longshot.errors import LongshotError, first_line
from longshot.names import HUB

TOKENIZER_REPOSITORY = "NeelNanda/gpt-neox-tokenizer-digits"


def from_hub(name: str, revision: str | None) -> tuple[Path, Path]:
    """The folder of a hub model's files and its tokenizer's path, downloaded if need be."""
    config = hub_file(HUB[name], "config.json", revision)
    commit = config.parent.name
    hub_file(HUB[name], "model_final.pth", commit)
    return config.parent, hub_file(TOKENIZER_REPOSITORY, "tokenizer.json", None)


def hub_file(repository: str, file: str, revision: str | None) -> Path:
    """A file of a hub repository: the copy on this machine, or a download."""
    from huggingface_hub import hf_hub_download, try_to_load_from_cache
    from huggingface_hub.errors import LocalEntryNotFoundError

    unreachable = LongshotError(
        f"{file} of {repository} is not on this machine and the hub cannot be reached: connect to "
        "the network, or give the path of a folder that holds config.json, model_final.pth and "
        "tokenizer.json."
    )
    try:
        cached = try_to_load_from_cache(repository, file, revision=revision)
        if isinstance(cached, str):
            return Path(cached)
        if not hub_has_an_address():
            raise unreachable
        return Path(hf_hub_download(repository, file, revision=revision))
    except LongshotError:
        raise
    except LocalEntryNotFoundError as error:  # their name for a connection that failed
        raise unreachable from error
    except Exception as error:  # the hub client's errors have no common base
        raise LongshotError(
            f"{file} of {repository} could not be fetched from the hub: {first_line(error)}"
        ) from error


def hub_has_an_address() -> bool:
    """Whether the hub's name resolves: without it the client would retry for half a minute."""
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    if getproxies():  # the proxy resolves names for us
        return True
    try:
        return bool(socket.getaddrinfo(urlsplit(constants.ENDPOINT).hostname, None))
    except OSError:
        return False
