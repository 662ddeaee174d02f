"""Which score embeddings are compared by, where no model says it."""

from argparse import ArgumentParser, Namespace

from simple_spk.similarity import (
    ANGULAR_BIAS,
    CosineSimilarity,
    GeneralizedInnerProduct,
    Similarity,
)


def add_similarity(parser: ArgumentParser, when: str = "") -> None:
    """Which score; ``when`` says at the beginning of the help when that is asked."""
    parser.add_argument(
        "--similarity",
        choices=("generalized", "cosine"),
        help=f"{when}which score (default generalized, the inner product)",
    )
    parser.add_argument(
        "--angular-bias",
        type=float,
        metavar="COSINE",
        help=f"b_theta of generalized (default {ANGULAR_BIAS})",
    )


def named_similarity(options: Namespace) -> Similarity:
    """The similarity that the options of ``add_similarity`` name."""
    angular_bias = options.angular_bias
    if options.similarity == "cosine":
        if angular_bias is not None:
            raise ValueError("--angular-bias is of the generalized similarity: leave it out")
        return CosineSimilarity()
    return GeneralizedInnerProduct(ANGULAR_BIAS if angular_bias is None else angular_bias)
