"""IJB-B and IJB-C: from embeddings of images to 1:1 verification and 1:N identification."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from recipes.Face.identification import (
    Searches,
    open_set_rates,
    others_needed,
    pooled_rates,
    search,
)
from recipes.Face.ijb_protocol import (
    IdentificationProtocol,
    Subjects,
    TemplateImages,
    protocol_prefix,
    read_identification,
    read_template_images,
    read_template_pairs,
)
from recipes.Face.media_templates import media_template_embeddings
from recipes.Face.verification_rates import verification_rates
from simple_spk.data.trials import Trials
from simple_spk.distributed import rank
from simple_spk.evaluation.embedding_files import Embeddings, write_embeddings
from simple_spk.evaluation.scoring import score_trials, similarity_in_words
from simple_spk.models.similarity import Similarity
from simple_spk.vision.batches import Transform
from simple_spk.vision.embedding import Embed, embed_images
from simple_spk.vision.image_table import read_image_table

Task = Literal["verification", "identification"]
TASKS: tuple[Task, ...] = get_args(Task)
FARS = (1e-6, 1e-5, 1e-4)


@dataclass(frozen=True, eq=False)
class IJBProtocol:
    """What is compared with what; a task that was not asked for is None."""

    name: str
    images: TemplateImages
    pairs: Trials | None
    identification: IdentificationProtocol | None


def read_ijb_protocol(
    folder: str | Path, tasks: Sequence[Task] = TASKS, progress: bool = False
) -> IJBProtocol:
    """The protocol in a folder of files such as ijbc_face_tid_mid.txt, or in its meta/."""
    place, prefix = protocol_prefix(folder)
    pairs = identification = None
    with tqdm(total=1 + len(set(tasks)), desc="read", unit="part", disable=not progress) as bar:
        images = read_template_images(place / f"{prefix}_face_tid_mid.txt")
        bar.update()
        if "verification" in tasks:
            pairs = read_template_pairs(place / f"{prefix}_template_pair_label.txt", images)
            bar.update()
        if "identification" in tasks:
            identification = read_identification(place, prefix, images)
            bar.update()
    return IJBProtocol(prefix, images, pairs, identification)


class IJBEvaluation:
    """A protocol with the images it names, ready to be scored with any model, as training asks.

    The table of images has the names of the protocol (1.jpg, 2.jpg, ...) in its ID column. The
    embeddings go to ``embeddings_file`` if one is given: recipes/Face/evaluate_ijb.py takes them.
    """

    def __init__(
        self,
        protocol: str | Path,
        table: str | Path,
        transform: Transform,
        tasks: Sequence[Task] = TASKS,
        mirrored: bool = True,
        embeddings_file: str | Path | None = None,
        batch_size: int = 64,
        workers: int = 0,
        progress: bool = True,
    ) -> None:
        self.protocol = read_ijb_protocol(protocol, tasks, progress and rank() == 0)
        self.images = read_image_table(table)
        self.names = list(self.images.row_of_id)
        absent = set(self.protocol.images.names).difference(self.names)
        if absent:
            raise ValueError(
                f"{len(absent)} images of {self.protocol.images.path} are not in {table} (one of "
                f"them: {min(absent)}): complete the table"
            )
        self.transform = transform
        self.mirrored = mirrored
        self.embeddings_file = None if embeddings_file is None else Path(embeddings_file)
        self.batch_size = batch_size
        self.workers = workers
        self.progress = progress

    def __call__(
        self, embed: Embed, similarity: Similarity, scores_file: Path | None = None
    ) -> dict[str, Any]:
        """All rates as plain data.

        No ``scores_file`` is written: 15 million lines are made of the embeddings in seconds.
        """
        matrix = embed_images(
            *(self.images, embed, self.transform, self.batch_size, self.workers),
            *(self.mirrored, self.progress),
        )
        if self.embeddings_file is not None and rank() == 0:
            write_embeddings(self.embeddings_file, self.names, matrix)
        embeddings = Embeddings(self.names, matrix, self.images.path)
        return evaluate_ijb(self.protocol, embeddings, similarity, self.progress and rank() == 0)


def evaluate_ijb(
    protocol: IJBProtocol, embeddings: Embeddings, similarity: Similarity, progress: bool = False
) -> dict[str, Any]:
    """All rates of a protocol, in percent, as plain data; embeddings are of its images."""
    templates = media_template_embeddings(protocol.images, embeddings)
    result: dict[str, Any] = {
        "protocol": protocol.name,
        "similarity": similarity_in_words(similarity),
        "images": len(protocol.images.names),
        "templates": len(templates),
    }
    if protocol.pairs is not None:
        scores = score_trials(protocol.pairs, templates, similarity, progress=progress)
        assert protocol.pairs.is_target is not None
        result["verification"] = verification_rates(scores, protocol.pairs.is_target, FARS)
    if protocol.identification is not None:
        result["identification"] = identification_rates(
            protocol.identification, templates, similarity, progress
        )
    return result


def identification_rates(
    protocol: IdentificationProtocol,
    templates: NDArray[np.float32],
    similarity: Similarity,
    progress: bool = False,
) -> dict[str, Any]:
    """Rates in each gallery, their mean over the galleries, and those in all galleries joined.

    ``joined`` is how published tables count (see ``pooled_rates``), and None where that is not
    possible: if some probes have no mate in any gallery, or a subject is in two.
    """
    probes = protocol.probes
    sought = templates[probes.template]

    def searched(gallery: Subjects, name: str, others_kept: int = 0) -> Searches:
        mates = mates_of(probes, gallery)
        places = templates[gallery.template]
        return search(sought, places, mates, similarity, others_kept, progress=progress, name=name)

    rates: dict[str, Any] = {}
    for name, gallery in protocol.galleries.items():
        try:
            rates[name] = open_set_rates(searched(gallery, f"search {name}"))
        except ValueError as error:
            raise ValueError(f"{gallery.path}: {error}") from error
    every = list(protocol.galleries.values())
    joined = Subjects(
        template=np.concatenate([gallery.template for gallery in every]),
        subject=np.concatenate([gallery.subject for gallery in every]),
        path=every[0].path.parent,
    )
    is_possible = len(np.unique(joined.subject)) == len(joined)
    is_possible = is_possible and bool((mates_of(probes, joined) >= 0).all())
    kept = others_needed(len(probes))
    return {
        "galleries": rates,
        "mean": mean_rates(list(rates.values())),
        "joined": pooled_rates(searched(joined, "search all", kept)) if is_possible else None,
    }


def mates_of(probes: Subjects, gallery: Subjects) -> NDArray[np.int64]:
    """The row (probes,) of a gallery that is of the probe's subject; -1 where none is."""
    order = np.argsort(gallery.subject)
    ordered = gallery.subject[order]
    places = np.minimum(np.searchsorted(ordered, probes.subject), len(gallery) - 1)
    return np.where(ordered[places] == probes.subject, order[places], -1)


