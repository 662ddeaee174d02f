"""IJB-C at full size: all rates from embeddings (512) of images, relative to plain numpy.

Numbers of templates, media, images, pairs, galleries and probes are those of IJB-C; identities and
embeddings are synthetic.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from recipes.Face.ijb_evaluation import (
    IJBProtocol,
    evaluate_ijb,
    identification_rates,
    media_template_embeddings,
    read_ijb_protocol,
)
from recipes.Face.ijb_protocol import IdentificationProtocol, Subjects, TemplateImages
from recipes.Face.metrics import verification_rates
from simple_spk.data.trials import Trials
from simple_spk.evaluation.embedding_files import Embeddings
from simple_spk.evaluation.scoring import score_trials
from simple_spk.models.similarity import GeneralizedInnerProduct
from tools.benchmarks.measure import Row, extra_memory, in_turns

IMAGES, MEDIA, DIM = 469_375, 138_836, 512
GALLERIES, PROBES = (1_772, 1_759), 19_593  # templates: 23,124 together
PAIRS, GENUINE = 15_658_489, 19_557
PAIRS_AT_ONCE = 1 << 16  # of the floor's products: some blocking is needed for them to fit
SAMPLED_TEMPLATES = 200  # a loop over templates is timed on so many, and multiplied


def made_protocol() -> IJBProtocol:
    """A protocol of the size of IJB-C; a template's medium is a stretch of its images."""
    random = np.random.default_rng(0)
    enrolled = sum(GALLERIES)
    templates = enrolled + PROBES
    # Every template has a medium, every medium an image; the others fall where they fall.
    template_of_medium = _spread(random, templates, MEDIA)
    medium = _spread(random, MEDIA, IMAGES)
    images = TemplateImages(
        names=[f"{number + 1}.jpg" for number in range(IMAGES)],
        image=random.permutation(IMAGES).astype(np.int32),
        template=template_of_medium[medium],
        medium=medium,
        template_ids=np.arange(1, templates + 1),
        path=Path("made-up"),
    )
    subject = np.append(np.arange(enrolled), random.integers(0, enrolled, PROBES))
    bounds = np.cumsum([0, *GALLERIES])
    galleries = {
        name: Subjects(np.arange(start, end, dtype=np.int32), subject[start:end], images.path)
        for name, start, end in zip(("G1", "G2"), bounds, bounds[1:], strict=False)
    }
    probes = np.arange(enrolled, templates, dtype=np.int32)
    identification = IdentificationProtocol(
        galleries, Subjects(probes, subject[enrolled:], images.path)
    )
    names = [str(number) for number in images.template_ids.tolist()]
    mated = random.choice(probes, GENUINE, replace=False)
    enroll = np.append(subject[mated], random.integers(0, enrolled, PAIRS - GENUINE))
    test = np.append(mated, random.choice(probes, PAIRS - GENUINE))
    pairs = Trials(names, enroll.astype(np.int32), test, subject[enroll] == subject[test])
    return IJBProtocol("ijbc", images, pairs, identification)


def made_embeddings(protocol: IJBProtocol) -> Embeddings:
    """Embeddings of all images: the subject's own, and noise of four times its size."""
    random = np.random.default_rng(1)
    assert protocol.identification is not None
    groups = [*protocol.identification.galleries.values(), protocol.identification.probes]
    subject = np.concatenate([group.subject for group in groups])
    centers = random.standard_normal((sum(GALLERIES), DIM), dtype=np.float32)
    matrix = random.standard_normal((IMAGES, DIM), dtype=np.float32)
    matrix *= 4.0
    images = protocol.images
    for start in range(0, IMAGES, PAIRS_AT_ONCE):
        some = slice(start, start + PAIRS_AT_ONCE)
        matrix[images.image[some]] += centers[subject[images.template[some]]]
    return Embeddings(images.names, matrix, Path("made-up"))


def ijb_candidates() -> dict[str, Callable[[], object]]:
    """The whole, its stages, and for each what numpy cannot do without."""
    protocol, similarity = made_protocol(), GeneralizedInnerProduct()
    embeddings = made_embeddings(protocol)
    embeddings.row_of_id  # noqa: B018  # is kept, and was made when the file was read
    pairs, identification = protocol.pairs, protocol.identification
    assert pairs is not None and pairs.is_target is not None and identification is not None
    is_target = pairs.is_target
    templates = media_template_embeddings(protocol.images, embeddings)
    scores = score_trials(pairs, templates, similarity)
    probes = templates[identification.probes.template]
    gallery = templates[: sum(GALLERIES)]

    def products() -> NDArray[np.float32]:
        found = np.empty(PAIRS, dtype=np.float32)
        for start in range(0, PAIRS, PAIRS_AT_ONCE):
            some = slice(start, start + PAIRS_AT_ONCE)
            found[some] = (templates[pairs.enroll[some]] * templates[pairs.test[some]]).sum(axis=1)
        return found

    def one_pass() -> None:
        np.add.reduce(embeddings.matrix, axis=0)

    return {
        "whole": lambda: evaluate_ijb(protocol, embeddings, similarity),
        "templates": lambda: media_template_embeddings(protocol.images, embeddings),
        "templates, floor": one_pass,
        "1:1 scores": lambda: score_trials(pairs, templates, similarity),
        "1:1 scores, floor": products,
        "1:1 rates": lambda: verification_rates(scores, is_target, (1e-6, 1e-5, 1e-4)),
        "1:1 rates, floor": lambda: np.sort(scores),
        "1:N": lambda: identification_rates(identification, templates, similarity),
        "1:N, floor": lambda: np.partition(probes @ gallery.T, -1960, axis=None),
    }


