"""A whole training step against those of SpeechBrain's and WeSpeaker's recipes, in CPU time.

Reading crops, augmentation, filterbank, encoder forward and backward, AAM-Softmax and update, all
in one process with one thread. Encoder, crop length, classes and crops per step are the same. The
measure is CPU seconds per crop that enters the encoder, which a busy second core changes little.

Ours: our loader, Augmentation, Fbank, ArcFaceLoss and SimPLEBrain, in the layout channels_last.

SpeechBrain: everything is its installed 1.1 but the encoder, put together as its file
VoxCeleb/SpeakerRec/hparams/train_resnet.yaml: DynamicItemDataset and PaddedBatch, an Augmenter that
appends a noisy, a reverberant, a frequency-dropped and a chunk-dropped copy to each crop (five
encoded crops per crop read), Fbank, sentence mean normalization, Classifier, AdditiveAngularMargin
with LogSoftmaxWrapper, Brain.fit_batch, Adam. Only the reading of the crop is a line of ours.

WeSpeaker: is not on PyPI and does not run with torchaudio 2.11; rebuilt from its processor.py in
its order: read the whole file, speed perturbation, random chunk, noise or room with probability
0.6 by scipy, torchaudio's Kaldi filterbank per utterance, mean normalization. Different from
theirs: torchaudio's resampling with kept kernels instead of sox, plain files instead of LMDB, our
ArcFaceLoss, which is the same formula as theirs.
"""

import argparse
import random
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import speechbrain as sb
import torch
import torchaudio
from numpy.typing import NDArray
from scipy import signal
from speechbrain.augment.augmenter import Augmenter
from speechbrain.augment.preparation import write_csv
from speechbrain.augment.time_domain import AddNoise, AddReverb, DropChunk, DropFreq
from speechbrain.dataio.audio_io import load as speechbrain_load
from speechbrain.dataio.batch import PaddedBatch
from speechbrain.dataio.dataset import DynamicItemDataset
from speechbrain.lobes.features import Fbank as SpeechBrainFbank
from speechbrain.lobes.models.ECAPA_TDNN import Classifier
from speechbrain.nnet.losses import AdditiveAngularMargin, LogSoftmaxWrapper
from speechbrain.processing.features import InputNormalization
from torch import nn
from torchaudio.compliance import kaldi

from simple_spk.data.augmentation import MUSAN, Augmentation
from simple_spk.data.dataset import speaker_crop_loader
from simple_spk.data.manifest import write_manifest
from simple_spk.losses.margin import ArcFaceLoss
from simple_spk.models.fbank import Fbank
from simple_spk.models.resnet import ResNet
from simple_spk.training.brain import SimPLEBrain
from simple_spk.training.log import TrainingLog
from tools.benchmarks.measure import Row, cpu_in_turns

THREADS = 1
RATE, RECORDING_SECONDS, SPEAKERS, RECORDINGS = 16000, 8, 40, 4
CLASSES = 5994  # of VoxCeleb2
ROUNDS = 3
COPIES = 5  # of a crop in SpeechBrain's recipe: itself and four augmented ones
SETTINGS: dict[str, tuple[dict[str, Any], int, float]] = {
    "ResNet-34 of width 8, stem stride 2, 80 crops of 2 s": (
        {"width": 8, "stem_stride": 2, "embedding_dim": 128},
        *(80, 2.0),
    ),
    "ResNet-34, 10 crops of 3 s": ({"embedding_dim": 256}, 10, 3.0),
}
Step = Callable[[], object]


def run(options: argparse.Namespace) -> list[Row]:
    """CPU seconds per encoded crop of each recipe, in both precisions."""
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _make_corpus(folder)
        for title, (encoder, crops, seconds) in SETTINGS.items():
            for precision in ("fp32", "bf16"):
                steps = {
                    "ours": _our_step(folder, ResNet(**encoder), crops, seconds, precision),
                    "SpeechBrain": _speechbrain_step(
                        folder, ResNet(**encoder), crops, seconds, precision
                    ),
                    "WeSpeaker, rebuilt": _wespeaker_step(
                        folder, ResNet(**encoder), crops, seconds, precision
                    ),
                }
                spent = cpu_in_turns(steps, ROUNDS)
                rows += [
                    {
                        "encoder": title,
                        "precision": precision,
                        "recipe": recipe,
                        "CPU ms per crop": 1000 * spent[recipe] / crops,
                        "ours is faster by": spent[recipe] / spent["ours"],
                    }
                    for recipe in steps
                ]
    return rows


