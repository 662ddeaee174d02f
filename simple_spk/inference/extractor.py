"""The Extractor: embeddings, scores, decisions and names from recordings."""

import functools
import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from simple_spk import LONGEST_SECONDS
from simple_spk.distributed import gather_objects, require_usable_device
from simple_spk.evaluation.quality_measures import joined_measures
from simple_spk.inference.batch_embedding import (
    EmbeddedBatch,
    ExtractionOptions,
    NoSpeechError,
    Recording,
    Source,
    Unusable,
    embed_recordings,
    embedded_batches,
)
from simple_spk.inference.cpu_resnet import CpuEmbedding
from simple_spk.inference.decisions import Decision, Identification, lack_of_evidence
from simple_spk.inference.model import Model, embedding_fingerprint, full_precision
from simple_spk.inference.model_folder import builtin_model, load_model, resolve
from simple_spk.inference.speech_quality import RecordingQuality
from simple_spk.inference.voice_comparison import NOBODY, VoiceComparison
from simple_spk.inference.voice_stores.addresses import open_voices
from simple_spk.inference.voice_stores.enrollment_checks import disagreeing, limits_of, repeated
from simple_spk.inference.voice_stores.speaker_store import SpeakerStore
from simple_spk.inference.voice_stores.voice import Voice, Voices, VoiceStore

if TYPE_CHECKING:  # imports scipy
    from simple_spk.inference.diarization.conversation import Conversation

# One recording or several: a file, or its samples (samples,) or (channels, samples).
Recordings = Recording | Iterable[Recording]
Precision = Literal["fp32", "bf16"]
# Called with an unusable recording and its error.
LeftOut = Callable[[Recording, Unusable], None]
PRECISIONS: dict[str, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16}
MOST_CANDIDATES = 10  # of an identification, unless the caller asks for more

logger = logging.getLogger(__name__)


class Side(NamedTuple):
    """The recordings of one speaker, as ``Extractor.listen`` returns them.

    Their voice, that of each recording by its name, and qualities; an enrolled voice has none.
    """

    voice: Voice
    parts: list[tuple[str, Voice]]
    qualities: tuple[RecordingQuality, ...]


