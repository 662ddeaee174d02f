"""Enroll a speaker by name in a file of voices; further recordings of a name are added to it.

Recordings are refused if they seem to be of several speakers or of one who is enrolled under
another name, or if two are the same. --force enrolls them all the same.

A speaker of a conversation is enrolled from the JSON file of simple-spk diarize, with up to a
minute of the longest turns: simple-spk enroll VOICES NAME --diarized FILE.json SPEAKER_02

Exit codes: 0 enrolled, 1 not enrolled, or enrolled without recordings that cannot be used.
"""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from simple_spk.cli.commands.verify import quality_line
from simple_spk.cli.commands.voices import ADDRESS, described, remove_voices
from simple_spk.cli.messages import counted, say, warn
from simple_spk.cli.options import add_model, add_value, load_extractor
from simple_spk.cli.outputs import check_outputs
from simple_spk.inference.decisions import quality_warnings
from simple_spk.inference.voice_stores.addresses import voices_file


def add_arguments(parser: ArgumentParser) -> None:
    """The command line of enroll."""
    add_value(parser, "voices VOICES", f"{ADDRESS}; created if needed", str)
    add_value(parser, "name NAME", "name of the speaker", str)
    add_value(parser, "recordings RECORDING", "recordings of that speaker alone", nargs="*")
    what = "a speaker of a conversation, from the JSON file of simple-spk diarize"
    parser.add_argument("--diarized", nargs=2, metavar=("JSON", "SPEAKER"), help=what)
    what = "enroll recordings that the checks refuse; they are named as a warning"
    parser.add_argument("--force", action="store_true", help=what)
    what = "remove NAME (give no recordings), as simple-spk voices remove does"
    parser.add_argument("--remove", action="store_true", help=what)
    add_model(parser)


def run(options: Namespace) -> int:
    """Enroll or remove, and write the file; 1 if some recordings could not be used."""
    ways = (options.remove, bool(options.recordings), options.diarized is not None)
    if sum(ways) != 1:
        raise ValueError("give recordings to enroll after the name, or only --remove or --diarized")
    if options.remove:
        remove_voices(options.voices, [options.name])
        return 0
    inputs = [Path(options.diarized[0])] if options.diarized else options.recordings
    if (file := voices_file(options.voices)) is not None:
        check_outputs([file], inputs)
    extractor = load_extractor(options, options.device)
    extractor.progress = True
    voices = extractor.load_voices(options.voices, create=True)
    left_out = []

    def leave_out(recording: object, error: Exception) -> None:
        warn(f"left out: {error}")
        left_out.append(recording)

    if options.diarized is None:
        heard, rate = options.recordings, None
    else:
        from simple_spk.inference.diarization.pipeline import speech_of_speaker

        conversation, speaker = options.diarized
        heard, rate = speech_of_speaker(Path(conversation), speaker, extractor.sample_rate)
    (side,) = extractor.listen(rate, heard, left_out=leave_out)
    if not isinstance(side, Exception):
        for (name, _), quality in zip(side.parts, side.qualities, strict=True):
            if quality_warnings(quality):
                say(quality_line(name, quality))
    new = extractor.checked_side(options.name, side, options.force)
    enrolled = voices.add(options.name, new)
    known = f"{counted(len(voices), 'voice')} in {options.voices}"
    say(f"{options.name}: {described(enrolled)}; {known}")
    return 1 if left_out else 0
