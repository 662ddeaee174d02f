"""What PyPI shows: the README with links that lead somewhere, and links to the project."""

import re
from pathlib import Path

import pytest

from tools.build_release import links_of_project, with_absolute_links

ROOT = Path(__file__).parents[2]
ADDRESS = "https://example.org/someone/simple_spk"


def test_all_links_of_the_readme_lead_to_files_of_the_repository() -> None:
    text = with_absolute_links((ROOT / "README.md").read_text(), ADDRESS, "v1")
    found = re.findall(rf"{ADDRESS}/(blob|raw)/v1/([^)\"#\s]+)", text)
    assert len(found) > 20
    for kind, path in found:
        assert (ROOT / path).exists(), path
        assert (kind == "raw") == path.endswith((".svg", ".png"))
    links = re.findall(r"(?:\]\(|src=\")([^)\"]+)", text)
    assert links
    assert all(link.startswith(("https://", "#")) for link in links), links


def test_the_links_of_the_project_are_a_table_of_its_settings() -> None:
    tomllib = pytest.importorskip("tomllib", reason="needs Python 3.11")
    settings = (ROOT / "pyproject.toml").read_text() + links_of_project(ADDRESS, "v1")
    urls = tomllib.loads(settings)["project"]["urls"]
    assert urls["Changelog"] == f"{ADDRESS}/blob/v1/CHANGELOG.md"
    assert urls["Source"] == ADDRESS
