"""YAML is read as data, and what is not data is named with its file."""

from pathlib import Path

import pytest

from simple_spk.io.safe_yaml import LARGEST_BYTES, read_plain_yaml, read_tagged_yaml


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "file.yaml"


@pytest.mark.parametrize(
    "text, message",
    [
        ("a: 1\na: 2", "the key a occurs twice"),
        ("a: &x [1]\nb: *x", "an alias is not allowed"),
        ("a: !new:os.system {}", "could not determine a constructor"),
        ("a: 2000-99-99", "cannot be read as YAML data"),
        ("a: [", "cannot be read as YAML data"),
        ("a: " + "1" * LARGEST_BYTES, "no such file needs over"),
    ],
)
def test_plain_yaml_is_plain(file: Path, text: str, message: str) -> None:
    file.write_text(text)
    with pytest.raises(ValueError, match=message) as error:
        read_plain_yaml(file)
    assert str(file) in str(error.value)


def test_tags_are_kept_as_text(file: Path) -> None:
    file.write_text(
        "a: !new:os.system\n  x: !ref <b>\nb: !apply:f [1]\nc: !PLACEHOLDER\nd: !tuple (1)"
    )
    assert read_tagged_yaml(file) == {
        "a": {"": "!new:os.system", "x": "<b>"},
        "b": ["!apply:f", 1],
        "c": "!PLACEHOLDER",
        "d": "!tuple (1)",
    }


@pytest.mark.parametrize("read", [read_plain_yaml, read_tagged_yaml])
def test_bytes_that_are_no_text_and_missing_files_are_named(file: Path, read) -> None:  # type: ignore[no-untyped-def]
    file.write_bytes(b"a: \xff")
    with pytest.raises(ValueError, match=r"file\.yaml cannot be read as YAML data"):
        read(file)
    file.unlink()
    with pytest.raises(FileNotFoundError, match=r"no YAML file at .*file\.yaml"):
        read(file)


def test_settings_are_a_mapping(file: Path) -> None:
    file.write_text("just words")
    with pytest.raises(ValueError, match="holds no settings"):
        read_tagged_yaml(file)
