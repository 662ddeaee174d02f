"""From the archives of noises and rooms to the manifests that augmentation reads.

Nothing is copied. The column spk_id says what kind of sound a recording is.
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from simple_spk.corpora.prepared import Prepared, Quarantined, write_quarantine
from simple_spk.corpora.speaker_folder import find_recordings, probe_recordings
from simple_spk.data.augmentation import MUSAN
from simple_spk.data.manifest import write_manifest

ROOMS = ("smallroom", "mediumroom")  # halls larger than these are no place for speech


def prepare_musan(source: Path, target: Path, workers: int = 4) -> Prepared:
    """Write target/musan.csv of MUSAN's noise, music and speech."""
    return _prepare(source, tuple(MUSAN), target / "musan.csv", 0.1, workers)


def prepare_rooms(source: Path, target: Path, workers: int = 4) -> Prepared:
    """Write target/rooms.csv of the simulated responses of RIRS_NOISES.

    source is RIRS_NOISES, the folder simulated_rirs in it, or any with a folder per kind of room.
    """
    inner = source / "simulated_rirs"
    root = inner if inner.is_dir() else source
    return _prepare(root, ROOMS, target / "rooms.csv", 0.0, workers)


def _prepare(
    root: Path, kinds: Sequence[str], manifest: Path, minimum_seconds: float, workers: int
) -> Prepared:
    """Write the manifest of the recordings below a folder per kind."""
    missing = [kind for kind in kinds if not (root / kind).is_dir()]
    if missing:
        raise ValueError(
            f"{root} lacks the folders {', '.join(missing)}: give the unpacked archive, which has "
            f"{', '.join(kinds)}"
        )
    found = find_recordings(root)
    wanted = [file for file in found.files if file.speaker in kinds]
    kind_of = {file.path: file.speaker for file in wanted}
    memory = manifest.with_name(f".{manifest.stem}_files.csv")
    probed = probe_recordings(root, wanted, memory, minimum_seconds, workers=workers)
    faults = [
        Quarantined(path, "unusable", reason)
        for path, reason in (found.faults | probed.faults).items()
        if path.split("/")[0] in kinds
    ]
    paths = list(probed.durations_seconds)
    empty = sorted(set(kinds) - {kind_of[path] for path in paths})
    if empty:
        raise ValueError(f"{root} has no usable recordings of {', '.join(empty)}: unpack it again")
    quarantine = manifest.with_name(f"{manifest.stem}_quarantine.csv")
    write_quarantine(quarantine, faults)
    write_manifest(
        manifest,
        ids=paths,
        wavs=[str(root.resolve() / path) for path in paths],
        durations_seconds=[max(probed.durations_seconds[path], 0.001) for path in paths],
        speakers=[kind_of[path] for path in paths],
    )
    return Prepared(
        manifest=manifest,
        speakers=len(kinds),
        recordings=len(paths),
        hours=sum(probed.durations_seconds.values()) / 3600,
        quarantine=quarantine,
        quarantined=faults,
        ignored=Counter({"files without sound": found.other_files} if found.other_files else {}),
        speakers_are="kinds",
    )
