"""The folders of the package are layers: imports stay in a folder or go to a lower layer."""

import ast
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LAYERS = (
    ("io", "distributed", "schedules"),
    ("data", "models"),
    ("losses", "evaluation", "corpora"),
    ("inference", "report", "doctor"),
    ("training", "export", "vision", "serve"),
    ("cli",),
)
LEVEL = {folder: level for level, layer in enumerate(LAYERS) for folder in layer}
MODULES = sorted(path for path in (ROOT / "simple_spk").rglob("*.py") if path.stem != "__init__")
LOSS_CORE = ("losses", "models.similarity", "models.momentum_encoder")  # needs torch alone
NUMPY_ONLY = ("evaluation.error_rates", "evaluation.metrics")
ON_SPEECHBRAIN = ("training",)
ON_TORCHAUDIO = ("models.spec_augment",)  # only training needs it, and with it one release of torch


def dotted(path: Path) -> str:
    """The name of a module within the package, such as losses.simple."""
    return ".".join(path.relative_to(ROOT / "simple_spk").with_suffix("").parts)


def imports_of(path: Path) -> set[str]:
    """The modules that a file imports, by full name."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


@pytest.mark.parametrize("path", MODULES, ids=dotted)
def test_imports_go_to_a_lower_layer(path):
    name, imports = dotted(path), imports_of(path)
    ours = {module.removeprefix("simple_spk.") for module in imports if "simple_spk." in module}
    folder = name.split(".")[0]
    for module in ours:
        target = module.split(".")[0]
        assert target == folder or LEVEL[target] < LEVEL[folder], f"{name} imports {module}"
    others = {module.split(".")[0] for module in imports} - {"simple_spk"}
    assert not others & {"recipes", "tools", "train", "tests"}, "the package stands alone"
    if folder not in ON_SPEECHBRAIN:
        assert not others & {"speechbrain", "hyperpyyaml"}
    assert "torchaudio" not in others or name in ON_TORCHAUDIO
    if name.startswith(LOSS_CORE):
        assert others <= sys.stdlib_module_names | {"torch"}
    if name in NUMPY_ONLY:
        assert others <= sys.stdlib_module_names | {"numpy"}


def test_imports_have_no_cycle():
    arrows = {
        dotted(path): {name.removeprefix("simple_spk.") for name in imports_of(path)}
        for path in MODULES
    }
    while arrows:
        leaves = {name for name, targets in arrows.items() if not targets & set(arrows)}
        assert leaves, f"a cycle among {sorted(arrows)}"
        arrows = {name: targets for name, targets in arrows.items() if name not in leaves}


def test_no_folder_holds_more_than_fourteen_files():
    for folder in {path.parent for path in MODULES}:
        files = [path for path in folder.glob("*.py") if path.stem != "__init__"]
        assert len(files) <= 14, f"{folder} holds {len(files)} files"


def test_nothing_installs_us_by_a_name_that_may_be_a_strangers():
    """The package is not on PyPI: whoever took its name there would be installed."""
    documents = [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "recipes").rglob("*.md"),
    ]
    for path in (*MODULES, *documents):
        by_name = re.search(r"pip install[^`\n]*\bsimple[-_]spk", path.read_text(encoding="utf-8"))
        assert by_name is None, f"{path}: {by_name}: write pip install -e '.[EXTRA]'"