def mean_rates(rates: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The mean over galleries of each rate."""
    first, count = rates[0], len(rates)
    tops = [name for name in first if name.startswith("top_")]
    limits = first["tpir_at_fpir"]
    return {
        **{name: sum(one[name] for one in rates) / count for name in tops},
        "tpir_at_fpir": {
            limit: sum(one["tpir_at_fpir"][limit] for one in rates) / count for limit in limits
        },
    }


def ijb_table(result: Mapping[str, Any]) -> str:
    """The rates of a protocol as a table to read."""
    lines = [
        f"{result['protocol']}: {result['templates']:,} templates of {result['images']:,} images, "
        f"{result['similarity']}"
    ]
    if "verification" in result:
        rates = result["verification"]
        cells = [f"{far}: {tpr:.2f}" for far, tpr in rates["tpr_at_far"].items()]
        lines.append(
            f"1:1, {rates['pairs']:,} pairs ({rates['targets']:,} of one person): TAR % at FAR "
            f"{', '.join(cells)}; EER {rates['eer']:.3f} %"
        )
    if "identification" in result:
        found = result["identification"]
        for name, rates in {**found["galleries"], "mean": found["mean"]}.items():
            lines.append(f"1:N, {name}: {_identification_cells(rates)}")
        lines.append(
            "1:N, joined galleries, as published tables count: "
            + (
                "not possible, as some probes have no mate in them, or a subject is in two"
                if found["joined"] is None
                else _identification_cells(found["joined"])
            )
        )
    return "\n".join(lines)


def _identification_cells(rates: Mapping[str, Any]) -> str:
    tops = [f"top {name[4:]} {rates[name]:.2f}" for name in rates if name.startswith("top_")]
    cells = [f"{limit}: {tpir:.2f}" for limit, tpir in rates["tpir_at_fpir"].items()]
    return f"{', '.join(tops)}; TPIR % at FPIR {', '.join(cells)}"
