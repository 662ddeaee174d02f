"""List, rename or remove the voices in a file of simple-spk enroll. No model is needed."""

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from simple_spk.cli.messages import say
from simple_spk.cli.options import add_value
from simple_spk.inference.voice_stores.addresses import open_voices
from simple_spk.inference.voice_stores.voice import Voice

ADDRESS = "the file of voices, or faiss:FILE or qdrant:URL"


def add_arguments(parser: ArgumentParser) -> None:
    """The command line of voices."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="print all voices")
    renaming = actions.add_parser("rename", help="give a voice another name")
    removing = actions.add_parser("remove", help="remove voices")
    for action in (listing, renaming, removing):
        add_value(action, "voices VOICES", ADDRESS, str)
    listing.add_argument("--json", action="store_true", help="print JSON")
    add_value(renaming, "old OLD", "the name of a voice", str)
    add_value(renaming, "new NEW", "its new name, which nobody else has", str)
    add_value(removing, "names NAME", "the names of voices", str, nargs="+")


def run(options: Namespace) -> None:
    """List the voices, or change the file."""
    if options.action == "rename":
        open_voices(options.voices, change=True).rename(options.old, options.new)
        say(f"{options.old} is now {options.new}")
    elif options.action == "remove":
        remove_voices(options.voices, options.names)
    else:
        named = open_voices(options.voices).each()
        if options.json:
            print(json.dumps([{"name": name, **_plain(voice)} for name, voice in named]))
            return
        for name, voice in named:
            say(f"{name}: {described(voice)}")


def remove_voices(address: str, names: Sequence[str]) -> None:
    """Remove voices from a store, and say so."""
    voices = open_voices(address, change=True)
    voices.remove(*names)
    verb = "is" if len(names) == 1 else "are"
    say(f"{', '.join(names)} {verb} forgotten; {some(len(voices), 'voice')} in {address}")


def described(voice: Voice) -> str:
    """How much is known of a voice."""
    return f"{some(voice.recordings, 'recording')}, {voice.seconds:.1f} s"


def some(count: int, what: str) -> str:
    """A number of things."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _plain(voice: Voice) -> dict[str, float]:
    """A voice for JSON, without its embedding."""
    return {"recordings": voice.recordings, "seconds": voice.seconds}