class Extractor:
    """Embeds recordings with a model; results do not depend on batches or earlier calls.

    Recordings are files of any sample rate and number of channels, or arrays and tensors (samples,)
    or (channels, samples), which need their ``sample_rate`` in hertz. Wherever several recordings
    are accepted, a single one is, too.

    ``precision`` is that of the encoder: "bf16" is faster on hardware that supports it, and changes
    an embedding by some thousandths of its length. Files of more than ``longest_seconds`` are
    refused: a few megabytes can hold days of silence.

    Threads may share an extractor, also while others enroll, rename or remove voices: an answer is
    about the voices at one moment. With several processes (torchrun), where all take part in each
    call, one thread of each process may use it.
    """

    progress = False  # whether verify, enroll and identify show a bar while they read for long

    def __init__(
        self,
        model: Model,
        device: str | torch.device = "cpu",
        precision: Precision = "fp32",
        longest_seconds: float = LONGEST_SECONDS,
    ) -> None:
        self.model = model
        self.longest_seconds = longest_seconds
        if precision not in PRECISIONS:
            raise ValueError(f"the precision must be one of {list(PRECISIONS)}, not {precision!r}")
        self.precision = precision
        require_usable_device(device)
        self.device = torch.device(device)
        for part in (model.front_end, model.encoder, model.similarity):
            part.to(self.device).eval()
        self.comparison = VoiceComparison(model, self.device)
        self._voices: VoiceStore | None = None
        self._lock = threading.Lock()
        self._on_cpu = None
        if self.device.type == "cpu":
            self._on_cpu = CpuEmbedding(model.front_end, model.encoder, PRECISIONS[precision])

    @classmethod
    def load(
        cls,
        folder: str | Path | None = None,
        device: str | torch.device = "cpu",
        precision: Precision = "fp32",
        longest_seconds: float = LONGEST_SECONDS,
    ) -> "Extractor":
        """The extractor of a model folder, of a name on the Hub, or of the built-in model."""
        model = load_model(builtin_model() if folder is None else resolve(folder))
        return cls(model, device, precision, longest_seconds)

    @property
    def sample_rate(self) -> int:
        """The model's sample rate in hertz, to which recordings are resampled."""
        return self.model.front_end.sample_rate

    @functools.cached_property
    def fingerprint(self) -> str:
        """A hash of everything that decides the embeddings of this model."""
        return embedding_fingerprint(self.model)

    def embed(
        self, recordings: Recordings, sample_rate: int | None = None, **options: Any
    ) -> NDArray[np.float32]:
        """Embeddings (n, dim) of n recordings, in their order; (1, dim) of a single one.

        options: fields of ``ExtractionOptions`` such as ``workers`` and ``progress``.
        """
        how = self._options(sample_rate, options)
        return embed_recordings(as_list(recordings), self.embed_waveforms, how)

    def embed_each(
        self, recordings: Recordings, sample_rate: int | None = None, **options: Any
    ) -> Iterator[EmbeddedBatch]:
        """Embeddings as they are computed; the errors of unusable recordings are not raised."""
        how = self._options(sample_rate, options)
        return embedded_batches(as_list(recordings), self.embed_waveforms, how)

    def _options(self, source_rate: int | None, options: dict[str, Any]) -> ExtractionOptions:
        """Options with the rates of model and arrays, and the model's frame."""
        rate, frame = self.sample_rate, self.model.front_end.frame_seconds
        options = {"longest_seconds": self.longest_seconds, **options}
        return ExtractionOptions(
            sample_rate=rate, source_rate=source_rate, frame_seconds=frame, **options
        )

    @torch.no_grad()
    def embed_waveforms(
        self, waveforms: Tensor, lengths: Tensor | None = None, together: bool = False
    ) -> Tensor:
        """Embeddings (n, dim) of waveforms (n, samples) in [-1, 1], padded after lengths (n,).

        ``together`` is faster for many short ones on a CPU, and changes their last digits.
        """
        if self._on_cpu is not None:
            return self._on_cpu(waveforms, lengths, together).clone()  # not of inference mode
        if lengths is not None:
            lengths = lengths.to(self.device)
        dtype = PRECISIONS[self.precision]
        with full_precision():
            features = self.model.front_end(waveforms.to(self.device), lengths)
            with torch.autocast(self.device.type, dtype, enabled=dtype != torch.float32):
                return self.model.encoder(*features).float()

    def verify(
        self,
        enroll: Recordings | Voice,
        test: Recordings,
        sample_rate: int | None = None,
        prior: float | None = None,
        false_accept_rate: float | None = None,
        left_out: LeftOut | None = None,
    ) -> Decision:
        """Whether two recordings, or two sides of several recordings each, have one speaker.

        The first may be an enrolled voice: ``extractor.voices["Ann"]``.

        A calibrated model gives a posterior probability for the ``prior`` (0.5) of the same
        speaker, and accepts from 0.5 on; or, with a ``false_accept_rate``, at the threshold where
        that share of pairs of different speakers is accepted. A model without calibration accepts
        from its own threshold on.

        ``left_out`` is called with each unusable recording of a side that has usable ones, too;
        without it, the error is raised.
        """
        # Refuses what the model does not know, before long work.
        self.comparison.threshold(prior, false_accept_rate, voices=1)
        if isinstance(enroll, Voice):
            first: Side | Unusable = Side(enroll, [], ())
            (second,) = self.listen(sample_rate, test, left_out=left_out)
        else:
            first, second = self.listen(sample_rate, enroll, test, left_out=left_out)
        return self.decide(first, second, prior, false_accept_rate)

    def decide(
        self,
        first: Side | Unusable,
        second: Side | Unusable,
        prior: float | None = None,
        false_accept_rate: float | None = None,
    ) -> Decision:
        """The answer of ``verify`` for two sides that ``listen`` returned."""
        chance, threshold, _ = self.comparison.threshold(prior, false_accept_rate, voices=1)
        for side in (first, second):
            if not isinstance(side, Side | NoSpeechError):
                raise side
        for side in (first, second):
            if isinstance(side, NoSpeechError):
                return Decision(None, None, None, None, threshold, str(side), ((), ()))
        assert isinstance(first, Side) and isinstance(second, Side)
        (found,) = self.comparison.search(
            Voices.alone("", first.voice, self.comparison.keys), [second.voice], chance
        )
        _, score, ratio, probability = found.candidates[0]
        _, threshold, because = self.comparison.threshold(
            prior, false_accept_rate, 1, found.quality
        )
        accepted = _reaches(threshold, found.value)
        for which, heard in (("second", second.qualities), ("first", first.qualities)):
            if heard and (lack := lack_of_evidence(heard)):
                accepted, because = None, f"the {which} recording has {lack}"
        qualities = (first.qualities, second.qualities)
        misses = self.comparison.misses(threshold, found.quality)
        return Decision(score, ratio, probability, accepted, threshold, because, qualities, misses)

    @property
    def voices(self) -> VoiceStore:
        """The enrolled voices by name; in memory, unless others were loaded."""
        with self._lock:
            if self._voices is None:
                self._voices = SpeakerStore(self.fingerprint, self.comparison.keys)
            return self._voices

    def load_voices(self, address: str | Path, create: bool = False) -> VoiceStore:
        """Replace the enrolled voices by those of a file or a service, where changes go, too.

        The address is a path, ``faiss:PATH`` or ``qdrant:URL``. With ``create``, there may be none
        yet. Files of versions before 0.2 are read into memory, unless ``create`` converts them.
        """
        loaded = open_voices(address, self.fingerprint, self.comparison.keys, create)
        with self._lock:
            self._voices = loaded
        return loaded

    def enroll(
        self,
        name: str,
        recordings: Recordings,
        sample_rate: int | None = None,
        force: bool = False,
    ) -> Voice:
        """Enroll a voice; recordings of an enrolled name are added to it.

        Raises if the recordings seem to be of several speakers, or of one who is enrolled under
        another name, or if two of them are the same; with ``force`` this is only logged.
        """
        (side,) = self.listen(sample_rate, recordings)
        return self.voices.add(name, self.checked_side(name, side, force))

    def checked_side(self, name: str, side: Side | Unusable, force: bool = False) -> Voice:
        """The voice that ``enroll`` would enroll, of a side that ``listen`` returned."""
        if not isinstance(side, Side):
            raise side
        if lack := lack_of_evidence(side.qualities):
            raise ValueError(f"{name} cannot be enrolled: the recordings have {lack}: record more")
        doubts = self._doubts(name, side)
        if doubts and not force:
            raise ValueError(
                f"{name} is not enrolled: {'; '.join(doubts)}. Correct it, or enroll anyway "
                "(--force, force=True)"
            )
        for doubt in doubts:
            logger.warning("%s is enrolled although %s", name, doubt)
        return side.voice

    def _doubts(self, name: str, side: Side) -> list[str]:
        """What speaks against enrolling recordings under a name."""
        voices, known, parts = self.voices, self.voices.get(name), side.parts
        limits = limits_of(self.model, len(voices))
        doubts = []
        for best in self.comparison.search(voices, [side.voice], top=1):
            other = best.candidates[0].name
            if limits is not None and other != name and best.value >= limits.across:
                doubts.append(
                    f"it sounds like {other}, who is enrolled ({limits.shown(best.value)})"
                )
        if known is not None:
            parts = [("what is enrolled", known), *parts]
        if limits is not None:
            doubts += disagreeing(parts, limits, self.comparison.likeness)
        return repeated(parts) + doubts

    def identify(
        self,
        recordings: Recordings,
        sample_rate: int | None = None,
        prior: float | None = None,
        false_accept_rate: float | None = None,
        top: int | None = MOST_CANDIDATES,
    ) -> Identification:
        """Which of the enrolled voices it is, if any, with the ``top`` candidates (None: all).

        The more voices are enrolled, the likelier one of them resembles a stranger by chance. So
        ``prior`` (0.5), the probability that the speaker is enrolled, is divided among them; the
        likeliest is accepted from a probability of 0.5 on. ``false_accept_rate``, that of strangers
        accepted as anybody, is divided, too. The threshold of a model without calibration does not
        depend on the number of voices.
        """
        speakers = [as_list(recordings)]
        (answer,) = self.identify_each(speakers, sample_rate, prior, false_accept_rate, top)
        if isinstance(answer, Identification):
            return answer
        raise answer

    def identify_each(
        self,
        speakers: Iterable[Recordings],
        sample_rate: int | None = None,
        prior: float | None = None,
        false_accept_rate: float | None = None,
        top: int | None = MOST_CANDIDATES,
    ) -> list[Identification | Unusable]:
        """The answer of ``identify`` for each item, a recording or several of one speaker.

        All are compared with the voices at one moment. Where a recording cannot be read, its error
        is the answer.
        """
        voices = self.voices
        count = len(voices)
        if not count:
            raise ValueError(NOBODY)
        if top is not None and top < 1:
            raise ValueError(f"top is how many candidates to return, at least 1, not {top}")
        # Refuses what the model does not know, before long work.
        self.comparison.threshold(prior, false_accept_rate, count)
        return self.recognize(self.listen(sample_rate, *speakers), prior, false_accept_rate, top)

    def recognize(
        self,
        sides: Sequence[Side | Unusable],
        prior: float | None = None,
        false_accept_rate: float | None = None,
        top: int | None = MOST_CANDIDATES,
    ) -> list[Identification | Unusable]:
        """The answers of ``identify_each`` for sides that ``listen`` returned."""
        voices = self.voices
        count = len(voices)
        if not count:
            raise ValueError(NOBODY)
        chance, usual, _ = self.comparison.threshold(prior, false_accept_rate, count)
        heard = [side.voice for side in sides if isinstance(side, Side)]
        found = iter(self.comparison.search(voices, heard, chance, top))
        answers: list[Identification | Unusable] = []
        for side in sides:
            if isinstance(side, NoSpeechError):
                answers.append(Identification(None, None, (), usual, str(side), ()))
            elif not isinstance(side, Side):
                answers.append(side)
            else:
                best = next(found)
                _, threshold, reason = self.comparison.threshold(
                    prior, false_accept_rate, best.total, best.quality
                )
                accepted = _reaches(threshold, best.value)
                if false_accept_rate is None and best.anybody is not None:
                    accepted = (best.candidates[0].probability or 0.0) >= 0.5
                    if not accepted and best.anybody >= 0.5:
                        accepted, reason = None, "several enrolled voices are about as likely"
                if lack := lack_of_evidence(side.qualities):
                    accepted, reason = None, f"the recording has {lack}"
                name = best.candidates[0].name if accepted else None
                answers.append(
                    Identification(
                        name,
                        accepted,
                        best.candidates,
                        threshold,
                        reason,
                        side.qualities,
                        self.comparison.misses(threshold, best.quality),
                    )
                )
        return answers

    def diarize(
        self,
        recording: Recording,
        sample_rate: int | None = None,
        speakers: int | None = None,
        min_speakers: int | None = None,
        max_speakers: int | None = None,
        same_prior: float = 0.5,
        prior: float | None = None,
        false_accept_rate: float | None = None,
    ) -> "Conversation":
        """Who speaks when: a list of turns (start, end, speaker), in seconds.

        The number of speakers is found; ``same_prior``, the prior probability that two pieces have
        the same speaker, gives more speakers if it is lower. Those who are enrolled have their
        names, at the ``prior`` or ``false_accept_rate`` of ``identify``; the others are SPEAKER_01,
        SPEAKER_02, ... Overlapping speech is not handled.
        """
        from simple_spk.inference.diarization import pipeline

        wanted = pipeline.Wanted.of(speakers, min_speakers, max_speakers)
        source = Source(recording, 0, self._options(sample_rate, {}))
        rate, model = self.sample_rate, self.model
        embed = functools.partial(self.embed_waveforms, together=True)
        found = pipeline.diarize(
            source.blocks, source.name, rate, embed, model, wanted, same_prior, self.progress
        )
        if not len(self.voices):
            return found
        heard = pipeline.speech_of_speakers(source.blocks(), found, rate)
        answers = self.identify_each(heard.values(), rate, prior, false_accept_rate, top=1)
        known = zip(heard, answers, strict=True)
        names = {s: a.name for s, a in known if isinstance(a, Identification) and a.name}
        return found.renamed(names)

    def listen(
        self, sample_rate: int | None, *sides: Recordings, left_out: LeftOut | None = None
    ) -> list[Side | Unusable]:
        """What is heard of each side, or an error: that of an unreadable recording first.

        ``verify``, ``identify`` and ``enroll`` are this and then ``decide``, ``recognize`` or
        ``checked_side``; so many questions can share one batch.
        """
        lists = [as_list(recordings) for recordings in sides]
        if not lists or not all(lists):
            raise ValueError("there are no recordings: give at least one")
        found, errors = self._heard(list(chain(*lists)), sample_rate)
        heard: list[Side | Unusable] = []
        places = iter(range(len(found) + len(errors)))
        for recordings in lists:
            named = {next(places): recording for recording in recordings}
            wrong = {place: errors[place] for place in named if place in errors}
            if wrong and (left_out is None or len(wrong) == len(named)):
                heard.append(
                    min(wrong.values(), key=lambda error: isinstance(error, NoSpeechError))
                )
                continue
            for place, error in wrong.items():
                assert left_out is not None
                left_out(named[place], error)
            usable = [
                (str(one) if isinstance(one, str | Path) else f"recording {place}", *found[place])
                for place, one in named.items()
                if place in found
            ]
            heard.append(_side(usable))
        return heard

    def _heard(
        self, recordings: list[Recording], sample_rate: int | None
    ) -> tuple[dict[int, tuple[NDArray[np.float32], RecordingQuality]], dict[int, Unusable]]:
        """Embeddings (dim,) and qualities by the index of the recording, and errors of others."""
        found: dict[int, tuple[NDArray[np.float32], RecordingQuality]] = {}
        errors: dict[int, Unusable] = {}
        for batch in self.embed_each(
            recordings,
            sample_rate,
            with_quality=True,
            with_parts=self.model.calibration is not None,
            progress=self.progress,
        ):
            errors |= batch.errors
            qualities = batch.qualities
            if batch.parts:
                qualities = list(map(self._with_part_ratio, qualities, batch.parts))
            rows = zip(batch.embeddings, qualities, strict=True)
            found |= dict(zip(batch.indexes, rows, strict=True))
        # Also when one failed, as the other processes wait here.
        for embedded, failed in gather_objects((found, errors)):
            found |= embedded
            errors |= failed
        return found, errors

    def _with_part_ratio(
        self, quality: RecordingQuality, parts: NDArray[np.float32]
    ) -> RecordingQuality:
        """A quality with the ratio of the two most unlike parts (n, dim) of the recording."""
        if len(parts) < 2:
            return quality
        share = quality._replace(speech_seconds=quality.speech_seconds / len(parts))
        sound = share.sound_measures()
        voices = [
            Voice(part, 1, quality.seconds / len(parts), np.append(sound, np.linalg.norm(part)))
            for part in parts
        ]
        pairs = combinations(voices, 2)
        return quality._replace(part_ratio=min(self.comparison.likeness(*pair) for pair in pairs))


