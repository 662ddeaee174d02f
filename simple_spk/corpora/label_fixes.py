"""Corrections of speaker labels: recordings to leave out, and speakers that are one voice."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from simple_spk.corpora.tables import Quarantined, Utterance, read_rows
from simple_spk.corpora.trial_lists import plain_id
from simple_spk.data.text_table import write_table


class LabelFix(NamedTuple):
    """A row: ``drop`` a recording (its ID) of a speaker, or ``merge`` a speaker into another."""

    action: str
    name: str
    speaker: str
    score: str = ""  # what speaks for it; for people
    rank: str = ""


def write_label_fixes(path: str | Path, fixes: Iterable[LabelFix]) -> None:
    """Write corrections as a CSV file, which people may edit."""
    rows = list(fixes)
    write_table(path, {name: [getattr(row, name) for row in rows] for name in LabelFix._fields})


def read_label_fixes(path: str | Path) -> list[LabelFix]:
    """The corrections of a CSV file."""
    fixes = []
    for line, row in read_rows(Path(path), LabelFix._fields[:3]):
        fix = LabelFix(*(row.get(name) or "" for name in LabelFix._fields))
        if fix.action not in ("drop", "merge") or not fix.name or not fix.speaker:
            raise ValueError(
                f"{path}, line {line}: found {fix.action!r}, {fix.name!r}, {fix.speaker!r}; "
                "expected drop or merge, a name and a speaker"
            )
        fixes.append(fix)
    return fixes


def fix_labels(
    utterances: Sequence[Utterance], path: str | Path
) -> tuple[list[Utterance], list[Quarantined]]:
    """The utterances that the corrections in a file leave, with the speakers that they give."""
    fixes = read_label_fixes(path)
    speaker_of_id = {plain_id(one.name): plain_id(one.speaker) for one in utterances}
    speakers = set(speaker_of_id.values())
    dropped = {fix.name for fix in fixes if speaker_of_id.get(fix.name) == fix.speaker}
    dropped &= {fix.name for fix in fixes if fix.action == "drop"}
    merged = _merged(fix for fix in fixes if {fix.name, fix.speaker} <= speakers)
    if fixes and not dropped and not merged:
        raise ValueError(
            f"{path} names none of these {len(utterances)} recordings with their speakers: it was "
            "made of other data"
        )
    kept, faults = [], []
    for one in utterances:
        old = plain_id(one.speaker)
        if plain_id(one.name) in dropped:
            faults.append(Quarantined(one.name, "wrong label", f"is hardly of {old}: see {path}"))
        elif merged.get(old, old) != old:
            # Two accounts are two occasions, even if both call them the first.
            session = f"{old}/{one.session}" if one.session else ""
            kept.append(one._replace(speaker=merged[old], session=session))
        else:
            kept.append(one)
    return kept, faults


def _merged(fixes: Iterable[LabelFix]) -> dict[str, str]:
    """From each speaker of a set that is one voice to the first of the set by name."""
    group_of: dict[str, set[str]] = {}
    for fix in fixes:
        if fix.action == "merge":
            group = group_of.get(fix.name, {fix.name}) | group_of.get(fix.speaker, {fix.speaker})
            group_of |= dict.fromkeys(group, group)
    return {name: min(group) for name, group in group_of.items()}
