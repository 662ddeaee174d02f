"""The Extractor: embeddings, scores, decisions and names from recordings."""

import functools
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from simple_spk.data.audio import AudioError
from simple_spk.distributed import gather_objects
from simple_spk.evaluation.calibration import Calibration, quality_measures
from simple_spk.inference.batch_embedding import (
    BATCH_SECONDS,
    EmbeddedBatch,
    NoSpeechError,
    Recording,
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
NO_CALIBRATION = "the model is not calibrated, so it knows no"


class Extractor:
    """Embeds recordings with a model; results do not depend on batches or earlier calls.

    Recordings are files of any sample rate and number of channels, or arrays and tensors (samples,)
    or (channels, samples), which need their ``sample_rate`` in hertz. Wherever several recordings
    are accepted, a single one is, too.

    ``precision`` is that of the encoder: "bf16" is faster on hardware that supports it, and changes
    an embedding by some thousandths of its length.
    """

    def __init__(
        self, model: Model, device: str | torch.device = "cpu", precision: Precision = "fp32"
    ) -> None:
        self.model = model
        if precision not in PRECISIONS:
            raise ValueError(f"the precision must be one of {list(PRECISIONS)}, not {precision!r}")
        self.precision = precision
        try:
            self.device = torch.device(device)
            for part in (model.front_end, model.encoder, model.similarity):
                part.to(self.device).eval()
        except (RuntimeError, AssertionError) as error:
            raise ValueError(f"the device {device!r} cannot be used: {error}") from error
        self._on_cpu = (
            CpuEmbedding(model.front_end, model.encoder, PRECISIONS[precision])
            if self.device.type == "cpu"
            else None
        )

    @classmethod
    def load(
        cls,
        folder: str | Path | None = None,
        device: str | torch.device = "cpu",
        precision: Precision = "fp32",
    ) -> "Extractor":
        """The extractor of a model folder, of a name on the Hub, or of the built-in model."""
        model = load_model(builtin_model() if folder is None else resolve(folder))
        return cls(model, device, precision)

    @property
    def sample_rate(self) -> int:
        """The model's sample rate in hertz, to which recordings are resampled."""
        return self.model.front_end.sample_rate

    @functools.cached_property
    def fingerprint(self) -> str:
        """A hash of everything that decides the embeddings of this model."""
        return embedding_fingerprint(self.model)

    # ---- embeddings -----------------------------------------------------------------------------

    def embed(
        self,
        recordings: Recordings,
        sample_rate: int | None = None,
        batch_seconds: float = BATCH_SECONDS,
        workers: int = 0,
        progress: bool = False,
        durations_seconds: NDArray[np.floating] | None = None,
    ) -> NDArray[np.float32]:
        """Embeddings (n, dim) of n recordings, in their order; (1, dim) of a single one.

        With the durations (n,) of a manifest, no file is opened to find them.
        """
        return embed_recordings(
            as_list(recordings),
            self.embed_waveforms,
            self.sample_rate,
            batch_seconds,
            workers,
            progress,
            durations_seconds,
            sample_rate,
            self.model.front_end.frame_seconds,
        )

    def embed_each(
        self,
        recordings: Recordings,
        sample_rate: int | None = None,
        workers: int = 0,
        progress: bool = False,
        with_quality: bool = False,
        durations_seconds: NDArray[np.floating] | None = None,
    ) -> Iterator[EmbeddedBatch]:
        """Embeddings as they are computed; the errors of unusable recordings are not raised."""
        return embedded_batches(
            as_list(recordings),
            self.embed_waveforms,
            self.sample_rate,
            workers=workers,
            progress=progress,
            durations_seconds=durations_seconds,
            source_rate=sample_rate,
            with_quality=with_quality,
            shortest_seconds=self.model.front_end.frame_seconds,
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

    # ---- two voices -----------------------------------------------------------------------------

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
        first, second = as_list(enroll), as_list(test)
        chance, threshold, because = self._threshold(prior, false_accept_rate, voices=1)
        try:
            embeddings, qualities = self._listen([*first, *second], sample_rate)
        except NoSpeechError as error:
            return Decision(None, None, None, None, threshold, str(error), ((), ()))
        sides = (slice(0, len(first)), slice(len(first), None))
        voices = [_voice(embeddings[side], qualities[side]) for side in sides]
        scores, ratios = self._compare(voices[:1], voices[1])
        score, ratio = float(scores[0]), None if ratios is None else float(ratios[0])
        heard = (tuple(qualities[sides[0]]), tuple(qualities[sides[1]]))
        accepted = _at_least(threshold, score if ratio is None else ratio)
        for which, side in zip(("first", "second"), heard, strict=True):
            lack = lack_of_evidence(side)
            if lack is not None:
                accepted, because = None, f"the {which} recording has {lack}"
                break
        probability = None if ratios is None else float(posterior(ratios, chance)[0])
        return Decision(score, ratio, probability, accepted, threshold, because, heard)

    # ---- known voices ---------------------------------------------------------------------------

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
        embeddings, qualities = self._listen(as_list(recordings), sample_rate)
        lack = lack_of_evidence(qualities)
        if lack is not None:
            raise ValueError(f"{name} cannot be enrolled: the recordings have {lack}: record more")
        self.voices.add(name, _voice(embeddings, qualities))
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
        names = list(self.voices)
        chance, threshold, because = self._threshold(prior, false_accept_rate, len(names))
        try:
            embeddings, qualities = self._listen(as_list(recordings), sample_rate)
        except NoSpeechError as error:
            return Identification(None, None, (), threshold, str(error), ())
        scores, ratios = self._compare(list(self.voices.values()), _voice(embeddings, qualities))
        probabilities = None if ratios is None else posterior(ratios, chance)
        order = np.argsort(-(scores if ratios is None else ratios), kind="stable").tolist()
        candidates = tuple(
            Candidate(
                names[row],
                float(scores[row]),
                None if ratios is None else float(ratios[row]),
                None if probabilities is None else float(probabilities[row]),
            )
            for row in order
        )
        best = candidates[0]
        if false_accept_rate is None and probabilities is not None:
            accepted = _at_least(0.5, float(probabilities.max()))
            if not accepted and probabilities.sum() >= 0.5:
                accepted, because = None, "several enrolled voices are about as likely"
        else:
            value = best.log_likelihood_ratio
            accepted = _at_least(threshold, best.score if value is None else value)
        lack = lack_of_evidence(qualities)
        if lack is not None:
            accepted, because = None, f"the recording has {lack}"
        name = best.name if accepted else None
        return Identification(name, accepted, candidates, threshold, because, tuple(qualities))

    # ---- what these share -----------------------------------------------------------------------

    def _listen(
        self, recordings: Sequence[Recording], sample_rate: int | None
    ) -> tuple[NDArray[np.float32], list[RecordingQuality]]:
        """The embeddings (n, dim) and qualities of n recordings.

        Raises the error of an unusable recording, that of an unreadable file first.
        """
        if not recordings:
            raise ValueError("there are no recordings: give at least one")
        found: dict[int, tuple[NDArray[np.float32], RecordingQuality]] = {}
        errors: dict[int, AudioError | OSError] = {}
        for batch in self.embed_each(recordings, sample_rate, with_quality=True):
            errors |= batch.errors
            rows = zip(batch.embeddings, batch.qualities, strict=True)
            found |= dict(zip(batch.indexes, rows, strict=True))
        # Also when one failed, as the other processes wait here.
        for embedded, failed in gather_objects((found, errors)):
            found |= embedded
            errors |= failed
        if errors:
            raise errors[min(errors, key=lambda i: (isinstance(errors[i], NoSpeechError), i))]
        embeddings, qualities = zip(*(found[i] for i in range(len(recordings))), strict=True)
        return np.stack(embeddings), list(qualities)

    @torch.no_grad()
    def _compare(
        self, voices: Sequence[Voice], test: Voice
    ) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
        """Scores (n,) of n voices against another, and log likelihood ratios (n,) if calibrated."""
        sides = [*voices, test]
        if len(voices[0].embedding) != len(test.embedding):
            raise ValueError(
                f"the voices enrolled have embeddings of {len(voices[0].embedding)} numbers, this "
                f"model makes {len(test.embedding)}: enroll them again"
            )
        table = np.stack([voice.embedding for voice in sides])
        on_device = torch.from_numpy(table).to(self.device)
        scores = self.model.similarity(on_device[:-1], on_device[-1:])[:, 0].double().cpu().numpy()
        calibration = self.model.calibration
        if calibration is None:
            return scores, None
        others, this = np.arange(len(voices)), np.full(len(voices), len(voices))
        seconds = np.array([voice.seconds for voice in sides])
        return scores, calibration.apply(scores, quality_measures(others, this, seconds, table))

    def _threshold(
        self, prior: float | None, false_accept_rate: float | None, voices: int
    ) -> tuple[float, float | None, str]:
        """The prior, the threshold (a log likelihood ratio or else a score), and its reason."""
        calibration = self.model.calibration
        if calibration is None:
            for value, name in ((prior, "probabilities"), (false_accept_rate, "error rates")):
                if value is not None:
                    raise ValueError(f"{NO_CALIBRATION} {name}: leave that out, or calibrate it")
            own = self.model.threshold
            if own is None:
                return 0.5, None, "the model has neither a calibration nor a threshold of its own"
            return 0.5, own, f"accepted from the model's own threshold on, a score of {own:.3g}"
        prior = 0.5 if prior is None else prior
        neutral = np.log(voices) - log_odds(prior)
        if false_accept_rate is None:
            return prior, float(neutral), f"accepted from a probability of 0.5 on (prior {prior:g})"
        return prior, *_rate_threshold(calibration, false_accept_rate, voices)


def as_list(recordings: Recordings) -> list[Recording]:
    """One recording or several as a list of them."""
    if isinstance(recordings, str | os.PathLike | np.ndarray | Tensor):
        recordings = [recordings]
    several = list(recordings)
    for one in several:
        if not isinstance(one, str | os.PathLike | np.ndarray | Tensor):
            raise ValueError(
                f"a recording is a path, an array or a tensor, not a {type(one).__name__}; several "
                "of them come as a list"
            )
    return [Path(one) if isinstance(one, os.PathLike) else one for one in several]


def _voice(embeddings: NDArray[np.float32], qualities: Sequence[RecordingQuality]) -> Voice:
    """The voice of recordings with embeddings (n, dim)."""
    mean = embeddings.astype(np.float64).mean(axis=0).astype(np.float32)
    return Voice(mean, len(embeddings), sum(quality.seconds for quality in qualities))


def _rate_threshold(
    calibration: Calibration, false_accept_rate: float, voices: int
) -> tuple[float, str]:
    """The log likelihood ratio at which strangers are accepted at a rate, and the reason."""
    found = calibration.threshold_at(false_accept_rate, voices)
    ratio = found.log_likelihood_ratio
    because = f"accepted from a likelihood ratio of e^{ratio:.1f} on, for a false-accept rate of "
    because += f"{false_accept_rate:g}" if voices == 1 else f"{false_accept_rate:g} / {voices}"
    if found.extrapolated:
        because += " (extrapolated: the calibration list is too short to measure it)"
    return ratio, because


def _at_least(threshold: float | None, value: float) -> bool | None:
    """Whether a value reaches a threshold; None without one."""
    return None if threshold is None else value >= threshold
