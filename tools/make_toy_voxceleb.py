"""Lay a toy corpus out like VoxCeleb: python tools/make_toy_voxceleb.py SOURCE TARGET

So all that is done with VoxCeleb can be rehearsed in minutes, before days of downloads. Voices to
train on become VoxCeleb2 (m4a); those to tune on and to test on become VoxCeleb1 dev and test, with
lists like Vox1-O, E and H, and a table of speakers. A session of the toy corpus is a video.
"""

import argparse
import csv
import json
import shutil
import sys
from itertools import combinations
from pathlib import Path

import soundfile

sys.path.insert(0, str(Path(__file__).parents[1]))

from simple_spk.cli.errors import exit_code
from tools.toy_voices import draw_speaker, generator_for
from tools.write_m4a import write_m4a

FIRST_IDS = {"train": 1001, "valid": 10001, "test": 10270}  # as VoxCeleb numbers its speakers
HIGH_VOICE_HERTZ = 165.0


def make_toy_voxceleb(source: Path, target: Path) -> None:
    """Write target/VoxCeleb1, VoxCeleb2 and lists from a toy corpus, unless they are there."""
    if target.exists():
        return
    if not (source / "toy_corpus.json").is_file():
        raise ValueError(f"{source} is not a toy corpus: python tools/make_toy_corpus.py {source}")
    partial = target.with_name(f"{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    seed = json.loads((source / "toy_corpus.json").read_text())["seed"]
    names: dict[str, list[str]] = {}
    genders: dict[str, str] = {}
    for part, first_id in FIRST_IDS.items():
        with (source / f"{part}.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        voices = sorted({row["spk_id"] for row in rows})
        speakers = {voice: f"id{first_id + number:05d}" for number, voice in enumerate(voices)}
        for voice, speaker in speakers.items():
            drawn = draw_speaker(generator_for(seed, "speaker", int(voice.removeprefix("toy")) - 1))
            genders[speaker] = "f" if drawn.pitch_hertz > HIGH_VOICE_HERTZ else "m"
        names[part] = []
        for row in rows:
            video, _, number = row["ID"].split("/")[1].partition("-")
            name = f"{speakers[row['spk_id']]}/{video}/{int(number):05d}.wav"
            names[part].append(name)
            if part == "train":
                waveform, rate = soundfile.read(source / row["wav"], dtype="float32")
                path = partial / "VoxCeleb2/dev/aac" / name
                write_m4a(path.with_suffix(".m4a"), waveform, rate)
            else:
                path = partial / "VoxCeleb1/wav" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source / row["wav"], path)
    everybody = [*names["valid"], *names["test"]]
    write_trials(partial / "veri_test2.txt", names["test"])
    write_trials(partial / "list_test_all2.txt", everybody)
    write_trials(partial / "list_test_hard2.txt", everybody, genders)
    rows_of_meta = [
        f"{speaker}\t{gender}\n" for speaker, gender in genders.items() if speaker > "id10000"
    ]
    (partial / "vox1_meta.csv").write_text("".join(["VoxCeleb1 ID\tGender\n", *rows_of_meta]))
    partial.rename(target)


def write_trials(path: Path, names: list[str], genders: dict[str, str] | None = None) -> None:
    """Write all pairs but those of one video; given genders, strangers of one gender only."""
    with path.open("w") as file:
        for first, second in combinations(names, 2):
            speaker, other = first.split("/")[0], second.split("/")[0]
            if first.rpartition("/")[0] == second.rpartition("/")[0]:
                continue
            if genders is None or genders[speaker] == genders[other]:
                file.write(f"{int(speaker == other)} {first} {second}\n")


def main() -> int:
    """Make the folder, and return the exit code."""
    parser = argparse.ArgumentParser(description="Lay a toy corpus out like VoxCeleb.")
    parser.add_argument("source", type=Path, help="folder that make_toy_corpus.py made")
    parser.add_argument("target", type=Path, help="folder to make")
    options = parser.parse_args()
    return exit_code("make_toy_voxceleb.py", lambda: make_toy_voxceleb(**vars(options)))


if __name__ == "__main__":
    sys.exit(main())
