"""Models by name: a folder here, or one on the Hugging Face Hub."""

import re
from pathlib import Path

from simple_spk.model_folder import CARD, CONFIG, WEIGHTS

_HUB_ID = re.compile(r"(?P<name>\w[\w.-]*/\w[\w.-]*)(@(?P<revision>\w[\w./-]*))?", re.ASCII)


def resolve(model: str | Path) -> Path:
    """The folder of a model: the one named, or the local copy of ``owner/name[@revision]``.

    A folder that exists is preferred. What was fetched once is found again without a network.

    >>> resolve("/some/folder").as_posix()
    '/some/folder'
    """
    folder = Path(model)
    hub_id = _HUB_ID.fullmatch(str(model))
    if hub_id is None or isinstance(model, Path) or folder.exists():
        return folder
    from huggingface_hub import snapshot_download  # slow, and for few

    try:  # nothing else of it is fetched
        fetched = snapshot_download(
            hub_id["name"], revision=hub_id["revision"], allow_patterns=[WEIGHTS, CONFIG, CARD]
        )
    except (OSError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise OSError(
            f"there is no folder {model}, and the Hugging Face Hub did not give such a model "
            f"({reason}): correct the name, or see to the network"
        ) from error
    return Path(fetched)
