"""Who speaks when in a recording of any length, which is read twice, block by block.

Speech is found first. Windows of it are embedded and joined by average linkage as long as one
speaker is likelier than two; then every moment is given to a speaker again. Overlapping speech is
not handled.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from simple_spk.data.audio import recording_blocks
from simple_spk.evaluation.quality_measures import SOUND_MEASURES
from simple_spk.inference.batch_embedding import Embed, NoSpeechError, Waveform
from simple_spk.inference.diarization.conversation import Conversation, Turn, read_conversation
from simple_spk.inference.diarization.likeness import CANNOT_COUNT, Items, Likeness, Merges
from simple_spk.inference.diarization.linkage import linked
from simple_spk.inference.diarization.resegmentation import likeness_to, speaker_spans, templates
from simple_spk.inference.diarization.segmentation import (
    Blocks,
    Spans,
    Windows,
    cut_out,
    embed_windows,
    speech_spans,
    windows_of,
)
from simple_spk.inference.model import Model
from simple_spk.inference.speech_quality import QualityMeter, RecordingQuality

# Windows below this length decide nothing: they are given to the speakers that the others show.
SHORTEST_LINKED_SECONDS = 1.0
# Who speaks less is not told from a noise, and counts as the likeliest of the others.
LEAST_SPEAKER_SECONDS = 3.0
MOST_CUTS = 64  # that are compared if the natural number of speakers is not the wanted one
LONGEST_VOICE_SECONDS = 60.0  # of a speaker's longest turns, for a name


class Wanted(NamedTuple):
    """How many speakers there are, as far as it is known."""

    least: int = 1
    most: int | None = None

    @classmethod
    def of(cls, speakers: int | None, least: int | None, most: int | None) -> "Wanted":
        """The limits that a number of speakers, or a least and a most, mean."""
        if speakers is not None and (least is not None or most is not None):
            raise ValueError("give the number of speakers, or the least and the most, not both")
        wanted = cls(speakers or least or 1, speakers or most)
        for value in (speakers, least, most):
            if value is not None and value < 1:
                raise ValueError(f"a recording has at least one speaker, not {value}")
        if wanted.most is not None and wanted.least > wanted.most:
            raise ValueError(
                f"at least {wanted.least} and at most {wanted.most} speakers: lower one"
            )
        return wanted


def diarize(
    blocks: Blocks,
    name: str,
    sample_rate: int,
    embed: Embed,
    model: Model,
    wanted: Wanted,
    same_prior: float = 0.5,
    progress: bool = False,
) -> Conversation:
    """The turns of a recording; the speakers are SPEAKER_01, ... in the order of their first.

    ``same_prior`` is the prior probability that two windows have the same speaker.
    """
    likeness = Likeness(model, same_prior)
    if not likeness.has_zero and wanted.least != wanted.most:
        raise ValueError(CANNOT_COUNT)
    heard = heard_speech(blocks, name, likeness.model, sample_rate, embed, progress)
    groups, count = speaker_groups(heard.items, heard.windows, likeness, wanted, name)
    turns = turns_of(groups, count, heard.items, heard.speech, heard.windows, likeness)
    return Conversation(turns, name, heard.seconds, heard.detector)


class HeardSpeech(NamedTuple):
    """The speech of a recording, and windows of it as embedded items."""

    speech: Spans
    windows: Windows
    items: Items
    seconds: float  # of the recording
    detector: str  # what found the speech


def heard_speech(
    blocks: Blocks,
    name: str,
    model: Model,
    sample_rate: int,
    embed: Embed,
    progress: bool = False,
) -> HeardSpeech:
    """Find the speech of a recording, and embed it; raises if there is none."""
    meter = QualityMeter(sample_rate)
    with tqdm(desc="find speech", unit="s", delay=1.0, disable=not progress) as bar:
        for block in blocks():
            meter.add(block)
            bar.update(round(len(block) / sample_rate))
    quality, frames = meter.quality(), meter.speech()
    speech = speech_spans(frames, quality.seconds)
    if not len(speech):
        raise NoSpeechError(
            f"{name} has no speech: none was found in {quality.seconds:.1f} s by {frames.detector}"
        )
    windows = windows_of(speech)
    with tqdm(
        total=len(windows.spans), desc="windows", unit="win", delay=1.0, disable=not progress
    ) as bar:
        embeddings = embed_windows(blocks, windows.spans, sample_rate, embed, bar.update)
    if not np.isfinite(embeddings).all():
        raise NoSpeechError(f"{name}: the model makes no finite embeddings: leave it out")
    items = window_items(embeddings, windows, quality, model)
    return HeardSpeech(speech, windows, items, quality.seconds, frames.detector)


def turns_of(
    groups: NDArray[np.int64],
    count: int,
    items: Items,
    speech: Spans,
    windows: Windows,
    likeness: Likeness,
) -> list[Turn]:
    """The turns of windows whose speakers (n,) are 0 to count - 1, or -1 where others decide."""
    voices = templates(items, groups, count, likeness.model)
    spans = speaker_spans(speech, windows, likeness_to(items, voices, likeness))
    order = list(dict.fromkeys(speaker for _, _, speaker in spans))
    names = {speaker: f"SPEAKER_{number:02d}" for number, speaker in enumerate(order, 1)}
    return [Turn(round(a, 3), round(b, 3), names[speaker]) for a, b, speaker in spans]


def window_items(
    embeddings: NDArray[np.float32], windows: Windows, quality: RecordingQuality, model: Model
) -> Items:
    """Windows as recordings of their length, with the noise and band of the whole recording."""
    seconds = windows.spans[:, 1] - windows.spans[:, 0]
    sound = [
        quality._replace(speech_seconds=length).sound_measures() for length in seconds.tolist()
    ]
    columns = dict(zip(SOUND_MEASURES, np.array(sound).T, strict=True))
    return Items.of(embeddings, seconds, columns, model)


def speaker_groups(
    items: Items, windows: Windows, likeness: Likeness, wanted: Wanted, name: str
) -> tuple[NDArray[np.int64], int]:
    """The speaker (n,) of each window, -1 where others decide, and the number of speakers."""
    lengths = windows.spans[:, 1] - windows.spans[:, 0]
    is_long = lengths >= SHORTEST_LINKED_SECONDS
    if np.count_nonzero(is_long) < max(2, wanted.least):
        is_long[:] = True
    rows = np.flatnonzero(is_long)
    if len(rows) < wanted.least:
        raise ValueError(
            f"{name} has {lengths.sum():.1f} s of speech in {len(rows)} pieces, too few to tell "
            f"{wanted.least} speakers apart: ask for fewer"
        )
    merges = linked(items.some(rows), likeness, wanted.most is not None or not likeness.has_zero)
    # Overlapping windows share their time.
    seconds = (lengths / np.where(lengths > SHORTEST_LINKED_SECONDS, 2.0, 1.0))[rows]
    natural = merges.above_zero() if likeness.has_zero else len(merges.values)
    groups = np.full(len(items), -1)
    groups[rows], count = chosen_groups(
        items.some(rows), merges, natural, seconds, likeness, wanted
    )
    return groups, count


def chosen_groups(
    items: Items,
    merges: Merges,
    natural: int,
    seconds: NDArray[np.float64],
    likeness: Likeness,
    wanted: Wanted,
) -> tuple[NDArray[np.int64], int]:
    """The speaker (n,) of each item, -1 where others decide, and the number of speakers.

    They are the large groups of the natural number of merges. If those are too few or too many,
    they are the largest groups of that cut whose speakers explain all items best: a fragment of a
    speaker is given up before different people are joined. Short speakers count only where the
    others are too few.
    """
    counts = merges.large_groups(seconds, LEAST_SPEAKER_SECONDS)
    count = int(np.clip(counts[natural], wanted.least, wanted.most))
    cuts = np.flatnonzero(counts >= count)[-MOST_CUTS:].tolist()
    if not counts[natural] or not cuts:  # a short recording: nobody speaks for long
        count = int(np.clip(len(items) - natural, wanted.least, wanted.most))
        cuts = [len(items) - count]
    elif counts[natural] == count:
        cuts = [natural]
    found = [largest_groups(merges.groups(cut), seconds, count) for cut in cuts]
    if len(found) == 1:
        return found[0], count
    return max(found, key=lambda groups: fit(items, groups, seconds, count, likeness)), count


def largest_groups(
    groups: NDArray[np.int64], seconds: NDArray[np.float64], count: int
) -> NDArray[np.int64]:
    """The ``count`` largest of groups (n,), numbered from 0 in their order; others are -1."""
    totals = np.bincount(groups, seconds)
    numbers = np.full(len(totals), -1)
    numbers[np.sort(np.argsort(-totals, kind="stable")[:count])] = np.arange(count)
    return numbers[groups]


def fit(
    items: Items,
    groups: NDArray[np.int64],
    seconds: NDArray[np.float64],
    count: int,
    likeness: Likeness,
) -> float:
    """How well the groups 0 to count - 1 of (n,) explain all items: the sum of log probabilities.

    Each is that of the item and the likeliest group having the same speaker.
    """
    voices = templates(items, groups, count, likeness.model)
    values = likeness_to(items, voices, likeness).max(axis=1)
    # Neighboring windows share half of their time, so each is half of the evidence.
    return -float(seconds @ np.logaddexp(0.0, -values / 2.0))


def speech_of_speakers(
    blocks: Iterator[Waveform], conversation: Conversation, sample_rate: int
) -> dict[str, Waveform]:
    """The longest turns of each speaker, up to a minute of them, as one waveform (samples,)."""
    chosen: list[Turn] = []
    for speaker in conversation.speakers:
        left = LONGEST_VOICE_SECONDS
        own = [turn for turn in conversation if turn.speaker == speaker]
        for turn in sorted(own, key=lambda turn: turn.start - turn.end):
            if left > 0.0:
                chosen.append(turn._replace(end=min(turn.end, turn.start + left)))
                left -= turn.end - turn.start
    chosen.sort()
    spans = np.array([[turn.start, turn.end] for turn in chosen])
    parts: dict[str, list[Waveform]] = {speaker: [] for speaker in conversation.speakers}
    for turn, waveform in zip(chosen, cut_out(blocks, spans, sample_rate), strict=True):
        parts[turn.speaker].append(waveform)
    return {speaker: np.concatenate(waveforms) for speaker, waveforms in parts.items()}


def speech_of_speaker(file: Path, speaker: str, sample_rate: int) -> tuple[Waveform, int]:
    """The longest turns of a speaker of a JSON file of a conversation, and their sample rate.

    The recording is where the file says, or else of that name beside the file.
    """
    conversation = read_conversation(file)
    if speaker not in conversation.speakers:
        known = ", ".join(conversation.speakers[:10]) or "nobody"
        raise ValueError(f"{file} has no speaker {speaker!r}; known: {known}")
    recording = Path(conversation.recording)
    if not recording.is_file():
        recording = file.parent / recording.name
    blocks = recording_blocks(recording, sample_rate)
    alone = Conversation(
        (turn for turn in conversation if turn.speaker == speaker),
        conversation.recording,
        conversation.seconds,
        conversation.detector,
    )
    waveform = speech_of_speakers(blocks, alone, sample_rate)[speaker]
    if not len(waveform):
        raise ValueError(f"{recording} ends before {speaker} speaks: is it the one of {file}?")
    return waveform, sample_rate
