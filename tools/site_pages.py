"""The pages of the documentation site: a hook of MkDocs, named in mkdocs.yml.

The site has the paths of the repository, so that links between Markdown files work in both.
"""

from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
PAGES = ("*.md", "docs/*", "recipes/*/*.md", "simple_spk/builtin_model/README.md")
TEMPLATES = ("recipes/OpenSpeech/builtin_card.md",)  # a copy of the model card
# The Python interface: the Extractor, and what it takes and returns.
EXTRACTOR = "::: simple_spk.inference.extractor.Extractor"
TYPES = (
    "extractor.Side",
    "decisions.Decision",
    "decisions.Identification",
    "decisions.Candidate",
    "speech_quality.RecordingQuality",
    "voice_stores.voice.Voice",
    "voice_stores.voice.VoiceStore",
    "diarization.conversation.Conversation",
    "diarization.conversation.Turn",
    "batch_embedding.ExtractionOptions",
    "batch_embedding.EmbeddedBatch",
)
FIELDS = "\n    options:\n      show_if_no_docstring: true"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The files of the theme, the Markdown of the repository with its images, and the API."""
    for file in [*files.documentation_pages(), *files.media_files()]:
        if file.src_dir == config.docs_dir:  # found again by its path in the repository
            files.remove(file)
    for path in _sources():
        files.append(File(path, str(ROOT), config.site_dir, config.use_directory_urls))
    types = [f"::: simple_spk.inference.{name}{FIELDS}" for name in TYPES]
    import_line = "`from simple_spk import Extractor`"
    text = "\n\n".join(["# Python interface", import_line, EXTRACTOR, *types])
    files.append(File.generated(config, "api.md", content=text))
    return files


def _sources() -> Iterator[str]:
    """The pages and images of the repository, by their paths in it."""
    for pattern in PAGES:
        for path in sorted(ROOT.glob(pattern)):
            name = path.relative_to(ROOT).as_posix()
            if path.is_file() and name not in TEMPLATES:
                yield name
