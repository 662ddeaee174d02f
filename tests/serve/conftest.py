"""What tests of the service share: synthetic speakers, the built-in model, a client."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="fastapi is not installed: pip install -e '.[serve]'")

from fastapi.testclient import TestClient

from simple_spk.inference.extractor import Extractor
from simple_spk.serve.app import Settings, make_app
from simple_spk.serve.gate import Limits
from tools.make_toy_corpus import write_speaker

Files = list[tuple[str, tuple[str, bytes]]]


@pytest.fixture(scope="session")
def speakers(tmp_path_factory: pytest.TempPathFactory) -> list[list[Path]]:
    """Three recordings of each of two speakers."""
    folder = tmp_path_factory.mktemp("speakers")
    for speaker in (0, 12):
        write_speaker(folder, speaker=speaker, recordings=3, seed=0)
    return [sorted(one.glob("*.wav")) for one in sorted((folder / "wav").iterdir())]


@pytest.fixture(scope="session")
def extractor() -> Extractor:
    """The built-in model; nobody is enrolled in it by tests that use it directly."""
    return Extractor.load()


@pytest.fixture(scope="module")
def client(extractor: Extractor) -> Iterator[TestClient]:
    """A client of a service that everybody may use, with voices of its own."""
    with client_of(Extractor(extractor.model)) as found:
        yield found


def client_of(extractor: Extractor, limits: Limits | None = None, **settings: Any) -> TestClient:
    """A client of a service with these settings."""
    limits = limits or Limits(hosts=None, requests_per_minute=1e6)
    return TestClient(make_app(extractor, Settings(limits, **settings)))


def uploads(name: str, *paths: Path) -> Files:
    """Files as a field of a form."""
    return [(name, (path.name, path.read_bytes())) for path in paths]
