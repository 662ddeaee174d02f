"""The protocol files of IJB-B and IJB-C: templates, pairs of templates, galleries and probes.

The CSV tables are those of NIST, the two text files were made from them by InsightFace. All have
their original names, such as ``ijbc_face_tid_mid.txt``.
"""

import csv
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from recipes.Face.pairs import index_names, misfit_message, read_rows
from simple_spk.data.trials import Trials

MEDIA_FIELDS = [("image", object), ("template", np.int64), ("medium", np.int64)]
MEDIA_PATTERN = r"\s*(\S+\s+\d+\s+\d+\s*)?"
MEDIA_LAYOUT = "image template medium"
PAIR_FIELDS = [("enroll", np.int32), ("test", np.int32), ("label", np.int8)]
PAIR_PATTERN = r"\s*(\d+\s+\d+\s+[01]\s*)?"
PAIR_LAYOUT = "template template 0|1"
SUBJECT_COLUMNS = ("TEMPLATE_ID", "SUBJECT_ID")


@dataclass(frozen=True, eq=False)
class TemplateImages:
    """The images of templates, and the medium (a photograph, a video) of each."""

    names: list[str]  # distinct names of images
    image: NDArray[np.int32]  # (n,), index into names
    template: NDArray[np.int64]  # (n,), index into template_ids: the template that has the image
    medium: NDArray[np.int64]  # (n,), the medium that the image is from
    template_ids: NDArray[np.int64]  # (templates,), increasing
    path: Path

    def __len__(self) -> int:
        """The number of templates."""
        return len(self.template_ids)

    def find(
        self, ids: NDArray[np.integer], source: Path, line_of_row: Callable[[int], int]
    ) -> NDArray[np.int32]:
        """The indexes (k,) of templates by their ids (k,), which are the rows of ``source``."""
        places = np.searchsorted(self.template_ids, ids).astype(np.int32)
        np.minimum(places, len(self) - 1, out=places)
        is_absent = self.template_ids[places] != ids
        if is_absent.any():
            row = int(np.argmax(is_absent))
            raise ValueError(
                f"{source}, line {line_of_row(row)}: the template {ids[row]} has no image in "
                f"{self.path} ({len(np.unique(ids[is_absent]))} such templates): use files of "
                "one release"
            )
        return places


@dataclass(frozen=True, eq=False)
class Subjects:
    """Distinct templates and the subject of each."""

    template: NDArray[np.int32]  # (k,), indexes into the template_ids of TemplateImages
    subject: NDArray[np.int64]  # (k,)
    path: Path

    def __len__(self) -> int:
        return len(self.template)


@dataclass(frozen=True, eq=False)
class IdentificationProtocol:
    """Galleries by name (G1, G2; in IJB-B S1, S2), and the probes for all of them."""

    galleries: dict[str, Subjects]
    probes: Subjects


def protocol_prefix(folder: str | Path) -> tuple[Path, str]:
    """The folder of the protocol files (or its meta/), and the prefix of their names."""
    folder = Path(folder)
    for place in (folder, folder / "meta"):
        found = sorted(place.glob("*_face_tid_mid.txt"))
        if len(found) == 1:
            return place, found[0].name.removesuffix("_face_tid_mid.txt")
        if found:
            raise ValueError(
                f"{place} holds several protocols ({', '.join(path.name for path in found)}): "
                "give each a folder of its own"
            )
    raise FileNotFoundError(
        f"no file *_face_tid_mid.txt in {folder} or {folder / 'meta'}: name the folder with the "
        "protocol files, such as IJBC/meta of InsightFace's release"
    )


def read_template_images(path: str | Path) -> TemplateImages:
    """The images and media of templates, from lines ``image template medium``."""
    path = Path(path)
    rows = read_rows(path, MEDIA_FIELDS, MEDIA_PATTERN, MEDIA_LAYOUT)
    names, image = index_names(rows["image"])
    template_ids, template = np.unique(rows["template"], return_inverse=True)
    return TemplateImages(names, image, template, rows["medium"].copy(), template_ids, path)


