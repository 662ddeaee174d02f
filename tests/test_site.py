"""The documentation site is built without a warning, and is complete in itself."""

import json
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlsplit

import pytest

pytest.importorskip("mkdocs", reason="needs the extra [docs]")
pytest.importorskip("mkdocstrings", reason="needs the extra [docs]")
ROOT = Path(__file__).parents[1]


class Page(HTMLParser):
    """The anchors, links, loaded files and text of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.text = ""
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.anchors.add(values.get("id") or "")
        if tag == "a":
            self.links.append(values.get("href") or "")
        else:
            names = ("src", "srcset", "href", "data")
            self.loaded += [values[name] or "" for name in names if name in values]

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as CI builds it: with strict in mkdocs.yml, any warning is an error."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert built.returncode == 0, built.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    """All pages but that of errors, whose links are absolute."""
    return {path: Page(path) for path in site.rglob("*.html") if path.name != "404.html"}


def test_every_markdown_file_of_the_documentation_is_a_page(site: Path) -> None:
    sources = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("recipes/*/README.md")]
    assert len(sources) > 20
    for source in sources:
        name = "index" if source.stem == "README" else source.stem
        assert (site / source.parent.relative_to(ROOT) / f"{name}.html").is_file(), source


def test_links_lead_to_pages_and_headings_and_nothing_is_loaded_from_elsewhere(
    pages: dict[Path, Page],
) -> None:
    for path, page in pages.items():
        for link in [*page.links, *page.loaded]:
            address = urlsplit(link)
            if address.scheme or address.netloc:
                assert link in page.links, f"{path.name} loads {link}"
                continue
            target = (path.parent / address.path).resolve() if address.path else path
            assert target.exists(), f"{path.name} links to {link}"
            if address.fragment and target in pages:
                assert address.fragment in pages[target].anchors, f"{path.name} links to {link}"


def test_style_sheets_load_no_fonts(site: Path) -> None:
    sheets = list(site.rglob("*.css"))
    assert sheets and not [path for path in sheets if "url(http" in path.read_text()]


def test_markdown_is_rendered_as_on_github(pages: dict[Path, Page]) -> None:
    for path, page in pages.items():
        left = [line for line in page.text.splitlines() if line.startswith(("* ", "```", "::: "))]
        assert not left, f"{path.name}: {left[0]}"


def test_the_interface_has_public_names_only_and_is_found_by_the_search(
    site: Path, pages: dict[Path, Page]
) -> None:
    anchors = pages[site / "api.html"].anchors
    extractor = "simple_spk.inference.extractor.Extractor"
    assert {f"{extractor}.verify", f"{extractor}.diarize"} <= anchors
    assert not [name for name in anchors if "._" in name]
    index = json.loads((site / "search/search_index.json").read_text(encoding="utf-8"))
    places = {entry["location"] for entry in index["docs"]}
    assert f"api.html#{extractor}.verify" in places and "RESULTS.html#thresholds" in places
