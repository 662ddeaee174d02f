"""An experiment with another loss: python tools/exchange_loss.py BASE.yaml LOSS.yaml NEW.yaml

For example, AAM-Softmax instead of SimPLE with everything else as in the paper:

    python tools/exchange_loss.py hparams/simple_resnet34.yaml hparams/losses/aamsoftmax.yaml \\
        hparams/aamsoftmax_resnet34.yaml

BASE.yaml is a complete experiment, LOSS.yaml a file such as those in hparams/losses: keys whose
values replace those of the same name or are inserted before ``loss``. A module that is null there
is removed from the experiment and its checkpoints, and so are keys that only replaced keys referred
to. ``loss`` and ``embedding_head`` also replace their groups in parameter_groups. All other lines
and comments stay, so that the result reads like a file written by hand. If each speed of a voice is
another speaker, it is another class, too; in an experiment with images, classes are those of its
table, train_table if it has that key.
"""

import re
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from pathlib import Path
from typing import NamedTuple

from simple_spk.cli.errors import exit_code
from simple_spk.io.atomic_file import write_text

TOP_LEVEL_KEY = re.compile(r"([A-Za-z_]\w*):")
REFERENCE = re.compile(r"<(\w+)")
PARAMETERS_OF = {"loss": "loss", "embedding_head": "encoder.output"}  # as groups name them
CLASSES_OF_IMAGES = "simple_spk.vision.image_table.count_classes"
COUNT_SPEAKERS = re.compile(r"(!apply:simple_spk\.data\.manifest\.count_speakers \[[^],]+)\]")


class Part(NamedTuple):
    """A key of a YAML file with the lines of its value, or a line between keys (key None)."""

    key: str | None
    lines: tuple[str, ...]

    @property
    def is_null(self) -> bool:
        """Whether the key's value is null."""
        return _without_comment(self.lines[0]).endswith(": null")

    @property
    def references(self) -> set[str]:
        """The keys that the value refers to."""
        return {name for line in self.lines for name in REFERENCE.findall(_without_comment(line))}


def exchange_loss(base: str, block: str) -> str:
    """The text of an experiment with the keys of a loss file in place of its own."""
    if "speeds" in keys_of(base):
        block = COUNT_SPEAKERS.sub(r"\1, !ref <speeds>]", block)
    if "simple_spk.vision." in base:
        block = block.replace("simple_spk.data.manifest.count_speakers", CLASSES_OF_IMAGES)
    if "train_table" in keys_of(base):
        block = block.replace("<data_folder>/train.csv", "<train_table>")
    new = [part for part in split(block) if part.key is not None]
    keys = {part.key for part in new}
    modules = next((part.references for part in split(base) if part.key == "modules"), set())
    nulls = {part.key for part in new if part.is_null and part.key in modules}
    replacing = {part.key: part for part in new if part.key not in nulls}
    added = [part for part in new if part.key not in keys_of(base)]
    new_groups: tuple[str, ...] = ()
    if "parameter_groups" in replacing:
        new_groups = replacing.pop("parameter_groups").lines[1:]
    result: list[Part] = []
    replaced: list[Part] = []
    for part in split(base):
        if part.key == "loss":
            result += added
        if part.key in keys - {"parameter_groups"}:
            replaced.append(part)
            if part.key in replacing:
                result.append(replacing[part.key])
        else:
            result.append(_without_entries(part, nulls) if nulls else part)
        if part.key == "parameter_groups":
            replaced.append(part)
            old_groups = [name for key, name in PARAMETERS_OF.items() if key in keys]
            result[-1] = _with_groups(result[-1], old_groups, new_groups)
    result = _without_orphans(result, replaced, kept=keys)
    references = {name for part in result for name in part.references}
    missing = references - {part.key for part in result}
    if missing or "loss" not in {part.key for part in result}:
        raise ValueError(
            f"the experiment lacks {', '.join(sorted(missing)) or 'loss'}, to which its parts "
            f"refer: the two files do not fit together"
        )
    idle = [str(part.key) for part in added if part.key not in references]
    if idle:
        raise ValueError(
            f"{', '.join(idle)} would be without effect: nothing in the experiment refers to it; "
            f"correct the name, or give the experiment such a key"
        )
    return "".join(f"{line}\n" for part in result for line in part.lines)


