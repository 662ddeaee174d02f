"""Enroll a speaker by name in a file of voices; further recordings of a name are added to it."""

from argparse import ArgumentParser, Namespace

from simple_spk.cli.messages import say
from simple_spk.cli.options import add_model, add_value, load_extractor
from simple_spk.cli.outputs import check_outputs
from simple_spk.inference.speaker_store import SpeakerStore


def add_arguments(parser: ArgumentParser) -> None:
    """The command line of enroll."""
    add_value(parser, "voices VOICES", "the file of voices, created if needed")
    add_value(parser, "name NAME", "name of the speaker", str)
    add_value(parser, "recordings RECORDING", "recordings of that speaker alone", nargs="*")
    parser.add_argument("--remove", action="store_true", help="remove NAME (give no recordings)")
    add_model(parser)


def run(options: Namespace) -> None:
    """Enroll or remove, and write the file."""
    if options.remove == bool(options.recordings):
        raise ValueError("give recordings to enroll, or --remove and none")
    check_outputs([options.voices], options.recordings)
    extractor = load_extractor(options, options.device)
    extractor.progress = True
    if options.voices.exists() or options.remove:  # mistakes show before recordings are read
        SpeakerStore.load(options.voices, extractor.fingerprint)
    new = None if options.remove else extractor.enroll(options.name, options.recordings)
    # Others may have changed the file meanwhile: what is in it by now is changed.
    with SpeakerStore.changing(options.voices, extractor.fingerprint) as voices:
        if new is None:
            voices.remove(options.name)
            said = f"{options.name} is forgotten"
        else:
            voices.add(options.name, new)
            voice = voices[options.name]
            said = f"{options.name}: {_some(voice.recordings, 'recording')}, {voice.seconds:.1f} s"
    say(f"{said}; {_some(len(voices), 'voice')} in {options.voices}")


def _some(count: int, what: str) -> str:
    """A number of things."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
