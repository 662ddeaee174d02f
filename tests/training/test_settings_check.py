"""Keys that nothing uses, and options that do not fit, are found before anything is built."""

import re
from pathlib import Path
from typing import Any

import pytest
from hyperpyyaml import load_hyperpyyaml

import train
from simple_spk.training.settings_check import check_settings, explain_yaml_error, split_options

ROOT = Path(__file__).parents[2]
EXPERIMENTS = sorted([*ROOT.glob("hparams/*.yaml"), *ROOT.glob("recipes/*/hparams/*.yaml")])
OPTIONS = train.RunOptions().keys()
SETTINGS = """\
__seed: !apply:f [!ref <seed>]
seed: 1
width: 8
rate: 0.1
centered: True
shared: &shared {a: 1}
name: null
loss: !new:Loss {options: *shared, width: !ref <width>, more: [!ref <rate> * 2, !ref <name>/x]}
modules: {loss: !ref <loss>, is_centered: !ref <centered>}
max_grad_norm: 5.0
"""


def check(folder: Path, text: str, **overrides: Any) -> None:
    (folder / "x.yaml").write_text(text)
    check_settings(folder / "x.yaml", overrides, ("modules",), OPTIONS)


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_every_experiment_passes(path: Path) -> None:
    check_settings(path, {}, (*train.REQUIRED_KEYS, *train.OPTIONAL_KEYS), OPTIONS)


def test_keys_that_the_brain_reads_are_known() -> None:
    text = (ROOT / "simple_spk/training/brain.py").read_text(encoding="utf-8")
    read = set(re.findall(r'self\.hparams(?:\.|, ")(\w+)', text))
    assert len(read) > 5 and read <= {*train.REQUIRED_KEYS, *train.OPTIONAL_KEYS}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("max_grad_norm:", "max_gradnorm:", "max_gradnorm has no effect.*mean max_grad_norm"),
        ("seed: 1", "seed: 1\nsead: 1", "sead has no effect, as nothing refers to it: "),
        ("width: 8", "width: 8\nwidht: 8", "widht has no effect"),
        ("*shared", "null", "shared has no effect"),
        ("!ref <rate> * 2", "<rate>", "rate has no effect"),  # a text, which refers to nothing
        ("seed: 1", "seed: [1", "cannot be read as YAML"),
    ],
)
def test_a_key_without_effect_is_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    check(tmp_path, SETTINGS)
    with pytest.raises(ValueError, match=message):
        check(tmp_path, SETTINGS.replace(old, new))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("widht", 4, "has no such key: did you mean width"),
        ("loss.width", 4, r"no such key: .*, --loss='\{width: 4\}'"),
        ("max_gradnorm", 4, "has no such key: did you mean max_grad_norm"),
        ("rate", "abc", "--rate=abc: expected a number, such as 0.1 in"),
        ("width", True, "expected a number"),
        ("centered", "Flase", "expected True or False"),
    ],
)
def test_an_option_that_does_not_fit_is_named(
    tmp_path: Path, key: str, value: Any, message: str
) -> None:
    check(tmp_path, SETTINGS, width=4, rate=1, centered=False, name="text", seed=None)
    with pytest.raises(ValueError, match=message):
        check(tmp_path, SETTINGS, **{key: value})


def test_options_are_told_from_settings() -> None:
    arguments = ["x.yaml", "--optimizer={lr: 1e-3}", "--folder=a=b", "--seed", "2", "--debug"]
    assert split_options([*arguments, "--device", "cpu"], OPTIONS) == (
        ["x.yaml", "--debug", "--device", "cpu"],
        {"optimizer": {"lr": 1e-3}, "folder": "a=b", "seed": 2},
    )
    for wrong, message in (
        (["--width=4", "--width=8"], "--width is given twice"),
        (["--debug", "--debug"], "--debug is given twice"),
        (["--crop_seconds=[1"], r"--crop_seconds=\[1 cannot be read"),
    ):
        with pytest.raises(ValueError, match=message):
            split_options(["x.yaml", *wrong], OPTIONS)


def test_a_file_in_another_encoding_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_bytes("name: Zoë\n".encode("latin-1"))
    with pytest.raises(ValueError, match=r"x\.yaml cannot be read as YAML"):
        check_settings(tmp_path / "x.yaml", {}, (), ())


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("!new:fractions.Fractoin", "no such class as fractions.Fractoin: correct the name, or"),
        (
            "!new:fractions.Fraction {top: 1}",
            "Invalid argument to class fractions.Fraction: ",
        ),
        ("!new:broken_module_of_a_test.Loss", "problem in .*No module named 'torchh'"),
    ],
)
def test_what_cannot_be_built_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, message: str
) -> None:
    (tmp_path / "broken_module_of_a_test.py").write_text("import torchh\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=message), explain_yaml_error("x.yaml"):
        load_hyperpyyaml(f"loss: {line}\n")


def test_a_module_that_is_not_built_is_named(tmp_path: Path) -> None:
    text = (ROOT / "hparams/mini.yaml").read_text(encoding="utf-8")
    named = text.replace("front_end: !new:", "front_end: !name:")
    (tmp_path / "x.yaml").write_text(named)
    with pytest.raises(ValueError, match=r"front_end is .*partial.*write 'front_end: !new:'"):
        train.train([str(tmp_path / "x.yaml"), f"--output_folder={tmp_path}"])
