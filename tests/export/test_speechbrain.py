"""Laws of SpeechBrain folders: its own classes load them and give the model's own scores."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from simple_spk.export.speechbrain import export_speechbrain
from simple_spk.inference.extractor import Extractor
from simple_spk.inference.model import Model
from simple_spk.models.fbank import Fbank
from simple_spk.models.resnet import ResNet
from simple_spk.models.similarity import CosineSimilarity, GeneralizedInnerProduct, Similarity

SIMILARITIES = {
    "generalized": GeneralizedInnerProduct(0.3),
    "learned": GeneralizedInnerProduct(0.21, learnable=True),
    "cosine": CosineSimilarity(),
}
POLAR = {"form": "polar", "centered": True, "initial_length": 2.0, "minimum_length": 0.5}


def load(kind: str, folder: Path, **options: Any) -> Any:
    """What SpeechBrain's EncoderClassifier or SpeakerRecognition make of a folder."""
    # Not imported above: its lazy modules break hypothesis, if they are there during collection.
    from speechbrain.inference import classifiers, speaker

    cls = getattr(speaker if kind == "SpeakerRecognition" else classifiers, kind)
    return cls.from_hparams(source=str(folder), **options)


@pytest.fixture(scope="module")
def make_model(stir: Callable[[nn.Module], nn.Module]) -> Callable[..., Model]:
    """Makes models as training would leave them."""

    def make(similarity: Similarity, threshold: float | None = 0.5) -> Model:
        torch.manual_seed(0)
        encoder = stir(ResNet(width=4, stem_stride=2, embedding_dim=16, output=POLAR))
        nn.init.normal_(encoder.output.length.weight, 0.0, 0.1)
        parts = (Fbank().eval(), encoder.eval(), similarity)
        for part in parts:
            part.requires_grad_(False)
        return Model(*parts, threshold=threshold)

    return make


def waveforms_of_lengths(
    noisy_tone: Callable[..., NDArray[np.float32]], seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Padded waveforms, many of whose lengths lie beside the edges of frames, and the lengths."""
    lengths = [8000, 7999, 7920, 7919, 7921, 5000, 400, 401, 559, 560, 561]
    tones = [noisy_tone(n / 16000, 100.0 + 9 * n % 170, seed + n) for n in lengths]
    return pad_sequence([torch.from_numpy(tone) for tone in tones], batch_first=True), (
        torch.tensor(lengths)
    )


@pytest.mark.parametrize("kind", SIMILARITIES)
def test_scores_are_the_models_own(
    kind: str,
    make_model: Callable[..., Model],
    noisy_tone: Callable[..., NDArray[np.float32]],
    tmp_path: Path,
) -> None:
    model = make_model(SIMILARITIES[kind])
    export_speechbrain(tmp_path / "export", model)
    recognition = load("SpeakerRecognition", tmp_path / "export", savedir=str(tmp_path / "saved"))
    extractor = Extractor(model)
    (first, lengths), (second, _) = (waveforms_of_lengths(noisy_tone, s) for s in (0, 100))
    relative = lengths / lengths.max()
    embeddings = [extractor.embed_waveforms(batch, lengths) for batch in (first, second)]
    expected = model.similarity.pairs(*embeddings)
    scores, accepted = recognition.verify_batch(first, second, relative, relative, threshold=0.5)
    assert type(scores) is Tensor
    assert scores.shape == (11, 1)
    torch.testing.assert_close(scores[:, 0], expected, rtol=0.0, atol=1e-5)
    assert torch.equal(accepted[:, 0], expected > 0.5)
    for row, (score, length) in enumerate(zip(expected, lengths, strict=True)):
        alone, _ = recognition.verify_batch(first[row, :length], second[row, :length])
        torch.testing.assert_close(alone[0, 0], score, rtol=0.0, atol=1e-4)


def test_embeddings_of_an_encoder_classifier(
    make_model: Callable[..., Model],
    noisy_tone: Callable[..., NDArray[np.float32]],
    tmp_path: Path,
) -> None:
    model = make_model(GeneralizedInnerProduct())
    export_speechbrain(tmp_path / "export", model)
    classifier = load("EncoderClassifier", tmp_path / "export")
    waveforms, lengths = waveforms_of_lengths(noisy_tone)
    expected = Extractor(model).embed_waveforms(waveforms, lengths)
    found = classifier.encode_batch(waveforms, lengths / lengths.max())
    assert found.shape == (11, 1, 16)
    torch.testing.assert_close(found.squeeze(1), expected, rtol=0.0, atol=1e-6)
    for plain in (found.squeeze(1), found + 0.0, found[:, 0], found.cpu()[0] * 2):
        assert type(plain) is Tensor
    # cosines of what was computed from embeddings are cosines
    cosine = torch.cosine_similarity(found.squeeze(1)[:1], found.squeeze(1)[1:2])
    reference = torch.cosine_similarity(expected[:1], expected[1:2])
    torch.testing.assert_close(cosine, reference)


def test_files(make_model: Callable[..., Model], recordings: list[Path], tmp_path: Path) -> None:
    """Of another sample rate, too: the audio_normalizer of the folder knows the model's."""
    model = make_model(GeneralizedInnerProduct())
    front_end = Fbank(sample_rate=8000).eval()
    export_speechbrain(tmp_path / "export", model._replace(front_end=front_end))
    recognition = load("SpeakerRecognition", tmp_path / "export")
    assert len(recognition.load_audio(str(recordings[0]))) == 4000
    score, _ = recognition.verify_files(str(recordings[0]), str(recordings[1]))
    assert score.isfinite()


def test_the_threshold_is_in_the_file(make_model: Callable[..., Model], tmp_path: Path) -> None:
    export_speechbrain(tmp_path, make_model(GeneralizedInnerProduct(), 1.25))
    assert "threshold=1.25" in (tmp_path / "hyperparams.yaml").read_text()
    export_speechbrain(tmp_path, make_model(GeneralizedInnerProduct(), None))
    assert "threshold=" not in (tmp_path / "hyperparams.yaml").read_text()


def test_real_recordings(make_model: Callable[..., Model], tmp_path: Path) -> None:
    if not os.environ.get("SIMPLE_SPK_DATA"):
        pytest.skip("set SIMPLE_SPK_DATA to a folder with real speech (speech/manifest.csv)")
    folder = Path(os.environ["SIMPLE_SPK_DATA"]) / "speech"
    speech = [
        torch.from_numpy(soundfile.read(path, dtype="float32")[0])
        for path in sorted(folder.rglob("*.ogg"))[::397][:16]
    ]
    model = make_model(GeneralizedInnerProduct())
    export_speechbrain(tmp_path, model)
    recognition = load("SpeakerRecognition", tmp_path)
    extractor = Extractor(model)
    alone = torch.cat([extractor.embed_waveforms(waveform[None]) for waveform in speech])
    expected = model.similarity.pairs(alone[:8], alone[8:])
    sides, shares = [], []
    for half in (speech[:8], speech[8:]):
        sides.append(pad_sequence(half, batch_first=True))
        shares.append(torch.tensor([len(waveform) for waveform in half]) / sides[-1].shape[1])
    scores, _ = recognition.verify_batch(*sides, *shares)
    torch.testing.assert_close(scores[:, 0], expected, rtol=0.0, atol=1e-4)
