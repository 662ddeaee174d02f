"""The Extractor: embeddings, scores, decisions and names from recordings."""

import functools
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from simple_spk import LONGEST_SECONDS
from simple_spk.distributed import gather_objects, require_usable_device
from simple_spk.evaluation.calibration import quality_measures
from simple_spk.inference.batch_embedding import (
    EmbeddedBatch,
    ExtractionOptions,
    NoSpeechError,
    Recording,
    Unusable,
    embed_recordings,
    embedded_batches,
)
from simple_spk.inference.cpu_resnet import CpuEmbedding
from simple_spk.inference.decisions import (
    Candidate,
    Decision,
    Identification,
    lack_of_evidence,
    log_odds,
    posterior,
)
from simple_spk.inference.model import Model, embedding_fingerprint, full_precision
from simple_spk.inference.model_folder import builtin_model, load_model, resolve
from simple_spk.inference.speaker_store import SpeakerStore, Voice
from simple_spk.inference.speech_quality import RecordingQuality

# One recording or several: a file, or its samples (samples,) or (channels, samples).
Recordings = Recording | Iterable[Recording]
Precision = Literal["fp32", "bf16"]
PRECISIONS: dict[str, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16}


class Extractor:
    """Embeds recordings with a model; results do not depend on batches or earlier calls.

    Recordings are files of any sample rate and number of channels, or arrays and tensors (samples,)
    or (channels, samples), which need their ``sample_rate`` in hertz. Wherever several recordings
    are accepted, a single one is, too.

    ``precision`` is that of the encoder: "bf16" is faster on hardware that supports it, and changes
    an embedding by some thousandths of its length. Files of more than ``longest_seconds`` are
    refused: a few megabytes can hold days of silence.
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
    def embed_waveforms(self, waveforms: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Embeddings (n, dim) of waveforms (n, samples) in [-1, 1], padded after lengths (n,)."""
        if self._on_cpu is not None:
            return self._on_cpu(waveforms, lengths).clone()  # no tensor of inference mode
        if lengths is not None:
            lengths = lengths.to(self.device)
        dtype = PRECISIONS[self.precision]
        with full_precision():
            features = self.model.front_end(waveforms.to(self.device), lengths)
            with torch.autocast(self.device.type, dtype, enabled=dtype != torch.float32):
                return self.model.encoder(*features).float()

    def verify(
        self,
        enroll: Recordings,
        test: Recordings,
        sample_rate: int | None = None,
        prior: float | None = None,
        false_accept_rate: float | None = None,
    ) -> Decision:
        """Whether two recordings, or two sides of several recordings each, have one speaker.

        A calibrated model gives a posterior probability for the ``prior`` (0.5) of the same
        speaker, and accepts from 0.5 on; or, with a ``false_accept_rate``, at the threshold where
        that share of pairs of different speakers is accepted. A model without calibration accepts
        from its own threshold on.
        """
        chance, threshold, because = self._threshold(prior, false_accept_rate, voices=1)
        try:
            sides = self._listen(sample_rate, enroll, test)
        except NoSpeechError as error:
            return Decision(None, None, None, None, threshold, str(error), ((), ()))
        (first, first_heard), (second, second_heard) = sides
        ((score, ratio, probability),) = self._compare([first], second, chance)
        accepted = _reaches(threshold, score if ratio is None else ratio)
        for which, heard in (("second", second_heard), ("first", first_heard)):
            if lack := lack_of_evidence(heard):
                accepted, because = None, f"the {which} recording has {lack}"
        qualities = (first_heard, second_heard)
        return Decision(score, ratio, probability, accepted, threshold, because, qualities)

    @functools.cached_property
    def voices(self) -> SpeakerStore:
        """The enrolled voices by name."""
        return SpeakerStore(self.fingerprint)

    def load_voices(self, path: str | Path) -> SpeakerStore:
        """Replace the enrolled voices by those of a file."""
        self.voices = SpeakerStore.load(path, self.fingerprint)
        return self.voices

    def enroll(self, name: str, recordings: Recordings, sample_rate: int | None = None) -> Voice:
        """Enroll a voice; recordings of an enrolled name are added to it."""
        ((voice, heard),) = self._listen(sample_rate, recordings)
        if lack := lack_of_evidence(heard):
            raise ValueError(f"{name} cannot be enrolled: the recordings have {lack}: record more")
        self.voices.add(name, voice)
        return self.voices[name]

    def identify(
        self,
        recordings: Recordings,
        sample_rate: int | None = None,
        prior: float | None = None,
        false_accept_rate: float | None = None,
    ) -> Identification:
        """Which of the enrolled voices it is, if any.

        The more voices are enrolled, the likelier one of them resembles a stranger by chance. So
        ``prior`` (0.5), the probability that the speaker is enrolled, is divided among them; the
        likeliest is accepted from a probability of 0.5 on. ``false_accept_rate``, that of strangers
        accepted as anybody, is divided, too. The threshold of a model without calibration does not
        depend on the number of voices.
        """
        if not self.voices:
            raise ValueError("no voice is enrolled: enroll some first, or load them")
        chance, threshold, because = self._threshold(prior, false_accept_rate, len(self.voices))
        try:
            ((voice, heard),) = self._listen(sample_rate, recordings)
        except NoSpeechError as error:
            return Identification(None, None, (), threshold, str(error), ())
        answers = self._compare(list(self.voices.values()), voice, chance)
        named = zip(self.voices, answers, strict=True)
        value = attrgetter("score" if self.model.calibration is None else "log_likelihood_ratio")
        candidates = [Candidate(name, *answer) for name, answer in named]
        candidates.sort(key=value, reverse=True)  # equal ones stay in the order of enrollment
        best = candidates[0]
        accepted = _reaches(threshold, value(best))
        if false_accept_rate is None and best.probability is not None:
            accepted = best.probability >= 0.5
            if not accepted and sum(one.probability or 0.0 for one in candidates) >= 0.5:
                accepted, because = None, "several enrolled voices are about as likely"
        if lack := lack_of_evidence(heard):
            accepted, because = None, f"the recording has {lack}"
        name = best.name if accepted else None
        return Identification(name, accepted, tuple(candidates), threshold, because, heard)

    def _listen(
        self, sample_rate: int | None, *sides: Recordings
    ) -> list[tuple[Voice, tuple[RecordingQuality, ...]]]:
        """The voice of each side, and the qualities of its recordings.

        Raises the error of an unusable recording, that of an unreadable file first.
        """
        lists = [as_list(recordings) for recordings in sides]
        if not all(lists):
            raise ValueError("there are no recordings: give at least one")
        found: dict[int, tuple[NDArray[np.float32], RecordingQuality]] = {}
        errors: dict[int, Unusable] = {}
        for batch in self.embed_each(
            list(chain(*lists)), sample_rate, with_quality=True, progress=self.progress
        ):
            errors |= batch.errors
            rows = zip(batch.embeddings, batch.qualities, strict=True)
            found |= dict(zip(batch.indexes, rows, strict=True))
        # Also when one failed, as the other processes wait here.
        for embedded, failed in gather_objects((found, errors)):
            found |= embedded
            errors |= failed
        if errors:
            raise errors[min(errors, key=lambda i: (isinstance(errors[i], NoSpeechError), i))]
        heard, indexes = [], iter(range(len(found)))
        for recordings in lists:
            embeddings, qualities = zip(*(found[next(indexes)] for _ in recordings), strict=True)
            mean = np.stack(embeddings).astype(np.float64).mean(axis=0).astype(np.float32)
            seconds = sum(quality.seconds for quality in qualities)
            heard.append((Voice(mean, len(recordings), seconds), qualities))
        return heard

    @torch.no_grad()
    def _compare(
        self, voices: Sequence[Voice], test: Voice, prior: float
    ) -> list[tuple[float, float | None, float | None]]:
        """Of each voice against another: score, and if calibrated log ratio and probability."""
        sides = [*voices, test]
        sizes = len(voices[0].embedding), len(test.embedding)
        if sizes[0] != sizes[1]:
            raise ValueError(
                f"the enrolled voices have embeddings of {sizes[0]} numbers, this model makes "
                f"{sizes[1]}: enroll them again"
            )
        table = np.stack([voice.embedding for voice in sides])
        on_device = torch.from_numpy(table).to(self.device)
        scores = self.model.similarity(on_device[:-1], on_device[-1:])[:, 0].double().cpu().numpy()
        if self.model.calibration is None:
            return [(score, None, None) for score in scores.tolist()]
        others, this = np.arange(len(voices)), np.full(len(voices), len(voices))
        seconds = np.array([voice.seconds for voice in sides])
        quality = quality_measures(others, this, seconds, table)
        ratios = self.model.calibration.apply(scores, quality)
        columns = (scores, ratios, posterior(ratios, prior))
        return list(zip(*(column.tolist() for column in columns), strict=True))

    def _threshold(
        self, prior: float | None, false_accept_rate: float | None, voices: int
    ) -> tuple[float, float | None, str]:
        """The prior, the threshold (a log likelihood ratio or else a score), and its reason."""
        calibration, own = self.model.calibration, self.model.threshold
        if calibration is None:
            for value, name in ((prior, "probabilities"), (false_accept_rate, "error rates")):
                if value is not None:
                    what = f"the model is not calibrated, so it knows no {name}"
                    raise ValueError(f"{what}: leave that out, or calibrate it")
            if own is None:
                return 0.5, None, "the model has neither a calibration nor a threshold of its own"
            return 0.5, own, f"accepted from the model's own threshold on, a score of {own:.3g}"
        prior = 0.5 if prior is None else prior
        neutral = float(np.log(voices) - log_odds(prior))
        if false_accept_rate is None:
            return prior, neutral, f"accepted from a probability of 0.5 on (prior {prior:g})"
        ratio, is_extrapolated = calibration.threshold_at(false_accept_rate, voices)
        because = f"accepted from a likelihood ratio of e^{ratio:.1f} on, for a false-accept rate "
        because += f"of {false_accept_rate:g}" + (f" / {voices}" if voices > 1 else "")
        if is_extrapolated:
            because += " (extrapolated: the calibration list is too short to measure it)"
        return prior, ratio, because


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
