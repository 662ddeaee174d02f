"""Templates of faces: the mean over media of the mean over the images of each medium."""

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from recipes.Face.ijb_protocol import TemplateImages
from simple_spk.evaluation.embedding_files import Embeddings


def media_template_embeddings(
    images: TemplateImages, embeddings: Embeddings
) -> NDArray[np.float32]:
    """The embeddings (templates, dim) of templates, from those of their images.

    A video of a hundred frames counts as much as one photograph. Within a medium and between media
    embeddings are averaged as they are: the long ones, of good images, count more.

    Every template is a weighted sum of embeddings, so that all of them are one sparse product, and
    the embeddings of half a million images are never copied.
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
    """How much each row (n,) counts in its template; over a template they sum to 1."""
    media, medium = np.unique(images.medium, return_inverse=True)
    group = images.template * len(media) + medium
    groups, group_of_row, rows_of_group = np.unique(group, return_inverse=True, return_counts=True)
    media_of_template = np.bincount(groups // len(media), minlength=len(images))
    weights = 1.0 / rows_of_group[group_of_row] / media_of_template[images.template]
    return weights.astype(np.float32)
