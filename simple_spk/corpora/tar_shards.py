"""The recordings of a manifest, copied into tar files, and the manifest that reads them there."""

from pathlib import Path
from typing import NamedTuple

from tqdm import tqdm

from simple_spk.data.manifest import Manifest, read_manifest, session_names, write_manifest
from simple_spk.data.tar_store import Stored, tar_part, write_tars
from simple_spk.io.input_file import file_size

SHARD_MEGABYTES = 1000  # large for a disk, small for a copy that fails


class StoredManifest(NamedTuple):
    """A manifest whose recordings lie in tar files, and how many those are."""

    manifest: Path
    recordings: int
    tars: int


def store_recordings(
    source: Path, target: Path, shard_megabytes: float = SHARD_MEGABYTES
) -> StoredManifest:
    """Copy the recordings of a manifest into TARGET/shard-*.tar, with TARGET/ and its name.

    Their names in the tar files are their IDs. The column session keeps what their folders tell.
    An interrupted call resumes at the first incomplete tar file.
    """
    manifest = read_manifest(source)
    output = target / source.name
    if output.resolve() == source.resolve():
        raise ValueError(f"{source} would be overwritten: name another folder than {target}")
    if shard_megabytes <= 0:
        raise ValueError(f"tar files of {shard_megabytes:g} MB hold nothing: give more")
    stored = [_named(manifest, name, row) for name, row in manifest.row_of_id.items()]
    places = [
        place
        for _, place in tqdm(
            write_tars(target, stored, round(shard_megabytes * 1e6)),
            "store",
            len(stored),
            unit="rec",
        )
    ]
    speakers = [manifest.speakers[code] for code in manifest.speaker_of_row]
    durations = manifest.durations_seconds.tolist()
    sessions = list(session_names(manifest))
    write_manifest(output, list(manifest.row_of_id), places, durations, speakers, sessions)
    return StoredManifest(output, len(places), len({place.split("#")[0] for place in places}))


def _named(manifest: Manifest, name: str, row: int) -> Stored:
    """A recording and its name in a tar file: its ID, with the suffix of its file."""
    path = manifest.wav(row)
    suffix = ""  # a recording of another store keeps its name
    if tar_part(path) is None:
        file_size(path, "audio file", f"complete the data of {manifest.path}")
        suffix = "" if name.lower().endswith(path.suffix.lower()) else path.suffix
    return Stored(name.lstrip("/") + suffix, path)
