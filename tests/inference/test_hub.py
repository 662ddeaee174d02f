"""Laws of models by name: folders as they are, Hub names from a local cache, without a network."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from simple_spk.inference.model_folder import load_model, resolve

REVISION = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cache(model_folder: Path, tmp_path: Path) -> Path:
    """A cache as huggingface_hub leaves it after having fetched owner/name."""
    repository = tmp_path / "cache" / "models--owner--voices-1.0"
    shutil.copytree(model_folder, repository / "snapshots" / REVISION)
    for name in ("main", "v1"):
        (repository / "refs").mkdir(exist_ok=True)
        (repository / "refs" / name).write_text(REVISION)
    return tmp_path / "cache"


def resolve_offline(model: str, cache: Path) -> subprocess.CompletedProcess[str]:
    """What a new process, in which huggingface_hub must not use the network, says of a model."""
    command = (
        "import sys\nfrom simple_spk.inference.model_folder import resolve\n"
        "try: print(resolve(sys.argv[1]))\nexcept OSError as error: sys.exit(str(error))"
    )
    root = Path(__file__).parents[2]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(cache)}
    return subprocess.run(
        [sys.executable, "-c", command, model],
        env={**environment, "PYTHONPATH": str(root)},
        cwd=cache,
        text=True,
        capture_output=True,
    )


@pytest.mark.parametrize("model", ["owner/voices-1.0", f"owner/voices-1.0@{REVISION}"])
def test_a_hub_name_is_found_in_the_cache(model: str, cache: Path, model_folder: Path) -> None:
    answer = resolve_offline(model, cache)
    assert not answer.returncode, answer.stderr
    folder = Path(answer.stdout.strip())
    assert folder.name == REVISION
    assert load_model(folder).threshold == load_model(model_folder).threshold


def test_a_named_revision_is_found(cache: Path) -> None:
    assert Path(resolve_offline("owner/voices-1.0@v1", cache).stdout.strip()).name == REVISION


@pytest.mark.parametrize("model", ["owner/other", "owner/voices-1.0@v2"])
def test_what_is_nowhere_is_named(model: str, cache: Path) -> None:
    answer = resolve_offline(model, cache)
    assert answer.returncode
    assert model in answer.stderr
    assert "no folder" in answer.stderr


def test_a_folder_comes_before_the_hub(cache: Path) -> None:
    (cache / "owner" / "voices-1.0").mkdir(parents=True)
    assert resolve_offline("owner/voices-1.0", cache).stdout.strip() == "owner/voices-1.0"


@pytest.mark.parametrize(
    "model", [".", "/no/where", "model", "a/b/c", "../a", "a/b@", "./a", "-a/b", "a b/c", "a/b\n"]
)
def test_what_is_no_hub_name_is_a_path(model: str) -> None:
    assert resolve(model) == Path(model)


def test_a_path_is_a_path() -> None:
    assert resolve(Path("owner/voices")) == Path("owner/voices")
