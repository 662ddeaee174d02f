"""How answers about voices are worded, in the same way by all commands."""

from pathlib import Path

from simple_spk.inference.decisions import warnings
from simple_spk.inference.speech_quality import RecordingQuality


def strength(score: float, log_likelihood_ratio: float | None) -> str:
    """A score, and what it is worth if that is known."""
    ratio = (
        "" if log_likelihood_ratio is None else f", likelihood ratio e^{log_likelihood_ratio:.1f}"
    )
    return f"score {score:.2f}{ratio}"


def answer_without_decision(threshold: float | None) -> str:
    """What to call an answer that is neither yes nor no; a model may know no threshold at all."""
    return "not enough evidence" if threshold is not None else "undecided"


def quality_line(name: str | Path, quality: RecordingQuality) -> str:
    """What a recording offers, with a warning where that is poor."""
    line = (
        f"  {name}: {quality.seconds:.1f} s, {quality.speech_seconds:.1f} s of speech, "
        f"signal to noise {quality.signal_to_noise_db:.0f} dB"
    )
    found = warnings(quality)
    return f"{line} (careful: {', '.join(found)})" if found else line


def plain_quality(quality: RecordingQuality) -> dict[str, object]:
    """The quality of a recording for JSON."""
    return {**quality._asdict(), "warnings": warnings(quality)}
