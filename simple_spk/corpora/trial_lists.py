"""Trial lists over recordings of known speakers: balanced, using all recordings evenly, repeatable.

100,000 recordings have five billion pairs; only the chosen ones are ever made.
"""

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import quote

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simple_spk.data.trials import Trials
from simple_spk.data.voxceleb_lists import part_of
from simple_spk.io.atomic_file import atomic_write

Rows = NDArray[np.int64]


def make_trials(
    ids: Sequence[str],
    speakers: ArrayLike,
    maximum: int = 20000,
    groups: ArrayLike | None = None,
    seed: int = 0,
    sessions: Sequence[str] | None = None,
    balanced: bool = True,
) -> Trials:
    """As many non-target as target trials, at most ``maximum`` together, in random order.

    No pair occurs twice, in either order, and no recording is compared with itself. Recordings are
    used about equally often, on both sides. ``speakers`` (n,), ``groups`` (n,) and ``sessions``
    (n,) belong to the ``ids``. Non-target trials stay within a group (a gender, a corpus); target
    trials are across the sessions of a speaker where these are known (not ""). If not
    ``balanced``, non-target trials fill up what targets leave. Equal arguments make equal lists.

    >>> trials = make_trials(["a1", "a2", "b1", "b2"], ["a", "a", "b", "b"])
    >>> len(trials), int(trials.is_target.sum())
    (4, 2)
    """
    speaker_of_row = _numbers(speakers)
    group_of_row = np.zeros_like(speaker_of_row) if groups is None else _numbers(groups)
    if not len(ids) == len(speaker_of_row) == len(group_of_row):
        counts = f"{len(ids)} IDs, {len(speaker_of_row)} speakers, {len(group_of_row)} groups"
        raise ValueError(f"{counts}: give one of each per recording")
    if maximum < 2:
        raise ValueError(f"maximum must be at least 2, a target and a non-target, not {maximum}")
    session_of_row = _session_numbers(speaker_of_row, sessions)
    of_one_speaker = _pair_count(speaker_of_row) - _pair_count(session_of_row)
    speaker_in_group = group_of_row * (speaker_of_row.max(initial=0) + 1) + speaker_of_row
    of_two_speakers = _pair_count(group_of_row) - _pair_count(speaker_in_group)
    if of_one_speaker == 0:
        what = "recordings of two sessions" if any(sessions or ()) else "two recordings"
        who = f"none of the {len(set(speaker_of_row.tolist()))} speakers of this list"
        raise ValueError(f"no target trials can be made: {who} has {what}; record more")
    if of_two_speakers == 0:
        where = "" if groups is None else " within one group"
        reason = f"there are no two speakers to compare{where}"
        raise ValueError(f"no non-target trials can be made: {reason}; add speakers to this list")
    wanted = min(maximum // 2, of_one_speaker)
    wanted_others = min(wanted if balanced else maximum - wanted, of_two_speakers)
    wanted = min(wanted, wanted_others) if balanced else wanted
    random = np.random.default_rng(seed)
    targets = _draw_pairs(speaker_of_row, wanted, random, session_of_row)
    others = _draw_pairs(group_of_row, wanted_others, random, speaker_of_row)
    order = random.permutation(wanted + wanted_others)
    pairs = np.concatenate([targets, others], axis=1).T[order]
    rows, first, index = np.unique(pairs, return_index=True, return_inverse=True)
    by_appearance = np.argsort(first)
    place = np.argsort(by_appearance).astype(np.int32)
    enroll, test = place[index].reshape(-1, 2).T.copy()
    return Trials([ids[row] for row in rows[by_appearance]], enroll, test, order < wanted)


def all_pairs(
    ids: Sequence[str],
    speakers: ArrayLike,
    per_speaker: int | None = None,
    groups: ArrayLike | None = None,
    sessions: Sequence[str] | None = None,
) -> Trials:
    """Every pair of recordings, within their groups if there are ``groups`` (n,), but target pairs
    of one session, if there are ``sessions`` (n,); "" is an unknown one.

    With ``per_speaker``, each speaker has as many of them, spread over all that are there.

    >>> len(all_pairs(["a1", "a2", "a3", "b1", "b2"], list("aaabb"), per_speaker=2))
    6
    """
    speaker_of_row = _numbers(speakers)
    session_of_row = _session_numbers(speaker_of_row, sessions)
    kept = spread_over(speaker_of_row, per_speaker)
    enroll, test = np.triu_indices(len(kept), k=1)
    if groups is not None:
        group_of_row = _numbers(groups)[kept]
        together = group_of_row[enroll] == group_of_row[test]
        enroll, test = enroll[together], test[together]
    across = session_of_row[kept][enroll] != session_of_row[kept][test]
    enroll, test = enroll[across], test[across]
    is_target = speaker_of_row[kept][enroll] == speaker_of_row[kept][test]
    if is_target.all() or not is_target.any():
        what = "pairs of one speaker and of two are needed"
        if any(sessions or ()):
            what += ", those of one speaker from two sessions"
        raise ValueError(f"{what}: add speakers or recordings")
    pairs = (enroll.astype(np.int32), test.astype(np.int32))
    return Trials([ids[row] for row in kept], *pairs, is_target)


def spread_over(speakers: ArrayLike, per_speaker: int | None) -> list[int]:
    """The rows of at most ``per_speaker`` recordings of each speaker (n,), spread over all of its.

    >>> spread_over(list("aaaab"), 2)
    [0, 3, 4]
    """
    speaker_of_row = _numbers(speakers)
    order = np.argsort(speaker_of_row, kind="stable")
    kept: list[int] = []
    for rows in np.split(order, np.flatnonzero(np.diff(speaker_of_row[order])) + 1):
        count = len(rows) if per_speaker is None else min(per_speaker, len(rows))
        kept += rows[np.linspace(0, len(rows) - 1, count).round().astype(int)].tolist()
    return kept


def write_trials(path: str | Path, trials: Trials) -> None:
    """Write a labeled list as lines ``0|1 enroll test``, the form of VoxCeleb; whole or not at all.

    A name with a space would be read as two: it is an error.
    """
    path = Path(path)
    if trials.is_target is None:
        raise ValueError(f"{path}: the trials have no labels; a list to evaluate with needs them")
    broken = [name for name in trials.ids if not name or len(name.split()) != 1]
    if broken:
        raise ValueError(
            f"{path}: {len(broken)} names are empty or hold spaces, which separate the fields: "
            f"rename or encode them; the first is {broken[0]!r}"
        )
    enroll = map(trials.ids.__getitem__, trials.enroll.tolist())
    test = map(trials.ids.__getitem__, trials.test.tolist())
    labels = trials.is_target.astype(int).tolist()
    lines = (f"{y} {left} {right}\n" for y, left, right in zip(labels, enroll, test, strict=True))
    with atomic_write(path) as partial, partial.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(lines)


def plain_id(name: str) -> str:
    """A name without whitespace, which separates the fields of trial lists; distinct stay distinct.

    White space, control characters and the percent sign become %XX, as in web addresses.

    >>> plain_id("Jane Doe/take 1.wav"), plain_id("100%/a.wav")
    ('Jane%20Doe/take%201.wav', '100%25/a.wav')
    """
    return re.sub(r"[\s%\x00-\x1f\x7f]", lambda match: quote(match[0], safe=""), name)


def _numbers(names: ArrayLike) -> Rows:
    """Names (n,) as numbers (n,) from 0 on."""
    return np.unique(np.asarray(names), return_inverse=True)[1].reshape(-1)


def _session_numbers(speaker_of_row: Rows, sessions: Sequence[str] | None) -> Rows:
    """The session (n,) of each row by number: one that is not known ("") is a row's own."""
    rows = range(len(speaker_of_row))
    if sessions is None:
        return np.arange(len(speaker_of_row))
    if len(sessions) != len(speaker_of_row):
        raise ValueError(f"{len(sessions)} sessions of {len(speaker_of_row)} recordings")
    keys = ((int(speaker_of_row[row]), sessions[row]) if sessions[row] else row for row in rows)
    number_of: dict[object, int] = {}
    return np.array([number_of.setdefault(key, len(number_of)) for key in keys], dtype=np.int64)


def _pair_count(block_of_row: Rows) -> int:
    """How many pairs of two rows of one block there are."""
    sizes = np.bincount(block_of_row)
    return int((sizes * (sizes - 1) // 2).sum())


def _draw_pairs(
    block_of_row: Rows, wanted: int, random: np.random.Generator, part_of_row: Rows
) -> Rows:
    """Distinct pairs (2, wanted) of rows of one block and of two of its parts.

    The rows of a block are seated around a table in random order. Round d pairs everyone with the
    neighbor d seats on: each sits in two pairs, once on either side, and the rounds up to half the
    table make every pair just once. Rounds are played until there are enough pairs.
    """
    order = np.lexsort((random.random(len(block_of_row)), block_of_row))
    sizes = np.bincount(block_of_row)
    size = sizes[block_of_row[order]]
    start = (np.cumsum(sizes) - sizes)[block_of_row[order]]
    seat = np.arange(len(order)) - start
    rounds: list[Rows] = []
    missing, distance = wanted, 0
    while missing:
        distance += 1
        # At half an even table the second half of the seats would repeat the first half's pairs.
        here = np.flatnonzero((2 * distance < size) | ((2 * distance == size) & (seat < distance)))
        there = start[here] + (seat[here] + distance) % size[here]
        pairs = np.stack([order[here], order[there]])
        differ = np.not_equal(*part_of_row[pairs])
        here, pairs = here[differ], pairs[:, differ]
        if len(here) > missing:
            # Seats in every other stretch of ``distance`` have no partner in common: those first.
            is_later = seat[here] // distance % 2
            chosen = np.lexsort((random.random(len(here)), is_later))[:missing]
            pairs = pairs[:, chosen]
        rounds.append(pairs)
        missing -= pairs.shape[1]
    return np.concatenate(rounds, axis=1)


def choose_recordings(
    ids: Iterable[str], speakers: int = 40, recordings_per_speaker: int = 20
) -> list[str]:
    """IDs (speaker/video/number) to validate with, in alphabetical order; none of Vox1-O.

    The choice follows a hash of the names, so it stays the same wherever it is made, and nearly so
    where recordings are missing. A speaker's recordings are spread over as many videos as can be.
    None are chosen unless two speakers have two videos each.
    """
    of_speaker: defaultdict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for identifier in ids:
        speaker, video, _ = identifier.split("/")
        if part_of(speaker) != "VoxCeleb1 test":  # whose trials are Vox1-O
            of_speaker[speaker][video].append(identifier)
    eligible = [speaker for speaker, videos in of_speaker.items() if len(videos) > 1]
    if len(eligible) < 2:
        return []
    chosen: list[str] = []
    for speaker in sorted(eligible, key=_lot)[:speakers]:
        turns = [
            (turn, _lot(identifier), identifier)
            for recordings in of_speaker[speaker].values()
            for turn, identifier in enumerate(sorted(recordings, key=_lot))
        ]
        chosen += [identifier for *_, identifier in sorted(turns)[:recordings_per_speaker]]
    return sorted(chosen)


def _lot(name: str) -> bytes:
    """A place in an order that has nothing to do with the name's meaning."""
    return hashlib.sha256(name.encode()).digest()


def write_validation_trials(path: Path, ids: Sequence[str]) -> None:
    """Write all pairs of recordings (speaker/video/number) but those of one video: too easy."""
    speakers = [identifier.split("/")[0] for identifier in ids]
    videos = [identifier.rpartition("/")[0] for identifier in ids]
    write_trials(path, all_pairs([plain_id(name) for name in ids], speakers, sessions=videos))