def _side(recordings: Sequence[tuple[str, NDArray[np.float32], RecordingQuality]]) -> Side:
    """The side of recordings with their names, embeddings (dim,) and qualities."""
    parts = []
    for name, embedding, quality in recordings:
        length = float(np.linalg.norm(embedding.astype(np.float64)))
        measures = np.append(quality.sound_measures(), length)
        parts.append((name, Voice(embedding, 1, quality.seconds, measures)))
    embeddings = np.stack([embedding for _, embedding, _ in recordings])
    mean = embeddings.astype(np.float64).mean(axis=0).astype(np.float32)
    seconds = sum(quality.seconds for _, _, quality in recordings)
    measures = joined_measures(np.stack([voice.known_measures for _, voice in parts]))
    qualities = tuple(quality for _, _, quality in recordings)
    return Side(Voice(mean, len(parts), seconds, measures), parts, qualities)


def as_list(recordings: Recordings) -> list[Recording]:
    """One recording or several as a list of them."""
    kinds = (str, os.PathLike, np.ndarray, Tensor)
    several = [recordings] if isinstance(recordings, kinds) else list(recordings)
    for one in several:
        if not isinstance(one, kinds):
            raise ValueError(
                f"a recording is a path, an array or a tensor, not a {type(one).__name__}; several "
                "of them come as a list"
            )
    return [Path(one) if isinstance(one, os.PathLike) else one for one in several]


def _reaches(threshold: float | None, value: float) -> bool | None:
    """Whether a value is at least a threshold; None without one."""
    return None if threshold is None else value >= threshold
