"""What a file holds, whatever its name says: a format of audio, or something else."""

from pathlib import Path

# Formats in words, by the decoders' names, and the suffixes of names that promise them.
_FORMATS = {
    "WAV": ("wav wavex rf64", "wav wave rf64"),
    "FLAC": ("flac", "flac"),
    "Ogg": ("ogg", "ogg oga ogv opus spx"),
    "MP3": ("mp3", "mp2 mp3 mpga"),
    "MP4 (m4a)": ("mov", "3g2 3gp m4a m4b m4v mov mp4"),
    "Matroska or WebM": ("matroska", "mka mkv webm"),
    "AAC": ("aac", "aac"),
    "AIFF": ("aiff", "aif aifc aiff"),
    "AU": ("au", "au snd"),
    "CAF": ("caf", "caf"),
    "W64": ("w64", "w64"),
    "NIST Sphere": ("nist", "nist sph wav"),  # the corpora of the LDC name it .wav
    "AMR": ("amr", "amr awb"),
    "AC-3": ("ac3 eac3", "ac3 eac3"),
    "ASF": ("asf", "asf wma wmv"),
    "AVI": ("avi", "avi"),
    "FLV": ("flv", "flv"),
    "MPEG-TS": ("mpegts", "mts ts"),
}
_WORDS = {name: words for words, (names, _) in _FORMATS.items() for name in names.split()}
KNOWN_SUFFIXES = {f".{one}" for _, suffixes in _FORMATS.values() for one in suffixes.split()}
# First bytes of files that are no recordings.
_FOREIGN = {
    b"%PDF": "a PDF document",
    b"PK\x03\x04": "a zip archive (or an office document)",
    b"\x1f\x8b": "a gzip archive",
    b"7z\xbc\xaf": "a 7z archive",
    b"Rar!": "a rar archive",
    b"\x89PNG": "a PNG picture",
    b"\xff\xd8\xff": "a JPEG picture",
    b"GIF8": "a GIF picture",
    b"version https://git-lfs": "a pointer of Git LFS (git lfs pull fetches the recording)",
    b"SQLite format 3": "a database",
    b"\x93NUMPY": "a NumPy array",
}
# First bytes of formats that libsndfile reads by itself, so that its errors about them are true.
# It takes others for MP3 by the name or two bytes of the file.
_OF_LIBSNDFILE = (b"RIF", b"RF64", b"riff", b"fLaC", b"OggS", b"FORM", b"caff", b".snd", b"NIST")
_OF_MP3 = (b"ID3", *(bytes([0xFF, second]) for second in (0xF2, 0xF3, 0xFA, 0xFB)))
_CONTROL_CHARACTERS = bytes(set(range(32)) - set(b"\t\n\f\r"))


def misnamed(path: Path, audio_format: str) -> str | None:
    """The format in words and the suffix of a recording, if the suffix promises another format.

    audio_format: as ``AudioHeader`` has it.

    >>> misnamed(Path("a.mp3"), "wav"), misnamed(Path("a.wav"), "wav"), misnamed(Path("a.1"), "wav")
    ('WAV named .mp3', None, None)
    """
    suffix, words = path.suffix.lower(), _WORDS.get(audio_format)
    if words is None or suffix not in KNOWN_SUFFIXES:
        return None
    return None if suffix[1:] in _FORMATS[words][1].split() else f"{words} named {suffix}"


def foreign_content(head: bytes) -> str | None:
    """What a file without audio holds, told from its first bytes; None if nobody knows.

    >>> foreign_content(b"%PDF-1.4"), foreign_content(b"Ann: hello"), foreign_content(b"RIFF")
    ('a PDF document', 'text', None)
    """
    for start, words in _FOREIGN.items():
        if head.startswith(start):
            return words
    if head[:2] in (b"\xff\xfe", b"\xfe\xff") and b"\0" in head[2:4]:
        return "text"
    has_controls = len(head.translate(None, _CONTROL_CHARACTERS)) < len(head)
    if has_controls or head.startswith((*_OF_LIBSNDFILE, b"#!")):
        return None
    try:
        head[: -3 if len(head) > 3 else None].decode()  # a letter may be cut at the end
    except UnicodeDecodeError:
        return None
    page = head.lstrip().lower()
    return "a web page" if page.startswith((b"<!doctype html", b"<html")) else "text"


def is_of_libsndfile(head: bytes) -> bool:
    """Whether the first bytes of a file are those of a format that libsndfile reads."""
    return foreign_content(head) is None and head.startswith(_OF_LIBSNDFILE + _OF_MP3)
