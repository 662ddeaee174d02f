"""Find the enrolled speaker of each recording, or decide that it is none of them."""

import json
from argparse import ArgumentParser, Namespace
from pathlib import Path

from simple_spk.cli.commands.verify import no_decision, quality_json, quality_line, score_in_words
from simple_spk.cli.messages import say
from simple_spk.cli.options import add_decision, add_model, add_value, load_extractor
from simple_spk.inference.decisions import Candidate, Identification


def add_arguments(parser: ArgumentParser) -> None:
    """The command line of identify."""
    add_value(parser, "voices VOICES", "the file of voices, from simple-spk enroll")
    add_value(parser, "recordings RECORDING", "recordings to identify", nargs="+")
    add_value(parser, "--top N", "candidates to show (default 3)", int, default=3)
    add_decision(parser)
    add_model(parser)


def run(options: Namespace) -> None:
    """Compare each recording with all voices, and print the decisions."""
    if options.top < 1:
        raise ValueError(f"--top is how many candidates to show, at least 1, not {options.top}")
    extractor = load_extractor(options, options.device)
    extractor.progress = True
    extractor.load_voices(options.voices)
    answers = []
    for path in options.recordings:
        found = extractor.identify(path, prior=options.prior, false_accept_rate=options.far)
        candidates = found.candidates[: options.top]
        if options.json:
            answer = {"recording": str(path), **found._asdict()}
            answer["candidates"] = [candidate._asdict() for candidate in candidates]
            answer["qualities"] = [quality_json(quality) for quality in found.qualities]
            answers.append(answer)
            continue
        say(_sentence(path, found))
        if options.far is not None:
            say(f"  {found.reason}")
        for candidate in candidates:
            say(f"  {_line(candidate)}")
        for quality in found.qualities:
            say(quality_line("recording", quality))
    if options.json:
        print(json.dumps(answers))


def _sentence(path: Path, found: Identification) -> str:
    """An answer in one line."""
    if found.accepted:
        return f"{path}: {found.name}"
    if found.accepted is None:
        return f"{path}: {no_decision(found.threshold)}: {found.reason}"
    return f"{path}: nobody I know"


def _line(candidate: Candidate) -> str:
    """A candidate in one line."""
    details = score_in_words(candidate.score, candidate.log_likelihood_ratio)
    if candidate.probability is None:
        return f"{candidate.name}: {details}"
    return f"{candidate.name}: probability {100 * candidate.probability:.3g} % ({details})"
