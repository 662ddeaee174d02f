"""What several tests need: short recordings, and small models whose every layer matters."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from numpy.typing import NDArray
from torch import nn

from simple_spk.evaluation.calibration import Calibration
from simple_spk.evaluation.ratio_spread import Spread
from simple_spk.inference import speech_detector
from simple_spk.inference.model import trained_model
from simple_spk.inference.model_folder import load_model, save_model
from simple_spk.losses.simple import SimPLELoss
from simple_spk.models.encoder_checks import stir as stir_norms
from simple_spk.models.fbank import Fbank
from simple_spk.models.resnet import ResNet
from tests.command_line import TRIALS

SAMPLE_RATE = 16000


def remove_lazy_modules() -> None:
    """Remove SpeechBrain's lazy modules from sys.modules.

    Hypothesis inspects every module there, which would import them, and some cannot be imported.
    """
    for name, module in list(sys.modules.items()):
        if type(module).__name__ in ("LazyModule", "DeprecatedModuleRedirect"):
            del sys.modules[name]


def pytest_collection_modifyitems() -> None:
    """Remove the lazy modules that collecting tests and doctests imported."""
    remove_lazy_modules()


def pytest_itemcollected() -> None:
    """The same after each item: hypothesis may look while others are still being collected."""
    remove_lazy_modules()


@pytest.fixture(autouse=True)
def no_lazy_modules() -> Iterator[None]:
    """Remove the lazy modules that a test imported."""
    yield
    remove_lazy_modules()


@pytest.fixture(autouse=True)
def speech_by_energy(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Find speech by energy, also where silero-vad is installed: synthetic sounds are not speech to
    it. Tests of the detector itself have the marker silero_vad."""
    if request.node.get_closest_marker("silero_vad") is None:
        monkeypatch.setattr(speech_detector, "_session", lambda: None)


@pytest.fixture(scope="session")
def noisy_tone() -> Callable[..., NDArray[np.float32]]:
    """Makes waveforms (samples,) of a buzzing tone in noise, the same for the same arguments."""

    def make(seconds: float, hertz: float = 150.0, seed: int = 0) -> NDArray[np.float32]:
        time = np.arange(round(seconds * SAMPLE_RATE)) / SAMPLE_RATE
        harmonics = sum(np.sin(2 * np.pi * hertz * n * time) / n for n in range(1, 9))
        noise = np.random.default_rng(seed).standard_normal(len(time))
        waveform = 0.1 * (1.2 + np.sin(6.0 * time)) * harmonics + 0.01 * noise
        return waveform.astype(np.float32)

    return make


@pytest.fixture(scope="session")
def audio_folder(
    noisy_tone: Callable[..., NDArray[np.float32]], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A folder of six recordings of different lengths: a0, a1 (deep), b0, ... (higher), c0, ..."""
    folder = tmp_path_factory.mktemp("audio")
    for number, (name, hertz) in enumerate((("a", 90.0), ("b", 170.0), ("c", 260.0))):
        for take in range(2):
            seed = 2 * number + take
            waveform = noisy_tone(0.5 + 0.13 * seed, hertz + 3.0 * take, seed)
            soundfile.write(folder / f"{name}{take}.wav", waveform, SAMPLE_RATE)
    return folder


@pytest.fixture(scope="session")
def recordings(audio_folder: Path) -> list[Path]:
    """The paths of the recordings in ``audio_folder``."""
    return sorted(audio_folder.glob("*.wav"))


@pytest.fixture(scope="session")
def spoken(
    noisy_tone: Callable[..., NDArray[np.float32]], tmp_path_factory: pytest.TempPathFactory
) -> list[Path]:
    """Six recordings that are long enough to decide on: a0, a1 (one voice), b0, b1, c0, c1."""
    folder = tmp_path_factory.mktemp("spoken")
    paths = []
    for number, (name, hertz) in enumerate((("a", 90.0), ("b", 170.0), ("c", 260.0))):
        for take in range(2):
            waveform = noisy_tone(1.6 + 0.3 * take, hertz + take, 2 * number + take)
            paths.append(folder / f"{name}{take}.wav")
            soundfile.write(paths[-1], waveform, SAMPLE_RATE)
    return paths


@pytest.fixture(scope="session")
def stir() -> Callable[[nn.Module], nn.Module]:
    """Gives a module's BatchNorms values unlike their initial ones, as training would."""
    return stir_norms


@pytest.fixture
def tiny_model(stir: Callable[[nn.Module], nn.Module]) -> tuple[Fbank, ResNet, SimPLELoss]:
    """A front end, an encoder and a loss, in evaluation mode, as training would leave them."""
    torch.manual_seed(0)
    encoder = ResNet(width=4, stem_stride=2, embedding_dim=16)
    return Fbank().eval(), stir(encoder).eval(), SimPLELoss(initial_bias=-0.5).eval()


@pytest.fixture
def model_folder(tiny_model: tuple[Fbank, ResNet, SimPLELoss], tmp_path: Path) -> Path:
    """The folder of ``tiny_model``."""
    save_model(tmp_path / "model", trained_model(*tiny_model))
    return tmp_path / "model"


@pytest.fixture
def trials(tmp_path: Path) -> Path:
    """A labeled list of all pairs of the recordings in ``audio_folder``."""
    path = tmp_path / "trials.txt"
    path.write_text("".join(f"{int(same)} {x} {y}\n" for x, y, same in TRIALS))
    return path


@pytest.fixture
def unlabeled(tmp_path: Path) -> Path:
    """The same list without its labels."""
    path = tmp_path / "unlabeled.txt"
    path.write_text("".join(f"{x} {y}\n" for x, y, _ in TRIALS))
    return path


@pytest.fixture
def calibrated_folder(model_folder: Path) -> Path:
    """A model folder whose calibration accepts nearly all pairs, with two measured rates."""
    spread = Spread({}, {}, ((0.1, 2.0), (0.01, 400.0)), 990)
    calibration = Calibration(
        1.0, 5.0, {"least_length": 0.01}, 0.5, "list", 1000, 10, nontarget_spread=spread
    )
    save_model(model_folder, load_model(model_folder)._replace(calibration=calibration))
    return model_folder
