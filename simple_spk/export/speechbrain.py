"""A model as a folder that SpeechBrain's EncoderClassifier and SpeakerRecognition load.

Nothing here imports SpeechBrain: its folders are a YAML file that names classes, simple_spk's among
them, and a file of weights. (SpeechBrain executes what the YAML file of a folder names.)
"""

from collections.abc import Mapping
from pathlib import Path
from textwrap import indent
from typing import Any

import torch
import yaml
from torch import Tensor, nn

from simple_spk.inference.model import Model
from simple_spk.io.atomic_file import atomic_write, write_text
from simple_spk.models.similarity import Similarity

SETTINGS, WEIGHTS = "hyperparams.yaml", "embedding_model.ckpt"  # SpeechBrain's names


class ScoredEmbeddings(Tensor):
    """Embeddings (n, 1, dim) for which torch's cosine_similarity is the model's similarity.

    SpeakerRecognition always scores with that function. All other results are plain tensors.
    """

    similarity: Similarity

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: tuple = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            if function is torch.cosine_similarity and all(type(a) is cls for a in args[:2]):
                enroll, test = (a.as_subclass(Tensor) for a in args[:2])
                return args[0].similarity.pairs(enroll, test)
            return function(*args, **(kwargs or {}))


class SpeakerEmbedding(nn.Module):
    """SpeechBrain's embedding_model: from waveforms to embeddings (n, 1, dim).

    Features are computed here, not in compute_features, because SpeechBrain gives relative lengths:
    those of samples give the exact number of valid frames, those of frames do not.
    """

    def __init__(self, front_end: nn.Module, encoder: nn.Module, similarity: Similarity) -> None:
        super().__init__()
        self.front_end, self.encoder, self.similarity = front_end, encoder, similarity

    def forward(self, waveforms: Tensor, relative_lengths: Tensor | None = None) -> Tensor:
        lengths = None
        if relative_lengths is not None:
            lengths = (relative_lengths.double() * waveforms.shape[1]).round().long()
        embeddings = self.encoder(*self.front_end(waveforms, lengths))
        scored = embeddings[:, None].as_subclass(ScoredEmbeddings)
        scored.similarity = self.similarity
        return scored


class Unchanged(nn.Module):
    """The identity, in place of SpeechBrain's compute_features and mean_var_norm."""

    def forward(self, inputs: Tensor, lengths: Tensor | None = None) -> Tensor:
        return inputs


def export_speechbrain(folder: str | Path, model: Model) -> None:
    """Write a model as a folder for SpeechBrain."""
    folder = Path(folder)
    embedding_model = SpeakerEmbedding(model.front_end, model.encoder, model.similarity)
    settings = _SETTINGS.format(
        parts="".join(_new(name, part) for name, part in embedding_model.named_children()),
        sample_rate=model.front_end.sample_rate,
        decision="" if model.threshold is None else _DECISION.format(model.threshold),
    )
    with atomic_write(folder / WEIGHTS) as partial:
        torch.save(embedding_model.state_dict(), partial)
    write_text(folder / SETTINGS, settings)


def _new(name: str, part: Any) -> str:
    """The YAML text that builds a part."""
    cls = type(part)
    arguments = yaml.safe_dump(part.arguments, sort_keys=False)
    return f"{name}: !new:{cls.__module__}.{cls.__qualname__}\n{indent(arguments, '    ')}"


_DECISION = """
# Its own decision: verify_batch(..., threshold={:.6g}); the default, 0.25, is of other models."""

_SETTINGS = """# A simple_spk model for SpeechBrain; the package simple_spk must be installed, too.
#   SpeakerRecognition.from_hparams(source=FOLDER, savedir=ANOTHER).verify_batch(wavs1, wavs2)
# Scores are the model's own, as those of simple-spk verify.{decision}

{parts}
compute_features: !new:simple_spk.export.speechbrain.Unchanged
mean_var_norm: !new:simple_spk.export.speechbrain.Unchanged
embedding_model: !new:simple_spk.export.speechbrain.SpeakerEmbedding
    front_end: !ref <front_end>
    encoder: !ref <encoder>
    similarity: !ref <similarity>
audio_normalizer: !new:speechbrain.dataio.preprocess.AudioNormalizer
    sample_rate: {sample_rate}

modules:
    compute_features: !ref <compute_features>
    mean_var_norm: !ref <mean_var_norm>
    embedding_model: !ref <embedding_model>
pretrainer: !new:speechbrain.utils.parameter_transfer.Pretrainer
    loadables:
        embedding_model: !ref <embedding_model>
"""
