"""Sort recordings by speaker, without knowing any: a table, folders of links, and a page.

Each recording must be of one speaker (simple-spk diarize divides conversations). Up to 10,000
recordings all pairs are compared; of more, the nearest ones. Recordings that are nearly as likely
of another speaker, or of nobody else, are marked as doubtful.

Recordings that cannot be used are named; the others are sorted, and the exit code is 1.
"""

import os
from argparse import ArgumentParser, Namespace
from pathlib import Path, PurePosixPath
from typing import Any

from simple_spk.cli.messages import counted, say, warn
from simple_spk.cli.options import add_audio, add_model, add_value, load_extractor
from simple_spk.cli.outputs import check_outputs, warn_of_other_files
from simple_spk.data.recording_lists import find_recordings
from simple_spk.io.atomic_file import atomic_write, write_text


def add_arguments(parser: ArgumentParser) -> None:
    """The command line of cluster."""
    add_audio(parser)
    add_value(parser, "--speakers N", "number of speakers (default: estimated)", int)
    what = (
        "prior probability that two recordings have the same speaker (default 0.1); lower it if "
        "different speakers are joined, raise it if one speaker is divided"
    )
    add_value(parser, "--same-prior P", what, float)
    group = parser.add_argument_group("output")
    what = "table to write: recording, speaker, evidence, likeliest other speaker, doubtful"
    add_value(group, "-o --output CSV", what)
    add_value(group, "--links FOLDER", "new folder with a folder of links for each speaker")
    add_value(group, "--page HTML", "page with the speakers, and the doubtful recordings first")
    add_model(parser, with_workers=True)


def run(options: Namespace) -> int:
    """Embed, sort, and write what is asked for; 1 if some recordings could not be used."""
    ids, paths, left_out = find_recordings(options.audio)
    warn_of_other_files(left_out)
    check_outputs([options.output, options.page], [*paths, *options.audio])
    if options.links is not None and options.links.exists() and any(options.links.iterdir()):
        raise ValueError(f"{options.links} is not empty: name a new folder for the links")
    from simple_spk.inference.diarization.recording_clusters import sorted_rows  # imports torch

    extractor = load_extractor(options, options.device)
    how = (options.speakers, options.same_prior, options.workers)
    rows, failed = sorted_rows(extractor, ids, paths, *how)
    for name, message in failed.items():
        warn(f"left out: {name}: {message}")
    if options.output is not None:
        _write_table(options.output, rows)
    if options.links is not None:
        _make_links(options.links, rows)
    speakers = list(dict.fromkeys(row["speaker"] for row in rows))
    doubtful = sum(row["doubtful"] for row in rows)
    if options.page is not None:
        from simple_spk.report.speaker_pages import clusters_page  # imports matplotlib

        groups = [
            {"speaker": speaker, "recordings": [r for r in rows if r["speaker"] == speaker]}
            for speaker in speakers
        ]
        shown = {"Recordings": str(len(rows)), "Speakers": str(len(speakers))}
        shown |= {"Doubtful": str(doubtful), "Left out": str(len(failed))}
        write_text(options.page, clusters_page(groups, options.page, shown))
    if options.output is None and options.links is None and options.page is None:
        for row in rows:
            say(f"{row['speaker']}  {row['id']}{'  (doubtful)' if row['doubtful'] else ''}")
    counts = f"{counted(len(rows), 'recording')} of {counted(len(speakers), 'speaker')}"
    say(f"{counts}; {doubtful} doubtful")
    return 1 if failed else 0


def _write_table(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write the rows as CSV."""
    import csv

    with atomic_write(path) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["recording", "wav", "speaker", "evidence", "other_speaker", "doubtful"])
        for row in rows:
            evidence = f"{row['evidence']:.3f}"
            values = (row["id"], row["path"], row["speaker"], evidence, row["other"])
            writer.writerow([*values, int(row["doubtful"])])


def _make_links(folder: Path, rows: list[dict[str, Any]]) -> None:
    """Make a folder for each speaker, with links to the recordings under their ids."""
    for row in rows:
        parts = [p for p in PurePosixPath(row["id"]).parts if p not in ("/", "..", ".")]
        link = folder.joinpath(row["speaker"], *parts)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.abspath(row["path"]))
