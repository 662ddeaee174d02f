"""Laws of imports from SpeechBrain, 3D-Speaker and ONNX: the same embeddings, nothing executed."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from simple_spk.export.speechbrain_ecapa import import_speechbrain
from simple_spk.export.three_d_speaker import import_three_d_speaker
from simple_spk.export.wespeaker import import_wespeaker
from simple_spk.inference.model import Model
from simple_spk.inference.model_folder import load_model
from simple_spk.models.cam_plus_plus import CamPlusPlus, DenseLayer, Segments
from simple_spk.models.encoder_checks import check_encoder, relative_difference, stir
from simple_spk.models.pooling import ValidFrames
from simple_spk.models.resnet import ResNet
from tests.command_line import run

Waveform = Callable[..., NDArray[np.float32]]
ECAPA = """
n_mels: 24
compute_features: !new:speechbrain.lobes.features.Fbank
    n_mels: !ref <n_mels>
mean_var_norm: !new:speechbrain.processing.features.InputNormalization
    norm_type: sentence
    std_norm: False
embedding_model: !new:speechbrain.lobes.models.ECAPA_TDNN.ECAPA_TDNN
    input_size: !ref <n_mels>
    channels: [16, 16, 16, 16, 32]
    kernel_sizes: [5, 3, 3, 3, 1]
    dilations: [1, 2, 3, 4, 1]
    lin_neurons: 6
"""


def embed(model: Model, waveform: NDArray[np.float32]) -> Tensor:
    return model.encoder(*model.front_end(torch.from_numpy(waveform)[None]))[0]


@pytest.fixture
def ecapa_folder(tmp_path: Path) -> tuple[Path, nn.Module]:
    """A small ECAPA-TDNN of SpeechBrain in a folder, and itself."""
    from speechbrain.lobes.models.ECAPA_TDNN import ECAPA_TDNN

    torch.manual_seed(0)
    theirs: Any = stir(ECAPA_TDNN(24, channels=[16, 16, 16, 16, 32], lin_neurons=6)).eval()
    torch.save(theirs.state_dict(), tmp_path / "embedding_model.ckpt")
    (tmp_path / "hyperparams.yaml").write_text(ECAPA)
    return tmp_path, theirs


@torch.no_grad()
def test_embeddings_equal_speechbrains(
    ecapa_folder: tuple[Path, nn.Module], noisy_tone: Waveform
) -> None:
    from speechbrain.lobes.features import Fbank
    from speechbrain.processing.features import InputNormalization

    folder, theirs = ecapa_folder
    features, norm = Fbank(n_mels=24), InputNormalization(norm_type="sentence", std_norm=False)
    model = import_speechbrain(folder)
    for seconds in (0.2, 0.777, 2.0):
        waveform = noisy_tone(seconds, hertz=100.0 * seconds)
        waveform[len(waveform) // 2 :] *= 1e-4  # below the floor of 80 dB
        expected = theirs(norm(features(torch.from_numpy(waveform)[None])))[0, 0]
        assert relative_difference(embed(model, waveform), expected) < 1e-4


class WithLengths(nn.Module):
    """SpeechBrain's ECAPA-TDNN behind our protocol: its lengths are relative."""

    num_mels = 24

    def __init__(self, theirs: nn.Module) -> None:
        super().__init__()
        self.theirs = theirs

    def forward(self, features: Tensor, lengths: Tensor | None = None) -> Tensor:
        relative = None if lengths is None else lengths / features.shape[1]
        return self.theirs(features, relative)[:, 0]


def test_speechbrains_own_depends_on_padding(ecapa_folder: tuple[Path, nn.Module]) -> None:
    """Which is why ``EcapaTdnn`` is written by hand."""
    with pytest.raises(AssertionError, match="padding changes the embedding"):
        check_encoder(WithLengths(ecapa_folder[1]), lengths=(60, 40, 9))


STRANGE = {
    "another encoder": ("ECAPA_TDNN.ECAPA_TDNN", "Xvector.Xvector", "embedding_model"),
    "another front end": ("features.Fbank", "features.MFCC", "compute_features"),
    "a setting of it": ("    n_mels: !ref", "    f_min: 20\n    n_mels: !ref", "f_min"),
    "global normalization": ("sentence", "global", "norm_type"),
    "variances": ("    std_norm: False\n", "", "std_norm"),
    "other sizes of kernels": ("[5, 3, 3, 3, 1]", "[3, 3, 3, 3, 1]", "kernel_sizes"),
    "a dilation too few": ("[1, 2, 3, 4, 1]", "[1, 2, 3, 1]", r"embedding_model\.ckpt"),
    "dilations of text": ("[1, 2, 3, 4, 1]", "[1, a, b, c, 1]", "dilations"),
}


