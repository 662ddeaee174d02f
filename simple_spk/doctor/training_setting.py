"""Those settings of an experiment that cost time or memory, read without building anything."""

import re
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import yaml

RESNET = "!new:simple_spk.resnet.ResNet"


@dataclass(frozen=True)
class TrainingSetting:
    """What costs time or memory; the defaults are those of hparams/simple_resnet34.yaml."""

    speakers_per_batch: int = 128
    recordings_per_speaker: int = 4
    crop_seconds: tuple[float, float] = (3.0, 8.0)
    batches_per_epoch: int = 1000
    number_of_epochs: int = 70
    queue_size: int = 524288
    sample_rate: int = 16000
    num_mels: int = 80
    width: int = 32
    blocks: tuple[int, ...] = (3, 4, 6, 3)
    stem_stride: int = 1
    embedding_dim: int = 256
    workers: int = 8

    @property
    def batch(self) -> int:
        """Crops in a batch."""
        return self.speakers_per_batch * self.recordings_per_speaker


class _PlainLoader(yaml.SafeLoader):
    """Reads tagged values as plain ones: !new:, !ref and the like build and execute nothing."""


def _untagged(loader: _PlainLoader, tag: str, node: yaml.Node) -> Any:
    """The plain value of a tagged node; a mapping remembers its tag under the empty key."""
    if isinstance(node, yaml.MappingNode):
        return {**loader.construct_mapping(node, deep=True), "": f"!{tag}"}
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    assert isinstance(node, yaml.ScalarNode)  # the only other kind there is
    return loader.construct_scalar(node)


_PlainLoader.add_multi_constructor("!", _untagged)


def read_setting(path: str | Path) -> TrainingSetting:
    """The setting of an experiment's YAML file, of which nothing is built or executed."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no such YAML file: {path} (see the folder hparams/)")
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=_PlainLoader)  # a SafeLoader
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a YAML file: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds no settings: expected 'key: value' lines")
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
    return replace(TrainingSetting(), **values)


def _number(path: Path, name: str, found: Any) -> int | float | tuple:
    """A number, or several, as it stands in a YAML file."""
    numbers = found if isinstance(found, list) else [found]
    if not all(type(number) in (int, float) for number in numbers):
        raise ValueError(f"{path}: {name} is {found!r}; expected a number, or a list of numbers")
    return tuple(found) if isinstance(found, list) else found
