"""Speaker verification with SimPLE: pairwise similarity learning without proxies or margins.

``from simple_spk import Extractor`` is the way in for those who use a trained model.
"""

from typing import Any

__version__ = "0.2.0"
__all__ = ["SAMPLE_RATE", "Extractor", "__version__"]

ANGULAR_BIAS = 0.3  # b_theta in every experiment of the paper
SAMPLE_RATE = 16000  # hertz, of all speech unless a model or an option says otherwise
LONGEST_SECONDS = 6 * 3600.0  # of recordings, unless told otherwise: silence packs to nothing


def __getattr__(name: str) -> Any:
    """The Extractor, imported when it is asked for: metrics and trial lists need no torch."""
    if name == "Extractor":
        from simple_spk.inference.extractor import Extractor

        return Extractor
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