def run(options: argparse.Namespace) -> list[Row]:
    """Seconds and memory of each stage and of the whole, and of their floors in plain numpy.

    Floors: one pass over all embeddings; both sides of all pairs gathered and multiplied; one sort
    of their scores; all probes times all gallery templates at once, and their highest. What scripts
    do instead of the first, a loop over templates that looks all images through for each, is timed
    on a sample and extrapolated. Reading is that of the protocol's files as they are handed out.
    """
    candidates = ijb_candidates()
    seconds = in_turns(candidates, rounds=1)
    seconds["templates, loop (extrapolated)"] = seconds_of_loop()
    del candidates
    seconds["read protocol"], seconds["read protocol, floor"] = seconds_of_reading()
    seconds["whole, floor"] = sum(
        seconds[f"{stage}, floor"] for stage in ("templates", "1:1 scores", "1:1 rates", "1:N")
    )
    rows: list[Row] = []
    for stage in ("read protocol", "templates", "1:1 scores", "1:1 rates", "1:N", "whole"):
        floor = seconds[f"{stage}, floor"]
        rows.append(
            {
                "what": stage,
                "seconds": seconds[stage],
                "floor s": floor,
                "times the floor": seconds[stage] / floor,
                "extra MiB": extra_memory(ijb_candidates, "whole") if stage == "whole" else "",
            }
        )
    loop = seconds["templates, loop (extrapolated)"]
    rows.append(
        {
            "what": "templates by a loop (extrapolated)",
            "seconds": loop,
            "floor s": seconds["templates, floor"],
            "times the floor": loop / seconds["templates, floor"],
            "extra MiB": "",
        }
    )
    return rows


def seconds_of_loop() -> float:
    """Seconds that a loop over templates, each looked for among all images, takes for all."""
    protocol = made_protocol()
    embeddings, images = made_embeddings(protocol), protocol.images
    chosen = np.random.default_rng(0).choice(len(images), SAMPLED_TEMPLATES, replace=False)
    start = time.perf_counter()
    for template in chosen:
        rows = np.flatnonzero(images.template == template)
        media = images.medium[rows]
        parts = embeddings.matrix[images.image[rows]]
        np.mean([parts[media == medium].mean(axis=0) for medium in np.unique(media)], axis=0)
    return (time.perf_counter() - start) * len(images) / SAMPLED_TEMPLATES


def seconds_of_reading() -> tuple[float, float]:
    """Seconds to read a protocol from its files, and to split the text of its pairs into words."""
    protocol = made_protocol()
    images, pairs, identification = protocol.images, protocol.pairs, protocol.identification
    assert pairs is not None and pairs.is_target is not None and identification is not None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = np.stack([images.image + 1, images.template + 1, images.medium], axis=1)
        np.savetxt(folder / "ijbc_face_tid_mid.txt", rows, "%d.jpg %d %d")
        sides = np.stack([pairs.enroll + 1, pairs.test + 1, pairs.is_target], axis=1)
        np.savetxt(folder / "ijbc_template_pair_label.txt", sides, "%d %d %d")
        tables = {f"gallery_{gallery}": one for gallery, one in identification.galleries.items()}
        for table, subjects in {**tables, "probe_mixed": identification.probes}.items():
            rows = np.stack([subjects.template + 1, subjects.subject], axis=1)
            path = folder / f"ijbc_1N_{table}.csv"
            np.savetxt(path, rows, "%d", ",", header="TEMPLATE_ID,SUBJECT_ID", comments="")
        start = time.perf_counter()
        read_ijb_protocol(folder)
        middle = time.perf_counter()
        with (folder / "ijbc_template_pair_label.txt").open("rb") as file:
            for line in file:
                line.split()
        return middle - start, time.perf_counter() - middle


def _spread(random: np.random.Generator, owners: int, count: int) -> NDArray[np.int64]:
    """Owners (count,), in order, each with at least one."""
    others = random.integers(0, owners, count - owners)
    return np.sort(np.append(np.arange(owners), others))
