"""The map of the code: every file is on it, and its arrows say who may import whom."""

import ast
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("preparation", "doctor", "report", "images", "faces")
PACKAGE = sorted(
    path
    for room in (".", *ROOMS)
    for path in (ROOT / "simple_spk" / room).glob("*.py")
    if path.stem != "__init__" or room == "."
)
COMMANDS = sorted((ROOT / "simple_spk" / "commands").glob("*.py"))

# Modules of the package that know SpeechBrain; all others work without it.
ON_SPEECHBRAIN = {"brain", "checkpoints"}
# What the loss core may use beyond the standard library and itself.
CORE = {
    *("similarity", "distributed", "pair_sums", "loss", "key_queue", "momentum"),
    *("proxy_losses", "hard_example_losses", "quality_losses", "sphereface2", "bessel"),
    *("metric_learning", "schedule", "arguments", "queue_defects"),
}
NUMPY_ONLY = {"error_curve", "metrics", "trials", "field_table"}


def dotted(path: Path) -> str:
    """The name of a module within the package: loss, doctor.finding."""
    return ".".join(path.relative_to(ROOT / "simple_spk").with_suffix("").parts)


def imports_of(path: Path) -> set[str]:
    """The top-level names of other packages, and dotted names of our own, that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return {name if name.startswith("simple_spk") else name.split(".")[0] for name in found}


@pytest.mark.parametrize("path", PACKAGE, ids=dotted)
def test_package_imports_follow_the_arrows(path):
    imports = imports_of(path)
    assert not imports & {"recipes", "tools", "train", "tests"}, "the package stands alone"
    if path.stem not in ON_SPEECHBRAIN:
        assert not imports & {"speechbrain", "hyperpyyaml"}
        assert not imports & {f"simple_spk.{name}" for name in ON_SPEECHBRAIN}
    if path.stem in CORE:
        ours = {f"simple_spk.{name}" for name in CORE}
        assert imports <= sys.stdlib_module_names | {"torch"} | ours
    if path.stem in NUMPY_ONLY:
        assert not imports & {"torch", "scipy", "soundfile"}
        ours = {name for name in imports if name.startswith("simple_spk")}
        assert ours <= {f"simple_spk.{name}" for name in NUMPY_ONLY}


def test_imports_of_the_package_have_no_cycle():
    arrows = {
        dotted(path): {
            name.removeprefix("simple_spk.")
            for name in imports_of(path)
            if name.startswith("simple_spk.")
        }
        for path in PACKAGE
    }
    while arrows:
        leaves = {name for name, targets in arrows.items() if not targets & set(arrows)}
        assert leaves, f"a cycle among {sorted(arrows)}"
        arrows = {name: targets for name, targets in arrows.items() if name not in leaves}


@pytest.mark.parametrize("path", COMMANDS, ids=lambda path: path.stem)
def test_commands_use_the_package_and_not_the_other_way_round(path):
    assert not imports_of(path) & {"speechbrain", "hyperpyyaml", "recipes", "tools", "train"}
    assert "simple_spk.cli" not in imports_of(path)
    for module in PACKAGE:
        assert not any(name.startswith("simple_spk.commands") for name in imports_of(module))


def test_the_core_stands_below_its_rooms():
    for path in PACKAGE:
        if path.parent.name not in ROOMS:
            rooms = {f"simple_spk.{room}" for room in ROOMS}
            assert not any(name.startswith(tuple(rooms)) for name in imports_of(path)), path.name


def files_on_the_map() -> dict[str, list[str]]:
    """The files that docs/map.md has a line for, by their folder."""
    found: dict[str, list[str]] = {}
    folder = ""
    for line in (ROOT / "docs" / "map.md").read_text(encoding="utf-8").splitlines():
        heading, row = re.match(r"## (\S+)/: ", line), re.match(r"\| `(\w+\.py)` \| .+ \|$", line)
        if heading:
            folder = heading[1]
        if row:
            found.setdefault(folder, []).append(row[1])
    return found


def test_the_map_has_one_line_for_every_file_and_none_for_others():
    folders = ("", "simple_spk", *(f"simple_spk/{room}" for room in (*ROOMS, "commands")))
    for folder in (*folders, "tools", "tools/benchmarks"):
        there = [path.name for path in (ROOT / folder).glob("*.py") if path.stem != "__init__"]
        assert sorted(files_on_the_map()[folder]) == sorted(there), f"the map of {folder or ROOT}"


def test_the_map_of_the_readme_names_every_room_and_nothing_else():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    short = re.search(r"## Map of the code.*?```text\n(.*?)```", readme, re.DOTALL)[1]
    whole = (ROOT / "docs" / "map.md").read_text(encoding="utf-8")
    for folder, topic in re.findall(r"^## (\S+)/: (.+)$", whole, re.MULTILINE):
        room = f"{Path(folder).name}/" if folder != "simple_spk" else topic
        assert room in short or folder == "tools/benchmarks", f"{room} is not on the short map"
    tree = {path for path in ROOT.iterdir() if not path.name.startswith(".")}
    tree |= set((ROOT / "simple_spk").rglob("*.py")) | set((ROOT / "simple_spk").iterdir())
    there = {f"{path.name}/" if path.is_dir() else path.name for path in tree}
    named = set(re.findall(r"\w+\.py|\w+/", short))
    assert named <= there, f"not there: {named - there}"
