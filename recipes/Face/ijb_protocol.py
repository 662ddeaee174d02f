"""The protocol files of IJB-B and IJB-C: templates, pairs of templates, galleries and probes.

The CSV tables are those of NIST, the two text files were made from them by InsightFace. All have
their original names, such as ``ijbc_face_tid_mid.txt``.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from simple_spk.data.text_table import csv_frames, misfit, numbered_lines, open_text, read_fields
from simple_spk.data.trials import Trials

MEDIA_LINE = "image template medium"
PAIR_LINE = "template template 0|1"
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
    with open_text(path, "protocol file") as file:
        table = read_fields(file, path, 3, numeric=[1, 2])
    if table is not None:
        template_of_row, medium = table.numbers(1), table.numbers(2)
        if len(medium) and not (template_of_row % 1).any() and not (medium % 1).any():
            names, (image,) = table.index(0)
            ids, template = np.unique(template_of_row.astype(np.int64), return_inverse=True)
            return TemplateImages(names, image, template, medium.astype(np.int64), ids, path)
    expected = f"{MEDIA_LINE!r}: fetch it again"
    raise misfit(path, "protocol file", lambda fields: _are_numbers(fields, slice(1, 3)), expected)


def read_template_pairs(path: str | Path, templates: TemplateImages) -> Trials:
    """Pairs of templates as trials over all templates, from lines ``template template 0|1``."""
    path = Path(path)
    with open_text(path, "protocol file") as file:
        table = read_fields(file, path, 3, numeric=[0, 1], skip_blank=True)
    if table is not None:
        enroll, test, is_same = table.numbers(0), table.numbers(1), table.equals(2, "1")
        is_whole = (enroll % 1 == 0) & (test % 1 == 0)
        if len(is_same) and (is_whole & (is_same | table.equals(2, "0"))).all():
            line_of_row = partial(_line_of_row, path)
            first = templates.find(enroll.astype(np.int64), path, line_of_row)
            second = templates.find(test.astype(np.int64), path, line_of_row)
            names = [str(number) for number in templates.template_ids.tolist()]
            return Trials(names, first, second, is_same, path)
    raise misfit(
        path,
        "protocol file",
        lambda fields: _are_numbers(fields, slice(0, 2)) and fields[2] in (b"0", b"1"),
        f"{PAIR_LINE!r}: fetch it again",
        skip_blank=True,
    )


def read_subjects(path: str | Path, templates: TemplateImages) -> Subjects:
    """The subjects of the templates of a gallery or of probes, from the table of their images."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no protocol file at {path}: fetch it, or correct the folder")
    parts = [
        np.stack([_whole_numbers(path, line, texts) for texts in frame], axis=1)
        for line, frame in csv_frames(path, SUBJECT_COLUMNS)
    ]
    if not parts:
        raise ValueError(f"{path} has no rows: fetch it again")
    rows = np.concatenate(parts)
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


def _whole_numbers(path: Path, line: int, texts: pl.Series) -> NDArray[np.int64]:
    """The whole numbers (n,) of a column; ``line`` is that of the first."""
    numbers = texts.cast(pl.Int64, strict=False)
    bad = numbers.is_null().arg_max()
    if numbers.has_nulls() and bad is not None:
        raise ValueError(
            f"{path}, line {line + bad}: {texts.name} is {texts[bad]!r}; expected a number"
        )
    return numbers.to_numpy()


def _are_numbers(fields: list[bytes], some: slice) -> bool:
    """Whether a line has three fields, and some of them are whole numbers."""
    return len(fields) == 3 and all(field.isdigit() for field in fields[some])


def _line_of_row(path: Path, row: int) -> int:
    """The number of the line that a row stands in, where blank lines do not count."""
    lines = (number for number, line in numbered_lines(path, "protocol file") if line.strip())
    return next(itertools.islice(lines, row, None))
