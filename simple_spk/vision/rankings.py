"""Files that say which images are nearest to which: a line per pair, nearest first.

    query-id neighbor-id score

IDs are quoted as in a CSV file whose fields are separated by spaces.
"""

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path

from simple_spk.io.atomic_file import atomic_write
from simple_spk.vision.retrieval_metrics import Neighbors

Ranking = list[tuple[str, float]]  # the ID and the score of each neighbor, nearest first


def write_rankings(path: Path, ids: Sequence[str], found: Iterable[Neighbors]) -> None:
    """Write the neighbors of images by their IDs."""
    with atomic_write(path) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=" ", lineterminator="\n")
        for block in found:
            for query, rows, scores in zip(
                block.queries.tolist(), block.rows.tolist(), block.scores.tolist(), strict=True
            ):
                writer.writerows(
                    (ids[query], ids[row], f"{score:.6f}")
                    for row, score in zip(rows, scores, strict=True)
                )


def read_rankings(path: str | Path) -> dict[str, Ranking]:
    """The neighbors of each image by its ID."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"no rankings at {path}: correct the path (RUN/scores_test.txt)")
    rankings: dict[str, Ranking] = {}
    try:
        with path.open(newline="", encoding="utf-8") as file:
            for line, fields in enumerate(csv.reader(file, delimiter=" ", strict=True), start=1):
                try:
                    query, neighbor, score = fields
                    rankings.setdefault(query, []).append((neighbor, float(score)))
                except ValueError:
                    raise ValueError(
                        f"{path}, line {line}: expected query-id neighbor-id score, not "
                        f"{' '.join(fields)[:100]!r}"
                    ) from None
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is no file of rankings: {error}") from error
    if not rankings:
        raise ValueError(f"{path} is empty: train to the end first")
    return rankings
