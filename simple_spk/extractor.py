"""Use a trained model: recordings in, embeddings, scores and decisions out."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from simple_spk.model_folder import Model, load_model
from simple_spk.recordings import embed_recordings


class Verdict(NamedTuple):
    """The answer to: do two recordings have one speaker? accepted is None without a threshold."""

    score: float
    threshold: float | None
    accepted: bool | None


class Extractor:
    """Embeds recordings with a model; answers do not depend on batches or on earlier calls."""

    def __init__(self, model: Model, device: str | torch.device = "cpu") -> None:
        self.model = model
        try:
            self.device = torch.device(device)
            for part in (model.front_end, model.encoder, model.similarity):
                part.to(self.device).eval()
        except (RuntimeError, AssertionError) as error:
            raise ValueError(f"the device {device!r} cannot be used: {error}") from error

    @classmethod
    def load(cls, folder: str | Path, device: str | torch.device = "cpu") -> "Extractor":
        """The extractor of a model folder, such as the one that training writes."""
        return cls(load_model(folder), device)

    @property
    def sample_rate(self) -> int:
        """The rate, in hertz, that recordings are brought to."""
        return self.model.front_end.sample_rate

    def embed(
        self,
        recordings: Sequence[str | Path],
        batch_seconds: float = 120.0,
        workers: int = 0,
        progress: bool = False,
    ) -> NDArray[np.float32]:
        """Embeddings (n, dim) of n audio files, in their order."""
        paths = [Path(recording) for recording in recordings]
        return embed_recordings(
            paths, self.embed_waveforms, self.sample_rate, batch_seconds, workers, progress
        )

    @torch.no_grad()
    def embed_waveforms(self, waveforms: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Embeddings (n, dim) of waveforms (n, samples) in [-1, 1], padded behind lengths (n,)."""
        if lengths is not None:
            lengths = lengths.to(self.device)
        return self.model.encoder(*self.model.front_end(waveforms.to(self.device), lengths))

    @torch.no_grad()
    def verify(self, enrol: str | Path, test: str | Path) -> Verdict:
        """The similarity of two audio files and SimPLE's own decision: accept from -b upwards."""
        first, second = torch.from_numpy(self.embed([enrol, test])).to(self.device).split(1)
        score = float(self.model.similarity.pairs(first, second))
        threshold = self.model.threshold
        return Verdict(score, threshold, None if threshold is None else score >= threshold)
