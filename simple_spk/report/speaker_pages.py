"""Pages about speakers: the timeline of a conversation, and recordings sorted by speaker."""

import base64
import hashlib
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

from simple_spk.report.page import FOLDER, rendered


def timeline_page(conversation: dict[str, Any], recording: Path, page: Path) -> str:
    """A page with a lane per speaker; it plays the recording, which stays in its own file.

    conversation: plain data of ``Conversation.plain``.
    """
    script = (FOLDER / "timeline.js").read_text(encoding="utf-8")
    numbers = {one["speaker"]: n for n, one in enumerate(conversation["speakers"])}
    lanes: list[list[dict[str, Any]]] = [[] for _ in numbers]
    for turn in conversation["turns"]:
        lanes[numbers[turn["speaker"]]].append(turn)
    return rendered(
        "timeline.html.j2",
        title=f"Who speaks when: {recording.name}",
        found=conversation,
        lanes=lanes,
        numbers=numbers,
        total=sum(one["seconds"] for one in conversation["speakers"]),
        address=_address(recording, page),
        script=script,
        hash=_hash(script),
        clock=clock,
    )


def clusters_page(groups: list[dict[str, Any]], page: Path, facts: dict[str, str]) -> str:
    """A page with the recordings of each speaker, and the doubtful ones first.

    groups: a speaker and its recordings, each with its id, path, evidence and other speaker.
    """
    for group in groups:
        for one in group["recordings"]:
            one["address"] = _address(Path(one["path"]), page)
    doubtful = [
        {**one, "speaker": group["speaker"]}
        for group in groups
        for one in group["recordings"]
        if one["doubtful"]
    ]
    doubtful.sort(key=lambda one: one["evidence"])
    return rendered(
        "clusters.html.j2", title="Recordings by speaker", groups=groups, doubtful=doubtful,
        facts_shown=facts,
    )  # fmt: skip


def clock(seconds: float) -> str:
    """Minutes and seconds, with hours where there are some.

    >>> clock(65.4), clock(3725.0)
    ('1:05', '1:02:05')
    """
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _address(file: Path, page: Path) -> str:
    """The address of a file relative to a page, so that both can be moved together."""
    try:
        relative = os.path.relpath(file.absolute(), page.absolute().parent)
    except ValueError:  # on another drive of Windows
        return file.absolute().as_uri()
    return quote(Path(relative).as_posix(), errors="surrogateescape")


def _hash(script: str) -> str:
    """The hash by which a browser allows this script and no other."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
