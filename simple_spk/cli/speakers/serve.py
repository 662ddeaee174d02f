"""Serve verification, enrollment, identification and diarization over HTTP, with a page at /.

Without --keys everybody who can reach the server may use it, so it then listens on this computer
only. Make a key with: simple-spk serve --keys FILE --add-key NAME --scopes verify identify

It needs the extra [serve]: pip install -e '.[serve]'
"""

import importlib.util
import math
from argparse import ArgumentParser, Namespace

from simple_spk.cli.commands.voices import ADDRESS
from simple_spk.cli.messages import counted, say
from simple_spk.cli.options import add_model, add_value, load_extractor
from simple_spk.distributed import usable_cores
from simple_spk.serve.keys import SCOPES, KeyFile, add_key, remove_key

MOST_WORKERS = 8
LONGEST_SECONDS = 600.0


def add_arguments(parser: ArgumentParser) -> None:
    """The command line of serve."""
    what = f"{ADDRESS}; created if needed (default: in memory, lost at the end)"
    add_value(parser, "--voices VOICES", what, str)
    what = "address to listen on (default 127.0.0.1, this computer; 0.0.0.0: all networks)"
    add_value(parser, "--host HOST", what, str, default="127.0.0.1")
    add_value(parser, "--port PORT", "port (default 8000)", int, default=8000)
    what = "most requests that wait or are worked on; further ones get status 503 (default 64)"
    add_value(parser, "--places N", what, int, default=64)
    what = "processes that decode uploads (default: the number of cores, at most 8)"
    add_value(parser, "--workers N", what, int, default=0)
    group = parser.add_argument_group("uploads")
    add_value(group, "--most-megabytes N", "largest request (default 50)", float, default=50.0)
    what = "longest time for an upload (default 60)"
    add_value(group, "--upload-seconds N", what, float, default=60.0)
    what = "longest time to decode a recording (default 20)"
    add_value(group, "--decode-seconds N", what, float, default=20.0)
    group = parser.add_argument_group("who may use it")
    add_value(group, "--keys FILE", "API keys; without it, everybody who can reach the server")
    what = "requests per minute of each key, or without keys of each address (default 600)"
    add_value(group, "--rate N", what, float, default=600.0)
    what = "let other computers use it without keys"
    group.add_argument("--open", action="store_true", help=what)
    add_value(group, "--add-key NAME", "make a key, print it, and exit", str)
    what = f"what the new key is for: {', '.join(SCOPES)} (default verify)"
    add_value(group, "--scopes SCOPE", what, str, nargs="+", default=["verify"])
    add_value(group, "--remove-key NAME", "remove a key, and exit", str)
    add_model(parser, longest_seconds=LONGEST_SECONDS)


def run(options: Namespace) -> None:
    """Change the keys, or serve until the process is told to end."""
    if options.add_key or options.remove_key:
        if options.keys is None or (options.add_key and options.remove_key):
            raise ValueError("name the file of keys by --keys, and add or remove one key")
        if options.remove_key:
            remove_key(options.keys, options.remove_key)
            say(f"{options.remove_key} is removed from {options.keys}")
            return
        say(add_key(options.keys, options.add_key, options.scopes))
        return
    for name in ("places", "most_megabytes", "upload_seconds", "decode_seconds"):
        if not 0 < getattr(options, name) < math.inf:
            option = name.replace("_", "-")
            raise ValueError(f"--{option} must be more than 0, not {getattr(options, name)}")
    if not options.rate >= 1:  # a client collects at most a minute's requests
        raise ValueError(f"--rate must be at least 1, not {options.rate:g}")
    if not 0 < options.port < 2**16:
        raise ValueError(f"--port must be 1 to 65535, not {options.port}")
    if options.workers < 0:
        raise ValueError(f"--workers must be 0 or more, not {options.workers}")
    needed = ("fastapi", "uvicorn", "multipart", "websockets")
    missing = [one for one in needed if importlib.util.find_spec(one) is None]
    if missing:
        cure = "pip install -e '.[serve]'"
        raise ValueError(f"serve needs {', '.join(missing)}: {cure}")
    from simple_spk.serve.gate import LOCAL_NAMES, Limits

    is_local = options.host in LOCAL_NAMES
    keys = None if options.keys is None else KeyFile(options.keys)
    if keys is None and not is_local and not options.open:
        raise ValueError(
            f"at {options.host} others could use the server, too: give --keys, or --open if they "
            "may"
        )
    from simple_spk.serve.app import Settings
    from simple_spk.serve.server import serve

    limits = Limits(
        keys=keys,
        hosts=LOCAL_NAMES if keys is None and is_local else None,
        requests_per_minute=options.rate,
        upload_bytes=round(options.most_megabytes * 1e6),
        upload_seconds=options.upload_seconds,
    )
    workers = options.workers or min(usable_cores(), MOST_WORKERS)
    settings = Settings(
        limits,
        options.longest_seconds,
        options.decode_seconds,
        workers,
        options.places,
        is_builtin=options.model is None,
    )
    extractor = load_extractor(options, options.device)
    place = "memory"
    if options.voices is not None:
        extractor.load_voices(options.voices, create=True)
        place = options.voices
    known = f"{counted(len(extractor.voices), 'voice')} in {place}"
    say(f"http://{options.host}:{options.port}/ ({known}; end with Ctrl-C)")
    serve(extractor, settings, options.host, options.port)