def _make_corpus(folder: Path) -> None:
    """Recordings, noises and room responses as wav files, with the lists of both toolkits."""
    noise = np.random.default_rng(0)

    def write(name: str, seconds: float, decay: float = 0.0) -> str:
        samples = noise.normal(size=round(seconds * RATE)) * 0.1
        samples *= np.exp(-decay * np.arange(len(samples)) / RATE)
        soundfile.write(folder / name, samples.astype(np.float32), RATE)
        return name

    names = [
        write(f"s{speaker}-{take}.wav", RECORDING_SECONDS)
        for speaker in range(SPEAKERS)
        for take in range(RECORDINGS)
    ]
    speakers = [name.partition("-")[0] for name in names]
    write_manifest(folder / "train.csv", names, names, [RECORDING_SECONDS] * len(names), speakers)
    noises = [write(f"{kind}-{take}.wav", 10.0) for kind in MUSAN for take in range(4)]
    kinds = [name.partition("-")[0] for name in noises]
    write_manifest(folder / "noises.csv", noises, noises, [10.0] * len(noises), kinds)
    rooms = [write(f"room-{take}.wav", 0.5, decay=12.0) for take in range(8)]
    write_manifest(folder / "rooms.csv", rooms, rooms, [0.5] * len(rooms), ["room"] * len(rooms))
    for name, files in (("noise", noises), ("rir", rooms)):
        write_csv([str(folder / file) for file in files], str(folder / f"speechbrain_{name}.csv"))


def _our_step(folder: Path, encoder: ResNet, crops: int, seconds: float, precision: str) -> Step:
    """A step of ours, with speed perturbation, noise and rooms."""
    loader = speaker_crop_loader(
        folder / "train.csv",
        augmentation=lambda: Augmentation(folder / "noises.csv", folder / "rooms.csv"),
        speakers_per_batch=crops // 2,
        recordings_per_speaker=2,
        crop_seconds=(seconds, seconds),
        speeds=(1.0, 0.9, 1.1),
        batches_per_epoch=1000,
        seed=0,
    )
    hparams = {
        "seed": 0,
        "schedule": lambda step: 1.0,
        "parameter_groups": None,
        "log_interval": 1000,
        "channels_last": True,
    }
    loss = ArcFaceLoss(encoder.output.linear.out_features, 3 * CLASSES)
    modules = {"front_end": Fbank(), "encoder": encoder, "loss": loss}
    brain = SimPLEBrain(modules, torch.optim.Adam, hparams, {"precision": precision})
    brain.init_optimizers()
    brain.modules.train()
    brain.epoch, brain.training_log = 1, TrainingLog(None, 1, False)
    brain.training_log.begin_epoch(1, 1000, 0)
    batches = iter(loader)

    def step() -> None:
        brain.step += 1
        brain.fit_batch(next(batches))

    return step


def _read(wav: str, samples: int) -> torch.Tensor:
    """A random crop (samples,) by SpeechBrain's reader."""
    start = random.randint(0, RECORDING_SECONDS * RATE - samples)
    return speechbrain_load(wav, num_frames=samples, frame_offset=start)[0][0]


class _Recipe(sb.Brain):
    """A step in the order of SpeechBrain's recipe for speaker embeddings."""

    def compute_forward(self, batch: Any, stage: Any) -> Any:
        waveforms, lengths = batch.signal
        waveforms, lengths = self.hparams.augment(waveforms, lengths)
        features = self.modules.normalize(self.modules.features(waveforms), lengths)
        embeddings = self.modules.encoder(features)[:, None]
        return self.modules.classifier(embeddings), lengths

    def compute_objectives(self, predictions: Any, batch: Any, stage: Any) -> Any:
        outputs, lengths = predictions
        labels = self.hparams.augment.replicate_labels(batch.speaker[:, None])
        return self.hparams.cost(outputs, labels, lengths)


