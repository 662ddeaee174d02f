"""What a check found: a status, the reason in words, the cure, and the files concerned."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path

from simple_spk.io.atomic_file import atomic_write

SHOWN_NAMES = 3


class Status(str, Enum):
    """How a check ended; only PROBLEM makes the exit code 1."""

    OK = "OK"
    NOTE = "NOTE"
    PROBLEM = "PROBLEM"
    NOT_CHECKED = "NOT CHECKED"


@dataclass(frozen=True)
class Finding:
    """The outcome of one check.

    ``topic`` is what was checked (a folder, the installation), ``kind`` a word for this check
    (missing, short, ...), ``names`` all files or lines concerned, ``metrics`` what was measured.
    """

    topic: str
    kind: str
    status: Status
    text: str
    cure: str = ""
    names: Sequence[str] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)


def name_files(
    topic: str, kind: str, names: Sequence[str], what: str, cure: str, bad: Status = Status.PROBLEM
) -> Finding:
    """A finding that is OK if it names nothing, and ``bad`` else."""
    status, metrics = bad if names else Status.OK, {"files": float(len(names))}
    return Finding(topic, kind, status, f"{len(names):,} {what}", cure, tuple(names), metrics)


def not_checked(topic: str, kind: str, why: str) -> Finding:
    """A check that was not made."""
    return Finding(topic, kind, Status.NOT_CHECKED, why)


def is_well(findings: Iterable[Finding]) -> bool:
    """Whether none of the findings is a problem."""
    return all(finding.status is not Status.PROBLEM for finding in findings)


def as_text(findings: Sequence[Finding]) -> str:
    """The findings for people: a heading per topic, a line per check, and a last line for all."""
    lines: list[str] = []
    for number, finding in enumerate(findings):
        if number == 0 or finding.topic != findings[number - 1].topic:
            lines += ["", finding.topic] if lines else [finding.topic]
        lines.append(f"  {finding.status.value:<11} {finding.kind}: {finding.text}")
        if finding.names:
            more = len(finding.names) - SHOWN_NAMES
            tail = f", and {more:,} more" if more > 0 else ""
            lines.append(f"{'':14}{', '.join(finding.names[:SHOWN_NAMES])}{tail}")
        if finding.cure and finding.status is not Status.OK:
            lines.append(f"{'':14}-> {finding.cure}")
    problems = sum(finding.status is Status.PROBLEM for finding in findings)
    lines += ["", f"{problems or 'no'} problem{'' if problems == 1 else 's'}"]
    return "\n".join(lines)


def as_json(findings: Sequence[Finding]) -> str:
    """Everything, with all names, as one JSON object: ``well`` and ``findings``."""
    rows = [asdict(finding) for finding in findings]
    return json.dumps({"well": is_well(findings), "findings": rows}, indent=1)


def write_names(path: Path, findings: Iterable[Finding]) -> None:
    """Write ``kind<tab>name`` for all names of all findings."""
    lines = [f"{finding.kind}\t{name}\n" for finding in findings for name in finding.names]
    with atomic_write(path) as partial:
        partial.write_text("".join(lines), encoding="utf-8", errors="surrogateescape")