def read_template_pairs(path: str | Path, templates: TemplateImages) -> Trials:
    """Pairs of templates as trials over all templates, from lines ``template template 0|1``.

    IJB-C has 15,658,489 of them.
    """
    path = Path(path)
    rows = read_rows(path, PAIR_FIELDS, PAIR_PATTERN, PAIR_LAYOUT)
    if rows["label"].min() < 0 or rows["label"].max() > 1:
        raise ValueError(misfit_message(path, PAIR_PATTERN, PAIR_LAYOUT))
    find_line = partial(_line_of_row, path)
    enroll, test = (templates.find(rows[side], path, find_line) for side in ("enroll", "test"))
    names = [str(number) for number in templates.template_ids.tolist()]
    return Trials(names, enroll, test, rows["label"] == 1, path)


def read_subjects(path: str | Path, templates: TemplateImages) -> Subjects:
    """The subjects of the templates of a gallery or of probes, from the table of their images."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no protocol file at {path}: fetch it, or correct the folder")
    rows = np.array(_subject_rows(path), dtype=np.int64)
    _, firsts, inverse = np.unique(rows[:, 0], return_index=True, return_inverse=True)
    differs = rows[:, 1] != rows[firsts[inverse], 1]
    if differs.any():
        row = int(np.argmax(differs))
        raise ValueError(
            f"{path}, line {row + 2}: the template {rows[row, 0]} is of subject {rows[row, 1]} "
            f"here and of {rows[firsts[inverse[row]], 1]} above; expected one subject"
        )
    firsts.sort()
    kept = rows[firsts]
    found = templates.find(kept[:, 0], path, lambda row: int(firsts[row]) + 2)
    return Subjects(found, kept[:, 1], path)


def _subject_rows(path: Path) -> list[list[int]]:
    """Template and subject of each line of a table."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        lines = csv.reader(file)
        header = next(lines, [])
        if not set(SUBJECT_COLUMNS) <= set(header):
            raise ValueError(
                f"{path}: its first line is {','.join(header)[:200]!r}; expected the columns "
                f"{' and '.join(SUBJECT_COLUMNS)}"
            )
        places = [header.index(name) for name in SUBJECT_COLUMNS]
        rows = []
        for line in filter(None, lines):
            if len(line) != len(header):
                raise ValueError(
                    f"{path}, line {lines.line_num}: {len(line)} fields instead of {len(header)}"
                )
            for place in places:
                if not line[place].isdigit():
                    raise ValueError(
                        f"{path}, line {lines.line_num}: {header[place]} is "
                        f"{line[place][:100]!r}; expected a number"
                    )
            rows.append([int(line[place]) for place in places])
    if not rows:
        raise ValueError(f"{path} has no rows: fetch it again")
    return rows


def read_identification(
    folder: Path, prefix: str, templates: TemplateImages
) -> IdentificationProtocol:
    """The galleries and the mixed probes of a folder of protocol files."""
    paths = sorted(folder.glob(f"{prefix}_1N_gallery_*.csv"))
    if not paths:
        raise FileNotFoundError(
            f"no galleries {prefix}_1N_gallery_G1.csv, ... in {folder}: fetch them, or choose "
            "the task verification only"
        )
    galleries = {path.stem.rsplit("_", 1)[1]: read_subjects(path, templates) for path in paths}
    for gallery in galleries.values():
        subjects, counts = np.unique(gallery.subject, return_counts=True)
        if counts.max() > 1:
            raise ValueError(
                f"{gallery.path}: subject {subjects[np.argmax(counts)]} has {counts.max()} "
                "templates; expected one template for each subject of a gallery"
            )
    probes = read_subjects(folder / f"{prefix}_1N_probe_mixed.csv", templates)
    return IdentificationProtocol(galleries, probes)


def _line_of_row(path: Path, row: int) -> int:
    """The number of the line of a row; blank lines are no rows."""
    lines = path.read_text(encoding="utf-8-sig").split("\n")
    return [number for number, line in enumerate(lines, start=1) if line.strip()][row]
