"""From a manifest to labeled batches."""

import numpy as np
import pytest
import soundfile
import torch

from simple_spk.data.audio import read_crop
from simple_spk.data.dataset import speaker_crop_loader


@pytest.fixture
def manifest(tmp_path):
    """Four speakers with three recordings each; every sample of a recording tells its speaker."""
    rows = ["ID,wav,duration,spk_id"]
    for speaker in range(4):
        for recording in range(3):
            name = f"{speaker}-{recording}"
            noise = np.random.default_rng((speaker, recording)).uniform(-0.01, 0.01, 16000)
            soundfile.write(tmp_path / f"{name}.wav", 0.2 * speaker + noise, 16000, subtype="FLOAT")
            rows.append(f"{name},{name}.wav,1.0,speaker{speaker}")
    path = tmp_path / "train.csv"
    path.write_text("\n".join(rows))
    return path


def make_loader(manifest, **options):
    return speaker_crop_loader(
        manifest,
        speakers_per_batch=3,
        recordings_per_speaker=2,
        crop_seconds=(0.2, 0.5),
        batches_per_epoch=4,
        seed=5,
        **options,
    )


def test_labels_belong_to_their_waveforms(manifest):
    batches = list(make_loader(manifest))
    assert len(batches) == 4
    for inputs, labels in batches:
        assert inputs.shape[0] == 6 and 3200 <= inputs.shape[1] <= 8000
        torch.testing.assert_close(inputs.mean(dim=1), 0.2 * labels.float(), atol=0.01, rtol=0)


def test_each_row_is_the_crop_that_the_sampler_drew(manifest):
    loader = make_loader(manifest)
    for number, (inputs, _) in enumerate(loader):
        for crop, waveform in zip(loader.batch_sampler.batch(number), inputs, strict=True):
            path = loader.dataset.manifest.wav(crop.row)
            assert np.array_equal(read_crop(path, crop.samples, crop.position), waveform.numpy())


def test_workers_and_late_starts_change_nothing(manifest):
    expected = list(make_loader(manifest))
    with_worker = make_loader(manifest, workers=1)
    for first, second in zip(expected, with_worker, strict=True):
        assert torch.equal(first.inputs, second.inputs)
        assert torch.equal(first.labels, second.labels)
    with_worker.batch_sampler.set_epoch(0, first_batch=3)
    (last,) = with_worker
    assert torch.equal(last.inputs, expected[3].inputs)


def test_folders_can_be_sessions(manifest):
    """Each speaker has two recordings in one folder and one in another."""
    lines = manifest.read_text().splitlines()
    for row, line in enumerate(lines[1:]):
        name, wav, *rest = line.split(",")
        target = manifest.parent / name[0] / ("late" if row % 3 == 2 else "early") / wav
        target.parent.mkdir(parents=True, exist_ok=True)
        (manifest.parent / wav).rename(target)
        lines[row + 1] = ",".join([name, str(target.relative_to(manifest.parent)), *rest])
    manifest.write_text("\n".join(lines))
    together = set()
    for is_known in (False, True):
        loader = make_loader(manifest, folders_are_sessions=is_known)
        for number in range(4):
            crops = loader.batch_sampler.batch(number)
            for one, other in zip(crops[::2], crops[1::2], strict=True):
                folders = {loader.dataset.manifest.wav(crop.row).parent for crop in (one, other)}
                assert (one.label == other.label and len(folders) == 2) or not is_known
                together.add(len(folders))
    assert together == {1, 2}