@pytest.mark.parametrize("kind", STRANGE)
def test_what_else_speechbrain_has_is_named(
    kind: str, ecapa_folder: tuple[Path, nn.Module]
) -> None:
    folder, _ = ecapa_folder
    old, new, word = STRANGE[kind]
    assert old in ECAPA
    (folder / "hyperparams.yaml").write_text(ECAPA.replace(old, new))
    with pytest.raises(ValueError, match=word):
        import_speechbrain(folder)


def test_a_yaml_file_of_speechbrain_executes_nothing(
    ecapa_folder: tuple[Path, nn.Module], tmp_path: Path
) -> None:
    folder, _ = ecapa_folder
    trace = tmp_path / "executed"
    text = f"{ECAPA}\nextra: !apply:os.system ['touch {trace}']\n"
    (folder / "hyperparams.yaml").write_text(text)
    import_speechbrain(folder)
    assert not trace.exists()


def three_d_speaker_weights(encoder: CamPlusPlus) -> dict[str, Tensor]:
    """The weights of a CAM++ by the names that 3D-Speaker has."""
    names = (
        (
            r"^blocks\.(\d+)\.(\d+)\.",
            lambda m: f"xvector.block{int(m[1]) + 1}.tdnnd{int(m[2]) + 1}.",
        ),
        (
            r"^transitions\.(\d+)\.0\.",
            lambda m: f"xvector.transit{int(m[1]) + 1}.nonlinear.batchnorm.",
        ),
        (r"^transitions\.(\d+)\.2\.", lambda m: f"xvector.transit{int(m[1]) + 1}.linear."),
        (r"^tdnn\.", "xvector.tdnn.linear."),
        (r"^tdnn_norm\.", "xvector.tdnn.nonlinear.batchnorm."),
        (r"^norm\.", "xvector.out_nonlinear.batchnorm."),
        (r"^output\.linear\.", "xvector.dense.linear."),
        (r"^output\.centering\.", "xvector.dense.nonlinear.batchnorm."),
        (r"(tdnnd\d+)\.norm([12])\.", r"\1.nonlinear\2.batchnorm."),
        (r"\.local\.", ".cam_layer.linear_local."),
        (r"\.squeeze\.", ".cam_layer.linear1."),
        (r"\.excite\.", ".cam_layer.linear2."),
    )
    weights = {}
    for name, tensor in encoder.state_dict().items():
        for pattern, replacement in names:
            name = re.sub(pattern, replacement, name)
        weights[name] = tensor
    weights["xvector.dense.linear.weight"] = weights["xvector.dense.linear.weight"][..., None]
    del weights["xvector.dense.linear.bias"]  # BatchNorm follows
    return weights


@pytest.fixture
def cam_plus_plus() -> CamPlusPlus:
    torch.manual_seed(0)
    encoder = CamPlusPlus(24, 4, 16, 4, (3, 2, 1), embedding_dim=6, output={"centered": True})
    nn.init.zeros_(encoder.output.linear.bias)
    return stir(encoder).eval()  # type: ignore[return-value]


@torch.no_grad()
def test_weights_of_3d_speaker_find_their_places(
    cam_plus_plus: CamPlusPlus, noisy_tone: Waveform, tmp_path: Path
) -> None:
    nn.init.zeros_(cam_plus_plus.output.linear.bias)
    torch.save(three_d_speaker_weights(cam_plus_plus), tmp_path / "campplus.bin")
    model = import_three_d_speaker(tmp_path / "campplus.bin")
    assert model.encoder.arguments["layers"] == [3, 2, 1]
    waveform = noisy_tone(1.0)
    features, _ = model.front_end(torch.from_numpy(waveform)[None])
    assert torch.equal(embed(model, waveform), cam_plus_plus(features)[0])


