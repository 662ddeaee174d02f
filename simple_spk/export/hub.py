"""Exported folders on the Hugging Face Hub, where ``Extractor.load("owner/name")`` finds them."""

from pathlib import Path

from simple_spk import __version__

TOKENS = "https://huggingface.co/settings/tokens"


def check_push(name: str) -> None:
    """Raise if nothing can be pushed under a name: it is not owner/name, or there is no token."""
    from huggingface_hub import get_token  # slow to import, and rarely needed
    from huggingface_hub.utils import HFValidationError, validate_repo_id

    try:
        validate_repo_id(name)
        is_name = name.count("/") == 1
    except HFValidationError:
        is_name = False
    if not is_name:
        what = "letters, digits, '-', '_' and '.', such as ann/voices-1"
        raise ValueError(
            f"{name!r} is not a name on the Hugging Face Hub: expected owner/name of {what}"
        )
    if get_token() is None:
        raise ValueError(
            f"no token to push {name} with: make one with write access at {TOKENS}, then run "
            "'hf auth login' or set HF_TOKEN"
        )


def push_folder(folder: Path, name: str, public: bool = False) -> str:
    """Commit the files of a folder to ``owner/name``; the address of the commit.

    A repository that does not exist is made, private unless ``public``; one that exists keeps its
    visibility, and files of other names.
    """
    from huggingface_hub import create_repo, upload_folder
    from huggingface_hub.errors import HTTPError  # of the HTTP library of this version

    try:
        create_repo(name, private=not public, exist_ok=True)
        message = f"Export of simple_spk {__version__}"
        commit = upload_folder(repo_id=name, folder_path=folder, commit_message=message)
    except (OSError, ValueError, HTTPError) as error:
        status = getattr(getattr(error, "response", None), "status_code", None)
        cure = "check the network, and try again"
        if status in (401, 403):
            owner = name.split("/")[0]
            cure = f"use a token with write access to the repositories of {owner} ({TOKENS})"
        elif status is not None:
            cure = "correct what the Hub refuses, or try again later"
        reason = " ".join(str(error).split()) or type(error).__name__
        raise OSError(
            f"{name} was not pushed to the Hugging Face Hub ({reason}): {cure}"
        ) from error
    return str(commit.commit_url)
