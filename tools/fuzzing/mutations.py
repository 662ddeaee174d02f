"""Damages to the bytes of any file, and to the fields of texts."""

import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path

Damage = Callable[[bytes, random.Random], bytes]
ODD_NUMBERS = (0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**64 - 1, 10**6)
ODD_WORDS = (
    *(b"", b" ", b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b'"', b'""', b",", b"\t", b"\r", b"\x1b[2J"),
    *(b"nan", b"NaN", b"inf", b"-inf", b"1e999", b"-1e-999", b"1e308", b"-1", b"0", b"1", b"true"),
    *(b"1_0", b"0x1p3", "٣".encode(), "ä b".encode(), b"target", b"null", b"[]", b"{}"),
    *(b"9" * 400, b"9" * 100_000, b"a" * 100_000, b"[" * 50_000, b"{" * 2000, b"/" * 3000),
    *(b"../../../etc/passwd", b"/dev/zero", b"cat x |", b"99999999999999999999:0"),
)


def truncate(content: bytes, dice: random.Random) -> bytes:
    """Cut the end off."""
    return content[: int(len(content) * dice.choice((dice.random(), dice.random() ** 4)))]


def flip_bytes(content: bytes, dice: random.Random) -> bytes:
    """Change bytes anywhere."""
    changed = bytearray(content)
    for _ in range(dice.choice((1, 3, 30, 300))):
        changed[dice.randrange(len(changed))] = dice.randrange(256)
    return bytes(changed)


def flip_header(content: bytes, dice: random.Random) -> bytes:
    """Change bytes near the beginning."""
    changed = bytearray(content)
    for _ in range(dice.choice((1, 2, 5))):
        value = dice.choice((0, 1, 127, 128, 255, dice.randrange(256)))
        changed[dice.randrange(min(200, len(changed)))] = value
    return bytes(changed)


def odd_number(content: bytes, dice: random.Random) -> bytes:
    """A number of the header replaced by an absurd one: rates, lengths, channels, terabytes."""
    size = dice.choice((2, 4, 8))
    value = dice.choice(ODD_NUMBERS) % 2 ** (8 * size)
    start = dice.randrange(4, min(160, max(5, len(content) - 8)))
    number = value.to_bytes(size, dice.choice(("little", "big")))
    return content[:start] + number + content[start + size :]


def splice(content: bytes, dice: random.Random) -> bytes:
    """Repeat, remove, blank or replace a stretch."""
    start, end = sorted(dice.randrange(len(content)) for _ in range(2))
    middle = dice.choice((b"", content[start:end] * 2, bytes(end - start), dice.randbytes(100)))
    return content[:start] + middle + content[end:]


BYTE_DAMAGES: tuple[Damage, ...] = (truncate, flip_bytes, flip_header, odd_number, splice)


def odd_field(content: bytes, dice: random.Random) -> bytes:
    """A field of a text replaced by an odd one."""
    fields = list(re.finditer(rb"[^\s,:\"\[\]{}]+", content))
    if not fields:
        return dice.choice(ODD_WORDS)
    field = dice.choice(fields)
    return content[: field.start()] + dice.choice(ODD_WORDS) + content[field.end() :]


def odd_line(content: bytes, dice: random.Random) -> bytes:
    """A line doubled, removed, emptied, moved, joined with the next, or with other line ends."""
    lines = content.split(b"\n")
    place = dice.randrange(len(lines))
    line = lines.pop(place)
    choices: tuple[Sequence[bytes], ...] = (
        *([line, line], [], [b""], [b"", line], [b" " + line], [line + b"\r"]),
        *([line.replace(b" ", b"  ")], [line.replace(b" ", b"\t")], [line.replace(b",", b";")]),
        *([line + b" more"], [line + b",more"], [b'"' + line], [b"# " + line]),
        [line] * dice.choice((3, 3000)),
    )
    lines[place:place] = dice.choice(choices)
    if dice.random() < 0.2:
        dice.shuffle(lines)
    return dice.choice((b"\n", b"\n", b"\n", b"\r\n", b"\r")).join(lines)


TEXT_DAMAGES: tuple[Damage, ...] = (odd_field, odd_field, odd_line, odd_line)


def damaged(content: bytes, dice: random.Random, damages: Sequence[Damage]) -> bytes:
    """Bytes with one damage, or two."""
    for _ in range(dice.choice((1, 1, 2))):
        content = dice.choice(damages)(content, dice) if len(content) > 20 else content
    return content


def write_damaged(
    originals: Path, place: Path, dice: random.Random, damages: Sequence[Damage]
) -> Path:
    """One of the originals with a damage or two, at ``place`` with the suffix of the original."""
    original = dice.choice(sorted(path for path in originals.iterdir() if path.is_file()))
    path = place.with_suffix("".join(original.suffixes))
    path.write_bytes(damaged(original.read_bytes(), dice, damages))
    return path
