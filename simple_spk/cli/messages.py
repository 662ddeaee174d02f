"""All text for the terminal: without control characters, printable everywhere, of bounded length.

File names, voices, lists and models come from others. Printed as they are, they could move the
cursor, hide text, or set the title of the terminal.
"""

import logging
import os
import sys
import unicodedata

LONGEST_LINE = 1000  # characters; names of a megabyte hide the message around them
MOST_LINES = 50  # of a message
_KEPT = "\n\t"
# Control, format (such as the direction of writing), lone surrogates, separators of lines.
_UNSAFE = ("Cc", "Cf", "Cs", "Zl", "Zp")


def printable(text: object) -> str:
    """A text as it may be printed: special characters are written as escapes, long lines are cut.

    Bytes of a file name that are not UTF-8 appear as bytes.

    >>> printable("a\\x1b[31m.wav, \\udcff.wav, Zoë")
    'a\\\\x1b[31m.wav, \\\\xff.wav, Zoë'
    >>> len(printable("x" * 1_000_000))
    1000
    """
    return "\n".join(_line(line) for line in str(text).split("\n"))


def _line(line: str) -> str:
    """A line of a printable text."""
    if len(line) > LONGEST_LINE:
        note = f" [... {len(line):,} characters ...] "
        half = (LONGEST_LINE - len(note)) // 2
        line = line[: LONGEST_LINE - len(note) - half] + note + line[-half:]
    if line.isascii() and line.isprintable():
        return line
    return "".join(_escaped(letter) for letter in line)


def _escaped(letter: str) -> str:
    """A letter, or its escape if it is not for the terminal."""
    if letter in _KEPT or unicodedata.category(letter) not in _UNSAFE:
        return letter
    code = ord(letter)
    if 0xDC80 <= code <= 0xDCFF:  # a byte of a file name
        code -= 0xDC00
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def counted(count: int, what: str) -> str:
    """A number of things.

    >>> counted(1, "voice"), counted(2, "voice")
    ('1 voice', '2 voices')
    """
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def say(text: object) -> None:
    """Print an answer to standard output."""
    print(printable(text))


def warn(message: object, program: str = "simple-spk") -> None:
    """Print a message to standard error."""
    lines = printable(message).split("\n", MOST_LINES)
    text = "\n".join(lines[:MOST_LINES] + (["[...]"] if len(lines) > MOST_LINES else []))
    print(f"{program}: {text}", file=sys.stderr)


def prepare_terminal() -> None:
    """Make log messages printable, and print letters that the terminal lacks as escapes.

    Streams that were closed (2>&-) lead nowhere: else a file that is opened would take their place.
    """
    for name in ("stdin", "stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115
        elif name != "stdin" and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    logging.setLogRecordFactory(_PrintableRecord)


class _PrintableRecord(logging.LogRecord):
    """A log record whose message is printable."""

    def getMessage(self) -> str:  # noqa: N802
        return printable(super().getMessage())
