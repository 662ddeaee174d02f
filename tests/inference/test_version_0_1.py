"""Files that version 0.1 wrote still load and give the same answers.

The folder version_0_1 holds a model folder of format 2 that uses every option of the embedding
head, the voices that version 0.1 enrolled with it, and the embeddings that it computed.
"""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from simple_spk import Extractor
from simple_spk.inference.model_folder import load_model, save_model

FOLDER = Path(__file__).parent / "version_0_1"
EXPECTED = json.loads((FOLDER / "expected.json").read_text())
RATE = 16000


@pytest.fixture(scope="module")
def waveforms(noisy_tone: Callable[..., NDArray[np.float32]]) -> dict[str, NDArray[np.float32]]:
    """The waveforms (samples,) that version 0.1 embedded."""
    settings = {"a0": (1.6, 90.0, 0), "a1": (1.9, 91.0, 1), "b0": (1.6, 170.0, 2)}
    return {name: noisy_tone(*setting) for name, setting in settings.items()}


@pytest.fixture(scope="module")
def extractor() -> Extractor:
    return Extractor.load(FOLDER)


def test_embeddings_and_answers_are_those_of_version_0_1(
    extractor: Extractor, waveforms: dict[str, NDArray[np.float32]]
) -> None:
    for name, expected in EXPECTED["embeddings"].items():
        found = extractor.embed(waveforms[name], RATE)[0]
        np.testing.assert_allclose(found, expected, rtol=0.0, atol=1e-6)
    answer = extractor.verify(waveforms["a0"], waveforms["b0"], RATE)
    assert answer.score == pytest.approx(EXPECTED["score_a0_b0"], abs=1e-5)
    assert answer.probability == pytest.approx(EXPECTED["probability_a0_b0"], abs=1e-6)


def test_voices_are_accepted_by_fingerprint(
    extractor: Extractor, waveforms: dict[str, NDArray[np.float32]]
) -> None:
    assert extractor.fingerprint == EXPECTED["fingerprint"]
    voices = extractor.load_voices(FOLDER / "voices.safetensors")
    assert [(name, voice.recordings) for name, voice in voices.items()] == [("Ann", 2), ("Bo", 1)]
    expected = EXPECTED["embeddings"]
    np.testing.assert_allclose(voices["Bo"].embedding, expected["b0"], atol=1e-6)
    assert {one.name for one in extractor.identify(waveforms["b0"], RATE).candidates} == set(voices)


def test_a_model_saved_again_keeps_its_fingerprint(tmp_path: Path) -> None:
    """The new folder has the new names; the voices of version 0.1 are still its own."""
    save_model(tmp_path, load_model(FOLDER))
    assert "format: 4" in (tmp_path / "config.yaml").read_text()
    assert "centred" not in (tmp_path / "config.yaml").read_text()
    again = Extractor.load(tmp_path)
    assert again.fingerprint == EXPECTED["fingerprint"]
    assert len(again.load_voices(FOLDER / "voices.safetensors")) == 2
