"""Find the enrolled speaker of each recording, or decide that it is none of them.

Exit codes: 0 all recordings have names, 3 one is of nobody enrolled, 4 one has not enough evidence,
1 one cannot be read (or another error), 2 a wrong call; of several, the first of 1, 4, 3 counts.
"""

import json
from argparse import ArgumentParser, Namespace
from pathlib import Path

from simple_spk.cli.commands.verify import (
    answer_code,
    no_decision,
    quality_line,
    score_in_words,
)
from simple_spk.cli.commands.voices import ADDRESS
from simple_spk.cli.errors import DIFFERENT, UNDECIDED
from simple_spk.cli.messages import say, warn
from simple_spk.cli.options import add_decision, add_model, add_value, load_extractor
from simple_spk.inference.decisions import Candidate, Identification, misses_in_words


def add_arguments(parser: ArgumentParser) -> None:
    """The command line of identify."""
    add_value(parser, "voices VOICES", f"{ADDRESS}, from simple-spk enroll", str)
    add_value(parser, "recordings RECORDING", "recordings to identify", nargs="+")
    add_value(parser, "--top N", "likeliest voices to show (default 3)", int, default=3)
    add_decision(parser, "the speaker is enrolled")
    add_model(parser)


def run(options: Namespace) -> int:
    """Compare each recording with all voices, and print the decisions."""
    if options.top < 1:
        raise ValueError(f"--top is how many candidates to show, at least 1, not {options.top}")
    extractor = load_extractor(options, options.device)
    extractor.progress = True
    extractor.load_voices(options.voices)
    rule = {"prior": options.prior, "false_accept_rate": options.far, "top": options.top}
    answers, codes = [], set()
    each = extractor.identify_each(options.recordings, **rule)
    for path, found in zip(options.recordings, each, strict=True):
        if not isinstance(found, Identification):
            warn(f"error: {found}")
            answers.append({"recording": str(path), "error": str(found)})
            codes.add(1)
            continue
        codes.add(answer_code(found.accepted))
        if options.json:
            answers.append({"recording": str(path), **found.plain()})
            continue
        say(_sentence(path, found))
        if found.accepted is not None:
            say(f"  {found.reason}")
        if options.far is not None and found.miss_rate is not None:
            say(f"  {misses_in_words(found.miss_rate, 'genuine recordings')}")
        for candidate in found.candidates:
            say(f"  {_line(candidate)}")
        for quality in found.qualities:
            say(quality_line("recording", quality))
    if options.json:
        print(json.dumps(answers))
    return next((code for code in (1, UNDECIDED, DIFFERENT) if code in codes), 0)


def _sentence(path: Path, found: Identification) -> str:
    """An answer in one line."""
    if found.accepted:
        return f"{path}: {found.name}"
    if found.accepted is None:
        return f"{path}: {no_decision(found.threshold)}: {found.reason}"
    return f"{path}: no enrolled speaker"


def _line(candidate: Candidate) -> str:
    """A candidate in one line."""
    details = score_in_words(candidate.score, candidate.log_likelihood_ratio)
    if candidate.probability is None:
        return f"{candidate.name}: {details}"
    return f"{candidate.name}: probability {100 * candidate.probability:.3g} % ({details})"
