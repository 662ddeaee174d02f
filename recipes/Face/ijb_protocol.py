"""The protocol files of IJB-B and IJB-C: templates, pairs of templates, galleries and probes.

They are the files that NIST hands out (the CSV tables) and that InsightFace made of them (the two
text files), under their own names, as in ``ijbc_face_tid_mid.txt``.
"""

import codecs
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simple_spk.data.field_table import cut_fields, read_text, shown
from simple_spk.data.text_columns import Fields, look_at_csv
from simple_spk.data.trials import Trials

MEDIA_LINE = "image template medium"
PAIR_LINE = "template template 0|1"
SUBJECT_COLUMNS = ("TEMPLATE_ID", "SUBJECT_ID")


@dataclass(frozen=True, eq=False)
class TemplateImages:
    """The images that templates are made of, and the medium (a photograph, a video) of each."""

    names: list[str]  # distinct names of images
    image: NDArray[np.int32]  # (n,): row i says that this image, an index into names,
    template: NDArray[np.int64]  # (n,): is part of this template, an index into template_ids,
    medium: NDArray[np.int64]  # (n,): and comes from this medium
    template_ids: NDArray[np.int64]  # (templates,), rising
    path: Path

    def __len__(self) -> int:
        """The number of templates."""
        return len(self.template_ids)

    def find(
        self, ids: NDArray[np.integer], source: Path, line_of_row: Callable[[int], int]
    ) -> NDArray[np.int32]:
        """The indexes (k,) of templates by their ids (k,), which stand in lines of ``source``."""
        places = np.searchsorted(self.template_ids, ids).astype(np.int32)
        np.minimum(places, len(self) - 1, out=places)
        is_absent = self.template_ids[places] != ids
        if is_absent.any():
            row = int(np.argmax(is_absent))
            raise ValueError(
                f"{source}, line {line_of_row(row)}: the template {ids[row]} has no image in "
                f"{self.path} ({len(np.unique(ids[is_absent]))} such templates): take both files "
                "from one release"
            )
        return places


@dataclass(frozen=True, eq=False)
class Subjects:
    """Some templates, each once, and whose each is."""

    template: NDArray[np.int32]  # (k,), indexes into the template_ids of TemplateImages
    subject: NDArray[np.int64]  # (k,)
    path: Path

    def __len__(self) -> int:
        return len(self.template)


@dataclass(frozen=True, eq=False)
class IdentificationProtocol:
    """Galleries by name (G1, G2; in IJB-B S1, S2), and the probes sought in each of them."""

    galleries: dict[str, Subjects]
    probes: Subjects


def protocol_prefix(folder: str | Path) -> tuple[Path, str]:
    """The folder that holds the protocol files (or its meta/), and how their names begin."""
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
    content = read_text(path, "list of images").removeprefix(codecs.BOM_UTF8).rstrip()
    table = cut_fields(content, 3) if content else None
    numbers = None if table is None else np.stack([table.numbers(1), table.numbers(2)])
    if table is None or numbers is None or not (numbers % 1 == 0).all():
        raise ValueError(_misfit(path, rb"\s*\S+\s+\d+\s+\d+\s*", MEDIA_LINE))
    names, image = table.index(0)
    template_ids, template = np.unique(numbers[0].astype(np.int64), return_inverse=True)
    return TemplateImages(
        names, image[:, 0], template, numbers[1].astype(np.int64), template_ids, path
    )


def read_template_pairs(path: str | Path, templates: TemplateImages) -> Trials:
    """Pairs of templates as trials over all templates, from lines ``template template 0|1``.

    IJB-C has 15,658,489 of them: numpy reads the numbers into one array, and no text is kept.
    """
    path = Path(path)
    _require_file(path)
    try:
        # Blank lines are skipped, and the number sign begins no comment here.
        rows = np.loadtxt(path, dtype=np.int32, comments=None, ndmin=2)
    except (ValueError, UnicodeDecodeError, OSError) as error:
        raise ValueError(_misfit(path, rb"\s*\d+\s+\d+\s+[01]\s*", PAIR_LINE)) from error
    if rows.shape[1:] != (3,) or not len(rows) or rows[:, 2].min() < 0 or rows[:, 2].max() > 1:
        raise ValueError(_misfit(path, rb"\s*\d+\s+\d+\s+[01]\s*", PAIR_LINE))
    enroll, test = (templates.find(side, path, partial(_line_of_row, path)) for side in rows.T[:2])
    names = [str(number) for number in templates.template_ids.tolist()]
    return Trials(names, enroll, test, rows[:, 2] == 1, path)


def read_subjects(path: str | Path, templates: TemplateImages) -> Subjects:
    """Whose the templates of a gallery or of probes are, from the table of their images."""
    path = Path(path)
    _require_file(path)
    table = look_at_csv(path)
    missing = [name for name in SUBJECT_COLUMNS if name not in table.header]
    if missing:
        raise ValueError(
            f"{path}: its first line is {','.join(table.header)!r}; expected the columns "
            f"{' and '.join(SUBJECT_COLUMNS)}"
        )
    parts = [
        np.stack([_numbers(path, line, name, columns[name]) for name in SUBJECT_COLUMNS], axis=1)
        for line, columns in table.blocks()
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
            f"no galleries {prefix}_1N_gallery_G1.csv, ... in {folder}: fetch them, or ask for "
            "verification alone"
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


def _numbers(path: Path, line: int, name: str, fields: Fields) -> NDArray[np.int64]:
    """The whole numbers (n,) of a column of a block that begins at a line."""
    texts = fields.as_array()
    is_number = np.char.isdigit(texts)
    if not is_number.all():
        bad = int(np.argmin(is_number))
        raise ValueError(
            f"{path}, line {line + bad}: {name} is {texts[bad].decode()!r}; expected a number"
        )
    return texts.astype(np.int64)


def _require_file(path: Path) -> None:
    if not path.is_file():
        raise FileNotFoundError(f"no protocol file at {path}: fetch it, or correct the folder")


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a text file that are not blank, with their numbers."""
    for number, line in enumerate(read_text(path, "protocol file").split(b"\n"), start=1):
        if line.strip():
            yield number, line


def _line_of_row(path: Path, row: int) -> int:
    """The number of the line that a row stands in."""
    return next(number for place, (number, _) in enumerate(_lines(path)) if place == row)


def _misfit(path: Path, pattern: bytes, layout: str) -> str:
    """What to say about the first line that breaks the layout."""
    for number, line in _lines(path):
        if not re.fullmatch(pattern, line):
            return f"{path}, line {number}: found {shown(line)}; expected {layout!r}"
    return f"{path} is empty or damaged; expected lines {layout!r}: fetch it again"
