"""The files of nearest images that ``RetrievalEvaluation`` writes: query-id neighbor-id score."""

import csv
from pathlib import Path

Ranking = list[tuple[str, float]]  # the ID and the score of each neighbor, nearest first


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
        raise ValueError(f"{path} is not a file of rankings: {error}") from error
    if not rankings:
        raise ValueError(f"{path} is empty: train to the end first")
    return rankings