def split(text: str) -> list[Part]:
    """The parts of a YAML file, in order."""
    parts: list[Part] = []
    for line in text.splitlines():
        match = TOP_LEVEL_KEY.match(line)
        if line.startswith(" ") and parts and parts[-1].key is not None:
            parts[-1] = Part(parts[-1].key, (*parts[-1].lines, line))
        else:
            parts.append(Part(match[1] if match else None, (line,)))
    return parts


def keys_of(text: str) -> set[str | None]:
    """The top-level keys of a YAML file."""
    return {part.key for part in split(text)}


def _without_comment(line: str) -> str:
    """A line without the comment at its end."""
    return re.split(r"(?:^|\s)#", line)[0].rstrip()


def _without_entries(part: Part, names: set[str]) -> Part:
    """A part without the entries of these names, as those of modules."""
    entries = re.compile(rf"\s+({'|'.join(names)}):")
    return Part(part.key, tuple(line for line in part.lines if not entries.match(line)))


def _with_groups(part: Part, old: list[str], new: tuple[str, ...]) -> Part:
    """The parameter groups without those of old prefixes, and with new ones."""
    starts = tuple(f"{prefix}{end}" for prefix in old for end in (".", ":"))
    others = [line for line in part.lines[1:] if not line.strip().startswith(starts)]
    if others == list(part.lines[1:]) and not new:
        return part
    value = "" if [*others, *new] else " null"
    return Part(part.key, (f"{part.key}:{value}", *others, *new))


def _without_orphans(parts: list[Part], replaced: list[Part], kept: set[str | None]) -> list[Part]:
    """The parts without those that only replaced parts, or other orphans, referred to."""
    suspects = {name for part in replaced for name in part.references} - kept
    while True:
        needed = {name for part in parts for name in part.references}
        orphans = [part for part in parts if part.key in suspects - needed]
        if not orphans:
            return parts
        suspects |= {name for part in orphans for name in part.references} - kept
        parts = [part for part in parts if part not in orphans]


def write_experiment(base: Path, block: Path, new: Path) -> None:
    """Write the experiment; its first line names the loss, its name replaces that of the base."""
    for path in (base, block):
        if not path.is_file():
            raise FileNotFoundError(f"no such YAML file: {path} (losses: see hparams/losses/)")
    text = exchange_loss(base.read_text(encoding="utf-8"), block.read_text(encoding="utf-8"))
    stem = re.escape(base.stem)  # in the command line of its header, and in its output_folder
    text = re.sub(rf"(?<=train\.py )\S*\b{stem}\.yaml\b", lambda _: str(new), text)
    text = re.sub(rf"\b{stem}(?=\.yaml\b)|(?<=/){stem}(?=/<seed>)", new.stem, text)
    title = block.read_text(encoding="utf-8").partition("\n")[0]
    title = title.removeprefix("#").strip() if title.startswith("#") else block.stem
    text = f"# {title}. Everything else is as in {base.name}:\n{text}"
    write_text(new, text)


def main() -> int:
    """Write one experiment, and return the exit code."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    purposes = {"base": "an experiment", "loss": "what replaces its loss", "new": "file to write"}
    for name, purpose in purposes.items():
        parser.add_argument(name, type=Path, metavar=f"{name.upper()}.yaml", help=purpose)
    options = parser.parse_args()
    return exit_code(
        "exchange_loss.py", lambda: write_experiment(options.base, options.loss, options.new)
    )


if __name__ == "__main__":
    sys.exit(main())
