"""Those settings of an experiment that cost time or memory, read without building anything."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from simple_spk import SAMPLE_RATE
from simple_spk.io.safe_yaml import read_tagged_yaml
from simple_spk.schedules import StepwiseValue

RESNET = "!new:simple_spk.models.resnet.ResNet"
Limits = tuple[float, float]


@dataclass(frozen=True)
class TrainingSetting:
    """What costs time or memory; the defaults are those of hparams/simple_resnet34.yaml."""

    speakers_per_batch: int = 128
    recordings_per_speaker: int = 4
    crop_seconds: Limits | Mapping[int, Limits] = (3.0, 8.0)  # or from which epoch on which
    batches_per_epoch: int = 1000
    number_of_epochs: int = 70
    queue_size: int = 524288
    sample_rate: int = SAMPLE_RATE
    num_mels: int = 80
    width: int = 32
    blocks: tuple[int, ...] = (3, 4, 6, 3)
    stem_stride: int = 1
    embedding_dim: int = 256
    workers: int = 8

    def __post_init__(self) -> None:
        self.crop_stages()
        for field in fields(self):
            value = getattr(self, field.name)
            least = 0 if field.name == "workers" else 1
            if isinstance(value, int | float) and value < least:
                raise ValueError(f"{field.name} is {value}; expected at least {least}")

    @property
    def batch(self) -> int:
        """Crops in a batch."""
        return self.speakers_per_batch * self.recordings_per_speaker

    @property
    def longest_crop_seconds(self) -> float:
        """Of any epoch."""
        return max(longest for _, longest in self.crop_stages().values)

    @property
    def mean_crop_seconds(self) -> float:
        """Over all epochs."""
        limits_at = self.crop_stages()
        epochs = range(1, self.number_of_epochs + 1)
        return sum(sum(limits_at(epoch)) / 2 for epoch in epochs) / len(epochs)

    def crop_stages(self) -> StepwiseValue[Limits]:
        """From an epoch to the shortest and the longest crop."""
        return StepwiseValue("crop_seconds", self.crop_seconds, _limits)


def _limits(seconds: Sequence[float]) -> Limits:
    """The shortest and the longest crop, known to be in this order."""
    if len(seconds) != 2 or not 0.0 < seconds[0] <= seconds[1]:
        raise ValueError(f"crop_seconds must be two rising positive numbers, not {seconds}")
    return seconds[0], seconds[1]


def read_setting(path: str | Path) -> TrainingSetting:
    """The setting of an experiment's YAML file, of which nothing is built or executed."""
    path = Path(path)
    content = read_tagged_yaml(path)
    encoder = content.get("encoder")
    if not isinstance(encoder, dict) or encoder.get("") != RESNET:
        raise ValueError(f"{path}: only needs of an encoder {RESNET[1:]} can be foretold")
    if not isinstance(content.get("queue"), dict):
        raise ValueError(f"{path}: only needs of a loss over a queue can be foretold")
    values: dict[str, Any] = {}
    for field in fields(TrainingSetting):
        found = encoder.get(field.name, content.get(field.name))
        if isinstance(found, str):  # <name>, what is left of !ref <name>
            reference = re.fullmatch(r"<(\w+)>", found)
            found = content.get(reference[1]) if reference else found
        if found is not None:
            values[field.name] = _number(path, field.name, found)
    try:
        return replace(TrainingSetting(), **values)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _number(path: Path, name: str, found: Any) -> int | float | tuple | dict:
    """A number, or several, or those of each stage, as it stands in a YAML file."""
    if isinstance(found, dict) and name == "crop_seconds":
        return {start: _number(path, name, value) for start, value in found.items()}
    numbers = found if isinstance(found, list) else [found]
    if not all(type(number) in (int, float) for number in numbers):
        raise ValueError(f"{path}: {name} is {found!r}; expected a number, or a list of numbers")
    return tuple(found) if isinstance(found, list) else found
