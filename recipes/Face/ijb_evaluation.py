"""IJB-B and IJB-C: 1:1 verification and 1:N identification from embeddings of images."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from tqdm import tqdm

from recipes.Face.ijb_protocol import (
    IdentificationProtocol,
    Subjects,
    TemplateImages,
    protocol_prefix,
    read_identification,
    read_template_images,
    read_template_pairs,
)
from recipes.Face.metrics import (
    Searches,
    open_set_rates,
    others_needed,
    pooled_rates,
    search,
    verification_rates,
)
from recipes.Face.recordio import read_face_image
from simple_spk.data.trials import Trials
from simple_spk.distributed import rank
from simple_spk.evaluation.embedding_files import Embeddings, write_embeddings
from simple_spk.evaluation.scoring import AnySimilarity, score_trials, similarity_in_words
from simple_spk.vision.embedding import EmbeddingOptions, EmbedInputs, embed_images
from simple_spk.vision.image_table import read_image_table
from simple_spk.vision.transforms import Transform

Task = Literal["verification", "identification"]
TASKS: tuple[Task, ...] = get_args(Task)
FARS = (1e-6, 1e-5, 1e-4)


@dataclass(frozen=True, eq=False)
class IJBProtocol:
    """A protocol; the parts of tasks that were not requested are None."""

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
    """The evaluation of a model on a protocol and its images, for the test lists of train.py.

    The IDs of the table of images are the names in the protocol (1.jpg, 2.jpg, ...). With an
    ``embeddings_file``, the embeddings are written to it for recipes/Face/evaluate_ijb.py.
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
        self.images = read_image_table(table, reader=read_face_image)
        self.names = list(self.images.row_of_id)
        absent = set(self.protocol.images.names).difference(self.names)
        if absent:
            raise ValueError(
                f"{len(absent)} images of {self.protocol.images.path} are not in {table} (one of "
                f"them: {min(absent)}): complete the table"
            )
        self.options = EmbeddingOptions(transform, batch_size, workers, mirrored, progress)
        self.embeddings_file = None if embeddings_file is None else Path(embeddings_file)

    def __call__(
        self, embed: EmbedInputs, similarity: AnySimilarity, scores_file: Path | None = None
    ) -> dict[str, Any]:
        """All rates as plain data.

        No ``scores_file`` is written: it would have 15 million lines.
        """
        matrix = embed_images(self.images, embed, self.options)
        if self.embeddings_file is not None and rank() == 0:
            write_embeddings(self.embeddings_file, self.names, matrix)
        embeddings = Embeddings(self.names, matrix, self.images.path)
        shows_progress = self.options.progress and rank() == 0
        return evaluate_ijb(self.protocol, embeddings, similarity, shows_progress)


def evaluate_ijb(
    protocol: IJBProtocol, embeddings: Embeddings, similarity: AnySimilarity, progress: bool = False
) -> dict[str, Any]:
    """All rates of a protocol, in percent, as plain data, from embeddings of its images."""
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


def media_template_embeddings(
    images: TemplateImages, embeddings: Embeddings
) -> NDArray[np.float32]:
    """Template embeddings (templates, dim): the mean over media of the mean over their images.

    A video of a hundred frames counts as much as one photograph. Embeddings are not normalized:
    long ones, of good images, count more. One sparse product computes all templates without copying
    the embeddings of half a million images.
    """
    absent = embeddings.missing(images.names)
    if absent:
        raise ValueError(
            f"{len(absent)} of {len(images.names)} images of {images.path} are not in "
            f"{embeddings.path} (first: {', '.join(absent[:3])}): embed them"
        )
    row_of_name = np.array([embeddings.row_of_id[name] for name in images.names])
    places = images.template, row_of_name[images.image]
    weights = csr_array(
        (media_weights(images), places), shape=(len(images), len(embeddings)), dtype=np.float32
    )
    return weights @ embeddings.matrix


def media_weights(images: TemplateImages) -> NDArray[np.float32]:
    """The weight of each row (n,) in its template; the weights of a template sum to 1."""
    media, medium = np.unique(images.medium, return_inverse=True)
    group = images.template * len(media) + medium
    groups, group_of_row, rows_of_group = np.unique(group, return_inverse=True, return_counts=True)
    media_of_template = np.bincount(groups // len(media), minlength=len(images))
    weights = 1.0 / rows_of_group[group_of_row] / media_of_template[images.template]
    return weights.astype(np.float32)


def identification_rates(
    protocol: IdentificationProtocol,
    templates: NDArray[np.float32],
    similarity: AnySimilarity,
    progress: bool = False,
) -> dict[str, Any]:
    """Rates in each gallery, their mean over the galleries, and those in the joined galleries.

    ``joined`` is what published tables report (see ``pooled_rates``). It is None if some probes
    have no mate in any gallery, or if a subject is in two galleries.
    """
    probes = protocol.probes
    probe_templates = templates[probes.template]

    def searched(gallery: Subjects, name: str, others_kept: int = 0) -> Searches:
        mates = mates_of(probes, gallery)
        enrolled = templates[gallery.template]
        return search(
            probe_templates, enrolled, mates, similarity, others_kept, progress=progress, name=name
        )

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
    """The row (probes,) of the template of each probe's subject in a gallery; -1 for none."""
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
    """The rates of a protocol as a text table."""
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
