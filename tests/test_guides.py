"""The README and every guide in docs/ are executed as written, in a copy of the project.

Blocks of bash and python are run in order, in one shell from the root of the project, unless a
mark precedes them: ``<!-- not run: REASON -->``, or ``<!-- file: NAME -->`` for a file that the
reader writes. A block of text shows the output of the block before it: each of its lines must
match an output line, where numbers may differ and ... matches anything. Links must lead to
existing files and headings, and the new paths in the CHANGELOG must exist.
"""

import ast
import os
import re
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import soundfile

from tools.make_toy_corpus import write_speaker
from tools.write_m4a import write_m4a

ROOT = Path(__file__).parents[1]
GUIDES = sorted(set(ROOT.glob("docs/*.md")) - {ROOT / "docs/README.md"})
PAGES = [*ROOT.glob("docs/*.md"), ROOT / "CONTRIBUTING.md", ROOT / "README.md"]
LINKED = [*PAGES, ROOT / "RESULTS.md", *ROOT.glob("recipes/*/*.md")]

BLOCK = re.compile(
    r"(?:^<!-- (?P<mark>not run|file): (?P<note>.+?) -->\n)?"
    r"^```(?P<language>\S*)\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
NUMBER = r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?"
LINK = re.compile(r"(?:\]\(|src=\")(?!https?:)([^)#\"]*)(?:#([^)\"]+))?")


@dataclass(frozen=True)
class Block:
    """A fenced block of a guide with the mark before it, if any."""

    language: str
    text: str
    mark: str | None
    note: str | None


def blocks_of(text: str) -> list[Block]:
    """The blocks of a guide; raises if one is neither run, output, a file nor marked."""
    found = [Block(m["language"], m["text"], m["mark"], m["note"]) for m in BLOCK.finditer(text)]
    fences = re.findall(r"^\s*(?:```|~~~)", text, re.MULTILINE)
    assert len(fences) == 2 * len(found), "a fence is indented, or its mark is misspelled"
    assert text.count("<!--") == sum(block.mark is not None for block in found), "a stray mark"
    for before, block in zip([None, *found], found, strict=False):
        if block.mark is None:
            assert block.language in ("bash", "python", "text"), (
                f"a block that is never run: {block.text!r}"
            )
        if block.mark is None and block.language == "text":
            is_run = before and before.mark is None and before.language != "text"
            assert is_run, f"no block before prints {block.text!r}"
    return found


def script_of(blocks: list[Block], folder: Path) -> str:
    """A shell script that runs the blocks and writes the output of block N to folder/N.txt."""
    folder.mkdir()
    lines = []
    for number, block in enumerate(blocks):
        if block.mark == "not run" or block.language == "text":
            continue
        lines.append(f"exec > '{folder}/{number}.txt'; echo 'block {number}' >&2")
        if block.mark == "file":
            (folder / f"{number}.file").write_text(block.text)
            lines.append(f"cp '{folder}/{number}.file' '{block.note}'")
        elif block.language == "python":
            (folder / f"{number}.py").write_text(block.text)
            lines.append(f"python - < '{folder}/{number}.py'")
        else:
            lines.append(block.text)
    return "\n".join(lines)


def form_of(line: str) -> re.Pattern[str]:
    """A pattern of output lines that equal the shown line up to numbers and ..."""
    parts = re.split(rf"({NUMBER}|\.\.\.|\s+)", line.strip())
    forms = {"...": ".*"}
    pattern = ""
    for part in parts:
        if re.fullmatch(NUMBER, part):
            pattern += NUMBER
        elif part.isspace():
            pattern += r"\s+"
        else:
            pattern += forms.get(part, re.escape(part))
    return re.compile(pattern)


def check_shown(shown: str, printed: str) -> None:
    """Raise unless the shown lines match lines of the output, in the same order."""
    rest = iter(printed.splitlines())
    for line in filter(str.strip, shown.splitlines()):
        form = form_of(line)
        found = any(form.fullmatch(candidate.strip()) for candidate in rest)
        assert found, f"the guide shows {line!r}, but the output is:\n{printed}"


def follow(text: str, clone: Path, folder: Path) -> None:
    """Execute a guide in a copy of the project; raises if a command or a shown output fails."""
    blocks = blocks_of(text)
    script = script_of(blocks, folder)
    with socket.socket() as probe:  # a free port, for suites that run in parallel
        probe.bind(("", 0))
        port = probe.getsockname()[1]
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),  # the tested package need not be installed
        "OMP_NUM_THREADS": "1",
        "PORT": str(port),
    }
    finished = subprocess.run(
        ["bash", "-e"],
        input=script,
        cwd=clone,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        timeout=3600,  # takes minutes on an idle machine
    )
    assert finished.returncode == 0, finished.stderr[-4000:]
    for number, block in enumerate(blocks):
        if block.language == "text" and block.mark is None:
            check_shown(block.text, (folder / f"{number - 1}.txt").read_text())


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what guides use of the project; all guides run in the same copy."""
    folder = tmp_path_factory.mktemp("project")
    for name in ("hparams", "recipes", "tools"):
        shutil.copytree(ROOT / name, folder / name)
    shutil.copy(ROOT / "train.py", folder)
    (folder / "simple_spk").symlink_to(ROOT / "simple_spk")
    return folder


@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.stem)
def test_a_guide_can_be_followed(guide: Path, clone: Path, tmp_path: Path) -> None:
    if guide.stem == "serve":
        pytest.importorskip("fastapi", reason="needs the extra [serve]")
    follow(guide.read_text(encoding="utf-8"), clone, tmp_path / "blocks")


def test_the_readme_can_be_followed(clone: Path, tmp_path: Path) -> None:
    (clone / "recordings").mkdir()
    names = ("a.wav", "b.m4a", "c.mp3", "new.wav", "meeting.m4a", "recordings/d.flac")
    write_speaker(tmp_path, speaker=1, recordings=len(names), seed=0)
    for name, source in zip(names, sorted(tmp_path.rglob("*.wav")), strict=True):
        waveform, sample_rate = soundfile.read(source, dtype="float32")
        if name.endswith("m4a"):
            write_m4a(clone / name, waveform, sample_rate)
        else:
            soundfile.write(clone / name, waveform, sample_rate)
    follow((ROOT / "README.md").read_text(encoding="utf-8"), clone, tmp_path / "blocks")


def anchors_of(text: str) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", BLOCK.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_guides_are_listed_and_links_lead_somewhere() -> None:
    index = (ROOT / "docs/README.md").read_text(encoding="utf-8")
    assert GUIDES and all(f"({guide.name})" in index for guide in GUIDES)
    for page in PAGES:
        blocks_of(page.read_text(encoding="utf-8"))
    for page in LINKED:
        for link, anchor in LINK.findall(page.read_text(encoding="utf-8")):
            target = page.parent / link if link else page
            assert target.exists(), f"{page.name} links to {link}, which does not exist"
            if anchor:
                anchors = anchors_of(target.read_text(encoding="utf-8"))
                assert anchor in anchors, f"{page.name} links to {link}#{anchor}: no such heading"


def names_in(module: str) -> set[str]:
    """The classes and functions that a module defines."""
    path = ROOT / f"{module.replace('.', '/')}.py"
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}


def test_model_card_guides_and_readme_have_the_rates_of_the_results() -> None:
    """What the built-in model accepts and rejects at --far 1e-3, and whom it identifies."""
    texts = {
        name: (ROOT / name).read_text(encoding="utf-8")
        for name in ("README.md", "RESULTS.md", "docs/verify.md", "docs/identify.md")
    }
    card = (ROOT / "simple_spk/builtin_model/README.md").read_text(encoding="utf-8")
    last = r"\| ([\d.]+) \[[^]]*\]e-3 \| ([\d.]+) \[[^]]*\] % \|$"  # columns: accepted, rejected
    measured = [tuple(map(float, row)) for row in re.findall(last, texts["RESULTS.md"], re.M)]
    stated = re.findall(last, card, re.M)
    assert len(stated) == 8
    for accepted, rejected in stated:
        place = (float(accepted), float(rejected))
        assert any(place == pytest.approx(row, rel=0.02, abs=0.06) for row in measured), place
    guide = re.findall(r"\| ([\d.]+)e-3 \| (\d+) % \|$", texts["docs/verify.md"], re.M)
    assert len(guide) == 7 and set(guide) <= set(stated)
    named = r"rejects (\d+) to (\d+) % of genuine pairs and accepts ([\d.]+) to ([\d.]+) in 1,000"
    (bounds,) = re.findall(named, texts["README.md"].replace("\n", " "))
    clean = [row for row in stated if float(row[0]) < 2 and float(row[1]) < 60]
    assert bounds[:2] == (min(one[1] for one in clean), max(one[1] for one in clean))
    assert bounds[2:] == (min(one[0] for one in clean), max(one[0] for one in clean))
    (row,) = re.findall(r"^\| right name \|(.*)\|$", texts["docs/identify.md"], re.M)
    *most, least = re.findall(r"\d+", row)
    assert f"{', '.join(most)} and {least} % of genuine recordings" in card


def test_new_paths_in_the_changelog_exist() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").partition("## 0.1.0")[0]
    rows = [re.split(r" *\| *", row)[1:-1] for row in re.findall(r"^\|.*\|$", text, re.MULTILINE)]
    moved = [row for row in rows if len(row) == 3 and row[0].startswith("`")]
    assert moved
    for _, module, names in moved:
        new_names = set(re.findall(r"`(\w+)`(?! ->)", names))
        assert new_names <= names_in(module.strip("`")), f"{module}: {names}"
    renamed = [row[1] for row in rows if len(row) == 2 and row[0].startswith("`simple_spk.")]
    for cell in renamed:
        for path in re.findall(r"`(simple_spk\.[a-z_.0-9]+)\.(\w+)", cell):
            assert path[1] in names_in(path[0]), f"{cell} does not exist"


@pytest.mark.parametrize(
    "text",
    [
        "```bash\nfalse\ntrue\n```\n",
        "```bash\necho 3 of 4\n```\n```text\n3 in 4\n```\n",
        "```bash\necho 3\necho 4 b\n```\n```text\n4 b\n3\n```\n",
        "```python\nraise SystemExit(1)\n```\n",
        "```yaml\nkey: value\n```\n",
        "```text\nout of nowhere\n```\n",
        "<!-- never run: why? -->\n```bash\nfalse\n```\n",
    ],
)
def test_a_guide_that_does_not_hold_fails(text: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        follow(text, tmp_path, tmp_path / "blocks")


def test_a_guide_that_holds_passes(tmp_path: Path) -> None:
    text = (
        "```bash\nNAME=one.py\necho 12.5 % in a/file\n```\n```text\n7 % in ...\n```\n"
        "<!-- file: one.py -->\n```python\nprint('one', 1)\n```\n"
        "<!-- not run: would fail -->\n```bash\nfalse\n```\n"
        "```bash\npython $NAME\n```\n```text\none 2\n```\n"
    )
    follow(text, tmp_path, tmp_path / "blocks")