def test_other_weights_are_no_cam_plus_plus(cam_plus_plus: CamPlusPlus, tmp_path: Path) -> None:
    weights = three_d_speaker_weights(cam_plus_plus)
    for change in ({"head.extra.weight": torch.zeros(2)}, {"head.bn1.bias": torch.zeros(5)}):
        torch.save(weights | change, tmp_path / "campplus.bin")
        with pytest.raises(ValueError, match=r"campplus\.bin.*CAM\+\+"):
            import_three_d_speaker(tmp_path / "campplus.bin")
    torch.save({"conv1.weight": torch.zeros(2)}, tmp_path / "other.bin")
    with pytest.raises(ValueError, match=r"other\.bin.*CAM\+\+"):
        import_three_d_speaker(tmp_path / "other.bin")


@pytest.mark.parametrize("time", [1, 99, 100, 101, 250])
@torch.no_grad()
def test_a_dense_layer_of_cam_plus_plus_is_that_of_the_paper(time: int) -> None:
    """Context for each frame: the mean of all frames plus the mean of its segment."""
    torch.manual_seed(0)
    layer = stir(DenseLayer(10, 4, dilation=2)).eval()
    frames = torch.randn(2, 10, time)
    hidden = torch.relu(layer.norm2(layer.linear1(torch.relu(layer.norm1(frames)))))
    means = functional.avg_pool1d(hidden, 100, 100, ceil_mode=True)
    context = hidden.mean(dim=-1, keepdim=True) + means.repeat_interleave(100, dim=-1)[..., :time]
    weights = torch.sigmoid(layer.excite(torch.relu(layer.squeeze(context))))
    expected = layer.local(hidden) * weights
    found = layer(frames, ValidFrames(None), Segments(frames, None))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


class WithMean(nn.Module):
    """An encoder from whose embeddings a mean is subtracted, as WeSpeaker's exports do."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        self.register_buffer("mean", torch.linspace(-1.0, 1.0, 6))

    def forward(self, features: Tensor) -> Tensor:
        return self.encoder(features) - self.mean


@pytest.mark.parametrize("blocks", [(2, 2, 2, 2), (3, 4, 6, 3)], ids=["18", "34"])
@torch.no_grad()
def test_an_onnx_file_of_wespeaker(
    blocks: tuple[int, ...], noisy_tone: Waveform, tmp_path: Path
) -> None:
    pytest.importorskip("onnx", reason="pip install -e '.[onnx]'")
    torch.manual_seed(0)
    encoder = WithMean(stir(ResNet(width=4, blocks=blocks, embedding_dim=6))).eval()
    path = tmp_path / "voxceleb_resnet34.onnx"
    example = (torch.randn(1, 50, 80),)
    torch.onnx.export(encoder, example, path, dynamo=False, dynamic_axes={"feats": {1: "t"}},
                      input_names=["feats"], output_names=["embs"])  # fmt: skip
    assert run("export", "--from", "wespeaker", path, tmp_path / "model") == 0
    model = load_model(tmp_path / "model")
    waveform = noisy_tone(0.9)
    features, _ = model.front_end(torch.from_numpy(waveform)[None])
    assert relative_difference(embed(model, waveform), encoder(features)[0]) < 1e-4


@pytest.mark.parametrize("kind", ["random bytes", "truncated", "two linear layers"])
def test_another_onnx_file_is_named(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason="pip install -e '.[onnx]'")
    path = tmp_path / "other.onnx"
    network = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    torch.onnx.export(network, (torch.zeros(1, 4),), path, dynamo=False)
    if kind == "random bytes":
        path.write_bytes(bytes(range(256)) * 9)
    elif kind == "truncated":
        path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ValueError, match=r"other\.onnx"):
        import_wespeaker(path)


def test_an_imported_model_can_be_calibrated(
    cam_plus_plus: CamPlusPlus, audio_folder: Path, trials: Path, spoken: list[Path], tmp_path: Path
) -> None:
    """From published weights to a folder that states probabilities."""
    torch.save(three_d_speaker_weights(cam_plus_plus), tmp_path / "campplus.bin")
    plain, folder = tmp_path / "plain", tmp_path / "calibrated"
    assert run("export", "--from", "3dspeaker", tmp_path / "campplus.bin", plain) == 0
    scores, calibration = tmp_path / "scores.txt", tmp_path / "calibration.json"
    options = ["--audio-folder", audio_folder, "--trials", trials, "-o", scores, "--replicates", 0]
    assert run("evaluate", "--model", plain, *options) == 0
    assert run("calibrate", scores, "--trials", trials, "-o", calibration) == 0
    assert run("export", plain, folder, "--calibration", calibration) == 0
    assert load_model(folder).calibration is not None
    assert run("verify", "--model", folder, *spoken[:2]) in (0, 3, 4)