def _speechbrain_step(
    folder: Path, encoder: ResNet, crops: int, seconds: float, precision: str
) -> Step:
    """A step of SpeechBrain, of which a fifth of the crops is read."""
    names = sorted(folder.glob("s[0-9]*-*.wav"))
    items = {
        str(row): {"wav": str(path), "samples": round(seconds * RATE), "speaker": row // RECORDINGS}
        for row, path in enumerate(names)
    }
    dataset = DynamicItemDataset(items)
    dataset.add_dynamic_item(_read, takes=["wav", "samples"], provides="signal")
    dataset.set_output_keys(["id", "signal", "speaker"])
    effects = [
        AddNoise(str(folder / "speechbrain_noise.csv"), snr_low=0, snr_high=15),
        AddReverb(str(folder / "speechbrain_rir.csv")),
        DropFreq(0, 1, 1, 3, 0.05),
        DropChunk(1000, 2000, 1, 5),
    ]
    augment = Augmenter(
        parallel_augment=True,
        concat_original=True,
        min_augmentations=len(effects),
        max_augmentations=len(effects),
        augmentations=effects,
    )
    modules = {
        "features": SpeechBrainFbank(n_mels=80),
        "normalize": InputNormalization(norm_type="sentence", std_norm=False),
        "encoder": encoder,
        "classifier": Classifier(encoder.output.linear.out_features, out_neurons=CLASSES),
    }
    cost = LogSoftmaxWrapper(AdditiveAngularMargin(margin=0.2, scale=30))
    hparams = {"augment": augment, "cost": cost}
    brain = _Recipe(modules, torch.optim.Adam, hparams, {"precision": precision})
    brain.init_optimizers()
    brain.modules.train()

    def batches() -> Iterator[PaddedBatch]:
        while True:
            rows = random.sample(range(len(names)), crops // COPIES)
            yield PaddedBatch([dataset[row] for row in rows])

    drawn = batches()

    def step() -> None:
        brain.step += 1
        brain.fit_batch(next(drawn))

    return step


def _wespeaker_step(
    folder: Path, encoder: ResNet, crops: int, seconds: float, precision: str
) -> Step:
    """A step in the order of WeSpeaker, whose workers compute features one by one."""
    names = sorted(folder.glob("s[0-9]*-*.wav"))
    noises = sorted(path for kind in MUSAN for path in folder.glob(f"{kind}-*.wav"))
    rooms = sorted(folder.glob("room-*.wav"))
    speeds = [None, *(torchaudio.transforms.Speed(RATE, factor) for factor in (0.9, 1.1))]
    samples = round(seconds * RATE)
    loss = ArcFaceLoss(encoder.output.linear.out_features, 3 * CLASSES)
    parameters = [*encoder.parameters(), *loss.parameters()]
    optimizer = torch.optim.SGD(parameters, 0.1, momentum=0.9, nesterov=True, weight_decay=1e-4)

    def chunk(waveform: NDArray[np.float32]) -> NDArray[np.float32]:
        start = random.randint(0, len(waveform) - samples)
        return waveform[start : start + samples].copy()

    def crop(path: Path) -> tuple[torch.Tensor, int]:
        waveform = soundfile.read(path, dtype="float32")[0]
        speed = random.randint(0, 2)
        perturb = speeds[speed]
        if perturb is not None:
            waveform = perturb(torch.from_numpy(waveform))[0].numpy()
        waveform = chunk(waveform)
        if random.random() < 0.6:
            if random.random() < 0.5:
                response = soundfile.read(random.choice(rooms), dtype="float32")[0]
                response /= np.sqrt(np.sum(response**2))
                waveform = signal.convolve(waveform, response, mode="full")[:samples]
            else:
                noise = chunk(soundfile.read(random.choice(noises), dtype="float32")[0])
                levels = [10 * np.log10(np.mean(one**2) + 1e-4) for one in (waveform, noise)]
                decibels = levels[0] - levels[1] - random.uniform(0, 15)
                waveform = waveform + np.float32(10 ** (decibels / 20)) * noise
            waveform = waveform / (np.max(np.abs(waveform)) + 1e-4)
        features = kaldi.fbank(
            torch.from_numpy(waveform)[None] * 2**15,
            num_mel_bins=80,
            dither=1.0,
            sample_frequency=RATE,
            window_type="hamming",
            use_energy=False,
        )
        return features - features.mean(dim=0), speed

    def step() -> None:
        rows = random.sample(range(len(names)), crops)
        features, speed_of_crop = zip(*(crop(names[row]) for row in rows), strict=True)
        pairs = zip(rows, speed_of_crop, strict=True)
        labels = torch.tensor([row // RECORDINGS + CLASSES * speed for row, speed in pairs])
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            value = loss(encoder(torch.stack(features)), labels)
        optimizer.zero_grad()
        value.backward()
        nn.utils.clip_grad_norm_(parameters, 5.0)
        optimizer.step()

    encoder.train()
    return step
