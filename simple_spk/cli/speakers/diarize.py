"""Who speaks when in a recording: turns as RTTM, as JSON, and as a page to look at and listen to.

The number of speakers need not be known. With --voices, speakers who are enrolled have their names,
and the others are SPEAKER_01, SPEAKER_02, ... One of those can be enrolled from the result:
simple-spk enroll VOICES NAME --diarized FILE.json SPEAKER_02

Overlapping speech is not handled: every moment has one speaker. Who speaks for less than 3 s in all
is usually given to another speaker.
"""

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING

from simple_spk.cli.commands.voices import ADDRESS
from simple_spk.cli.messages import counted
from simple_spk.cli.options import add_model, add_value, load_extractor
from simple_spk.cli.outputs import STANDARD_OUTPUT, check_outputs, print_results
from simple_spk.inference.voice_stores.addresses import voices_file
from simple_spk.io.atomic_file import write_text

if TYPE_CHECKING:
    from simple_spk.inference.diarization.conversation import Conversation


def add_arguments(parser: ArgumentParser) -> None:
    """The command line of diarize."""
    add_value(parser, "recording RECORDING", "an audio or video file")
    add_value(parser, "--speakers N", "number of speakers (default: estimated)", int)
    add_value(parser, "--min-speakers N", "least number of speakers (default 1)", int)
    add_value(parser, "--max-speakers N", "greatest number of speakers (default: no limit)", int)
    what = "prior probability that two pieces have the same speaker; lower: more speakers"
    add_value(parser, "--same-prior P", f"{what} (default 0.5)", float, default=0.5)
    add_value(parser, "--voices VOICES", f"name speakers who are enrolled: {ADDRESS}", str)
    add_value(parser, "--far RATE", "false-accept rate of the names, as in identify", float)
    what = "prior probability that a speaker is enrolled, as in identify (default 0.5)"
    add_value(parser, "--prior P", what, float)
    group = parser.add_argument_group("output")
    add_value(group, "--rttm FILE", "turns as RTTM")
    what = "turns and speakers as JSON, to FILE, or printed if FILE is omitted"
    add_value(group, "--json FILE", what, nargs="?", const=STANDARD_OUTPUT)
    add_value(group, "--page HTML", "a page with the timeline, which plays the recording")
    add_model(parser)


def run(options: Namespace) -> None:
    """Diarize, write what is asked for, and print who speaks how long, or when."""
    if options.voices is None and (options.far is not None or options.prior is not None):
        raise ValueError("--far and --prior are for names: add --voices, or leave them out")
    outputs = [options.rttm, options.json, options.page]
    voices = None if options.voices is None else voices_file(options.voices)
    check_outputs(outputs, [options.recording, *([voices] if voices else [])])
    extractor = load_extractor(options, options.device)
    extractor.progress = True
    if options.voices is not None:
        extractor.load_voices(options.voices)
    found = extractor.diarize(
        options.recording,
        speakers=options.speakers,
        min_speakers=options.min_speakers,
        max_speakers=options.max_speakers,
        same_prior=options.same_prior,
        prior=options.prior,
        false_accept_rate=options.far,
    )
    if options.rttm is not None:
        write_text(options.rttm, found.rttm())
    if options.page is not None:
        from simple_spk.report.speaker_pages import timeline_page  # imports matplotlib

        write_text(options.page, timeline_page(found.plain(), options.recording, options.page))
    lines = _lines(found, with_turns=not any(outputs))
    print_results("\n".join(lines), json.dumps(found.plain()), options.json)


def _lines(found: "Conversation", with_turns: bool) -> Iterator[str]:
    """The talk time of each speaker, after the turns if they are wanted."""
    if with_turns:
        yield from (f"{clock(start)} - {clock(end)}  {speaker}" for start, end, speaker in found)
    talk = found.talk_seconds()
    total = sum(talk.values())
    for speaker, seconds in talk.items():
        yield f"{speaker}: {seconds:.1f} s of speech ({100 * seconds / total:.0f} %)"
    heard = f"{counted(len(talk), 'speaker')} in {found.seconds:.1f} s"
    yield f"{heard}; speech found by {found.detector}; overlap not handled"


def clock(seconds: float) -> str:
    """A time as a clock shows it.

    >>> clock(3725.25)
    '1:02:05.25'
    """
    minutes, rest = divmod(round(seconds, 2), 60.0)
    return f"{int(minutes) // 60}:{int(minutes) % 60:02d}:{rest:05.2f}"
