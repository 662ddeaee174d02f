"""List, rename or remove the voices that simple-spk enroll wrote, copy them, or index them."""

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from simple_spk.cli.messages import counted, say
from simple_spk.cli.options import add_model, add_value, load_extractor
from simple_spk.cli.outputs import check_outputs
from simple_spk.inference.voice_stores.addresses import open_voices, voices_file
from simple_spk.inference.voice_stores.faiss_store import INDEX_KINDS, FaissStore
from simple_spk.inference.voice_stores.voice import Voice, require_fingerprint

ADDRESS = "file of voices, or faiss:FILE or qdrant:URL"


def add_arguments(parser: ArgumentParser) -> None:
    """The command line of voices."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="print all voices")
    renaming = actions.add_parser("rename", help="give a voice another name")
    removing = actions.add_parser("remove", help="remove voices")
    copying = actions.add_parser("copy", help="add all voices to another store")
    indexing = actions.add_parser("index", help="build the index of faiss:FILE")
    for action in (listing, renaming, removing, copying, indexing):
        add_value(action, "voices VOICES", ADDRESS, str)
    listing.add_argument("--json", action="store_true", help="print JSON")
    add_value(renaming, "old OLD", "the name of a voice", str)
    add_value(renaming, "new NEW", "its new name, which nobody else has", str)
    add_value(copying, "target TARGET", f"another {ADDRESS}; created if needed", str)
    what = (
        "what a search compares: all voices at 2 bits a number (pq, default) or at 32 bits (flat), "
        "or those of similar voices only, at 32 (ivf) or 8 bits (ivf-sq8)"
    )
    indexing.add_argument("--kind", choices=INDEX_KINDS, default=INDEX_KINDS[0], help=what)
    for action in (copying, indexing):
        add_model(action)
    add_value(removing, "names NAME", "the names of voices", str, nargs="+")


def run(options: Namespace) -> None:
    """List the voices, or change the file."""
    if options.action == "rename":
        open_voices(options.voices, change=True).rename(options.old, options.new)
        say(f"{options.old} is now {options.new}")
    elif options.action == "remove":
        remove_voices(options.voices, options.names)
    elif options.action == "copy":
        inputs = filter(None, [voices_file(options.voices)])
        check_outputs([voices_file(options.target)], [*inputs])
        source = open_voices(options.voices)
        target = load_extractor(options, options.device).load_voices(options.target, create=True)
        require_fingerprint(options.voices, source.fingerprint, target.fingerprint)
        target.extend(source.each())
        found = f"{counted(len(target), 'voice')} in {options.target}"
        say(f"{counted(len(source), 'voice')} copied; {found}")
    elif options.action == "index":
        store = load_extractor(options, options.device).load_voices(options.voices)
        if not isinstance(store, FaissStore):
            raise ValueError(f"{options.voices} has no index of its own: write faiss:FILE")
        say(f"{counted(store.build(options.kind), 'voice')} in {store.index_path}")
    else:
        named = open_voices(options.voices).each()
        if options.json:
            print(json.dumps([{"name": name, **voice.plain()} for name, voice in named]))
            return
        for name, voice in named:
            say(f"{name}: {described(voice)}")


def remove_voices(address: str, names: Sequence[str]) -> None:
    """Remove voices from a store, and say so."""
    voices = open_voices(address, change=True)
    voices.remove(*names)
    say(f"{', '.join(names)} removed; {counted(len(voices), 'voice')} in {address}")


def described(voice: Voice) -> str:
    """How much is known of a voice."""
    return f"{counted(voice.recordings, 'recording')}, {voice.seconds:.1f} s"
