"""What reaches the terminal: no control characters, no endless names, no tracebacks."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import simple_spk.cli
from simple_spk.cli.messages import LONGEST_LINE, printable
from tests.command_line import Capture, run

WRITERS = ("messages.py", "errors.py")
SCORES = "a/1 a/2 0.9 target\na/1 b/1 0.1 nontarget\n"


def command(*arguments: object, **options: object) -> subprocess.CompletedProcess[bytes]:
    """The finished process of a command."""
    words = [sys.executable, "-m", "simple_spk.cli.main", *map(str, arguments)]
    piped = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    return subprocess.run(words, check=False, **piped)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Zoë, 李, a\tb\nc", "Zoë, 李, a\tb\nc"),
        ("\x1b]0;title\x07\x9b31m\r\x7f", r"\x1b]0;title\x07\x9b31m\x0d\x7f"),
        ("a\u202egpj.exe\u2028b\ufeff", r"a\u202egpj.exe\u2028b\ufeff"),
        (os.fsdecode(b"n\xff\xc3.wav"), r"n\xff\xc3.wav"),
    ],
)
def test_special_characters_are_written_as_escapes(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert printable(shown) == shown


def test_long_lines_keep_their_beginning_and_end() -> None:
    line = "error: " + 10**6 * "x" + ": cure"
    short = printable(f"{line}\nnext")
    assert len(short) == LONGEST_LINE + len("\nnext")
    assert short.startswith("error: xx") and short.endswith("xx: cure\nnext")
    assert f"{len(line):,} characters" in short


def test_commands_print_nothing_but_printable_text_and_json() -> None:
    for path in Path(simple_spk.cli.__file__).parent.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "print":
                assert path.name in WRITERS or "json" in ast.unparse(node), path


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_names_of_any_bytes_are_read_and_printed(encoding: str, tmp_path: Path) -> None:
    name = os.fsdecode(b"Zo\xc3\xab \xff \x1b[31m.txt")
    (tmp_path / name).write_text(SCORES)
    environment = os.environ | {"PYTHONIOENCODING": encoding}
    found = command("metrics", tmp_path / name, "--replicates", 0, env=environment)
    assert found.returncode == 0 and b"\x1b" not in found.stdout + found.stderr
    letter = "ë".encode(encoding, "backslashreplace")
    assert b"Zo" + letter + rb" \xff \x1b[31m.txt" in found.stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_cannot_be_written_is_an_error_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "s.txt").write_text(SCORES)
    with open("/dev/full", "wb") as full:
        found = command("metrics", tmp_path / "s.txt", "--replicates", 0, stdout=full)
    assert found.returncode == 1
    assert re.fullmatch(rb"(?s).*simple-spk: error: [^\n]*No space left[^\n]*\n", found.stderr)
    assert b"Exception" not in found.stderr and b"Traceback" not in found.stderr


@pytest.mark.skipif(os.name == "nt", reason="needs a shell of POSIX")
def test_closed_streams_are_no_error(tmp_path: Path) -> None:
    (tmp_path / "s.txt").write_text(SCORES)
    words = f"'{sys.executable}' -m simple_spk.cli.main metrics '{tmp_path}/s.txt' --replicates 0"
    for closed in (">&-", "2>&-", "<&- >&- 2>&-"):
        found = subprocess.run(f"{words} {closed}", shell=True, capture_output=True, check=False)
        assert found.returncode == 0 and b"Error" not in found.stderr, closed


def test_wrong_calls_are_answered_in_printable_text(capsys: Capture) -> None:
    for arguments, message in (
        (("metrics", "x", "--\x1b[31m"), r"unrecognized arguments: --\x1b[31m"),
        (("metrics", "x", "--seed", "1", "--seed", "2"), "argument --seed: given twice"),
        (("score", "--trials", "a", "--trials", "b"), "all values after the first"),
    ):
        with pytest.raises(SystemExit) as exit_info:
            run(*arguments)
        assert exit_info.value.code == 2
        assert message in (said := capsys.readouterr().err) and "\x1b" not in said


def test_content_of_other_files_is_not_printed(tmp_path: Path, capsys: Capture) -> None:
    for name in ("secret.txt", "secret.csv", "secret.wav"):
        (tmp_path / name).write_text("root:x:TOPSECRET:/root\n")
    (tmp_path / "e.scp").write_text(f"a {tmp_path / 'secret.wav'}:0\n")
    for call in (
        ("metrics", tmp_path / "secret.txt"),
        ("score", "--embeddings", tmp_path / "e.scp", "--trials", tmp_path / "secret.txt"),
        ("embed", tmp_path / "secret.csv", "-o", tmp_path / "e.npz"),
        ("embed", tmp_path / "secret.wav", "-o", tmp_path / "e.npz"),
    ):
        assert run(*call) == 1
        printed = capsys.readouterr()
        assert "error: " in printed.err
        assert "TOPSECRET" not in printed.out + printed.err, call


def test_usage_errors_need_no_torch_and_ctrl_c_is_clean_while_it_is_imported() -> None:
    program = """
import sys
from simple_spk.cli.main import COMMANDS, main, parser
for name in COMMANDS:
    parser([name])
assert "torch" not in sys.modules
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupt())
sys.exit(main(["verify", "a.wav", "b.wav"]))
"""
    words = [sys.executable, "-c", program]
    found = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr.strip()) == (130, "simple-spk: stopped")
