"""Losses exchanged in experiments: the files in hparams, and every loss block in every recipe."""

from pathlib import Path

import pytest
import torch
from hyperpyyaml import load_hyperpyyaml

from tools.exchange_loss import exchange_loss, keys_of, split, write_experiment
from tools.make_toy_corpus import make_toy_corpus

ROOT = Path(__file__).parents[2]
BLOCKS = sorted((ROOT / "hparams/losses").glob("*.yaml"))
BASES = sorted(
    path
    for path in [*ROOT.glob("hparams/*.yaml"), *ROOT.glob("recipes/*/hparams/*.yaml")]
    if "SimPLELoss" in path.read_text() and "\nembedding_dim:" in path.read_text()
)
BASELINES = ("softmax", "asoftmax", "amsoftmax", "aamsoftmax", "sphereface2")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "corpus"
    make_toy_corpus(
        folder, train_speakers=5, valid_speakers=2, test_speakers=2, recordings_per_speaker=2
    )
    return folder


def load(path, **overrides):
    """The objects of an experiment but those of SpeechBrain, which hypothesis cannot stand."""
    text = path.read_text().replace("speechbrain.utils.seed_everything", "torch.manual_seed")
    parts = [part for part in split(text) if part.key not in ("epoch_counter", "checkpointer")]
    return load_hyperpyyaml("\n".join(line for part in parts for line in part.lines), overrides)


@pytest.mark.parametrize("name", BASELINES)
def test_baselines_are_simple_resnet34_with_another_loss(name, corpus, tmp_path):
    """One command writes each of them; the file reads, and builds, like one written by hand."""
    base, made = ROOT / "hparams/simple_resnet34.yaml", tmp_path / f"{name}_resnet34.yaml"
    block = ROOT / f"hparams/losses/{name}.yaml"
    write_experiment(base, block, made)
    text = made.read_text()
    assert f"python train.py {made} --data_folder=DATA" in text
    assert f"output_folder: !ref results/{name}_resnet34/<seed>" in text
    allowed = {"output_folder", "modules", "checkpointer", "parameter_groups"}
    new_parts = {part.key: part for part in split(text)}
    for part in split(base.read_text()):
        if part.key in new_parts.keys() - allowed - keys_of(block.read_text()) - {None}:
            assert new_parts[part.key] == part
    loaded = load(made, data_folder=str(corpus), embedding_dim=16, width=4)
    assert set(loaded["modules"]) == {"front_end", "encoder", "loss"}
    assert loaded["loss"].num_classes == 5 and loaded["loss"].class_vectors.shape == (5, 16)
    embeddings = loaded["encoder"](*loaded["front_end"](torch.randn(4, 8000)))
    assert torch.isfinite(loaded["loss"](embeddings, torch.arange(4)))


@pytest.mark.parametrize("base", BASES, ids=lambda path: path.stem)
@pytest.mark.parametrize("block", BLOCKS, ids=lambda path: path.stem)
def test_every_loss_fits_every_recipe(base, block):
    if "embedding_head" in keys_of(block.read_text()) - keys_of(base.read_text()):
        with pytest.raises(ValueError, match="embedding_head would be without effect"):
            exchange_loss(base.read_text(), block.read_text())
        return
    text = exchange_loss(base.read_text(), block.read_text())
    for line in (line for line in base.read_text().splitlines() if line.startswith("# ")):
        assert line in text  # comments between the keys stay
    if "queue: null" in block.read_text():
        assert "queue" not in text.replace("over the queue", "") or "queue:" not in text
        assert "momentum_encoder" not in text and "KeyQueue" not in text
    else:
        assert text.count("    queue: !ref <queue>") == 2  # modules and recoverables


@pytest.mark.parametrize("block", BLOCKS, ids=lambda path: path.stem)
def test_every_loss_builds_and_is_called_as_the_brain_does(block, corpus, tmp_path):
    if "pytorch_metric_learning" in block.read_text():
        pytest.importorskip("pytorch_metric_learning")
    experiments = {"simple": ROOT / "hparams/mini.yaml", "other": tmp_path / "other.yaml"}
    write_experiment(experiments["simple"], block, experiments["other"])
    loaded = {
        name: load(path, data_folder=str(corpus), embedding_dim=16, width=4)
        for name, path in experiments.items()
    }
    # One seed means one encoder, whatever the loss.
    first, second = (loaded[name]["encoder"].state_dict() for name in experiments)
    shared = first.keys() & second.keys()  # all but the length of an embedding head
    differing = first.keys() ^ second.keys()
    assert all(key.startswith(("output.length.", "output.standardize.")) for key in differing)
    assert all(torch.equal(first[key], second[key]) for key in shared)
    modules = loaded["other"]["modules"]
    assert ("queue" in modules) == ("momentum_encoder" in modules)
    embeddings, labels = torch.randn(10, 16, requires_grad=True), torch.arange(10) % 5
    if "queue" in modules:
        own_keys = modules["queue"].enqueue(embeddings.detach() + 0.1, labels)
        value = modules["loss"](embeddings, labels, *modules["queue"].contents(), own_keys)
    else:
        assert modules["loss"].num_classes == 5  # those of train.csv
        value = modules["loss"](embeddings, labels)
    value.backward()
    assert torch.isfinite(value) and torch.isfinite(embeddings.grad).all()
    names = [name for name, _ in modules["loss"].named_parameters(prefix="loss")]
    names += [name for name, _ in modules["encoder"].named_parameters(prefix="encoder")]
    for prefix in loaded["other"]["parameter_groups"] or {}:
        assert any(name.startswith(prefix) for name in names)


@pytest.mark.parametrize("name", ["magface", "adaface", "scf_arcface"])
@pytest.mark.parametrize("base", ["mini.yaml", "simple_resnet34.yaml"])
def test_losses_that_go_by_lengths_find_them_free(name, base, corpus, tmp_path):
    """From the first step on, other recordings have other lengths, or may come to have them."""
    experiment = tmp_path / "other.yaml"
    write_experiment(ROOT / "hparams" / base, ROOT / f"hparams/losses/{name}.yaml", experiment)
    loaded = load(experiment, data_folder=str(corpus), embedding_dim=16, width=4)
    encoder, loss = loaded["encoder"], loaded["loss"]
    embeddings = encoder(torch.randn(6, 60, 80))
    lengths = torch.linalg.vector_norm(embeddings.detach(), dim=1)
    if name == "magface":
        assert loss.lengths[0] < float(lengths.min()) and float(lengths.max()) < loss.lengths[1]
        assert loss.length_weight > loss.least_length_weight
        loss(embeddings, torch.arange(6) % 5).backward()
        assert float(encoder.output.length.weight.grad.abs().sum()) > 0
    else:
        assert float(lengths.std()) > 0.01


@pytest.mark.parametrize(
    "base, speeds",
    [("hparams/simple_resnet34_modern.yaml", 3)],
)
def test_voices_at_other_speeds_are_classes_of_their_own(base, speeds, corpus, tmp_path):
    experiment = tmp_path / "softmax.yaml"
    write_experiment(ROOT / base, ROOT / "hparams/losses/softmax.yaml", experiment)
    lines = [
        line
        for part in split(experiment.read_text())
        if part.key in ("data_folder", "speeds", "num_classes")
        for line in part.lines
    ]
    loaded = load_hyperpyyaml("\n".join(lines), {"data_folder": str(corpus)})
    assert loaded["num_classes"] == 5 * speeds


def test_a_missing_manifest_is_explained(tmp_path):
    experiment = tmp_path / "softmax.yaml"
    write_experiment(ROOT / "hparams/mini.yaml", ROOT / "hparams/losses/softmax.yaml", experiment)
    with pytest.raises(FileNotFoundError, match="prepare the data first"):
        load(experiment, data_folder=str(tmp_path / "nowhere"))


def test_only_what_belongs_to_the_loss_changes():
    base = (
        "# Head\nseed: 1  # of all\nold: 2\nshared: 3\nsize: 4\nloss: !new:a.B\n    x: !ref <old>\n"
        "    y: !ref <shared>\nqueue: !new:a.Q\n    size: !ref <size>\n\nmodules:\n"
        "    loss: !ref <loss>\n    queue: !ref <queue>\n# Tail\nlast: !ref <shared>\n"
        "parameter_groups:\n    loss.bias: {lr: 1}\n    encoder: {lr: 2}\n"
    )
    block = "# Title\nnew: 5\nloss: !new:c.D\n    z: !ref <new>  # why\nqueue: null\n"
    assert exchange_loss(base, block) == (
        "# Head\nseed: 1  # of all\nshared: 3\nnew: 5\nloss: !new:c.D\n    z: !ref <new>  # why\n"
        "\nmodules:\n    loss: !ref <loss>\n# Tail\nlast: !ref <shared>\n"
        "parameter_groups:\n    encoder: {lr: 2}\n"
    )


def test_parameter_groups_of_an_exchanged_output_go_with_it():
    base = "embedding_head: 1\nencoder: !ref <embedding_head>\nloss: 2\nparameter_groups:\n"
    groups = "    loss.bias: {lr: 1}\n    encoder.output.length: {lr: 2}\n    encoder: {lr: 3}\n"
    kept = exchange_loss(base + groups, "embedding_head: 5\n")
    assert kept.endswith("parameter_groups:\n    loss.bias: {lr: 1}\n    encoder: {lr: 3}\n")
    block = "embedding_head: 5\nparameter_groups:\n    encoder.output.length: {lr: 9}\n"
    assert exchange_loss(base + groups, block).endswith("    encoder.output.length: {lr: 9}\n")


def test_files_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="lacks embedding_dim"):
        exchange_loss("loss: 1\n", "loss: !new:a.B\n    dim: !ref <embedding_dim>\n")
    with pytest.raises(ValueError, match="margn would be without effect"):
        exchange_loss("margin: 1\nloss: !ref <margin>\n", "margn: 2\n")
    with pytest.raises(ValueError, match="lacks loss"):
        exchange_loss("seed: 1\n", "margin: 2\n")


def test_names_of_other_files_stay(tmp_path):
    """A base called train.yaml must not rename train.py or train.csv."""
    base = ROOT / "recipes/Folder/hparams/train.yaml"
    made = tmp_path / "softmax.yaml"
    write_experiment(base, ROOT / "hparams/losses/softmax.yaml", made)
    text = made.read_text()
    assert f"python train.py {made} " in text
    assert "/train.csv" in text and "softmax.csv" not in text


def test_a_loss_file_without_a_title_is_named(tmp_path):
    block = tmp_path / "my_loss.yaml"
    block.write_text("loss: !new:torch.nn.MSELoss\n")
    write_experiment(ROOT / "hparams/mini.yaml", block, tmp_path / "new.yaml")
    assert (tmp_path / "new.yaml").read_text().startswith("# my_loss. Everything")


def test_classes_are_counted_in_the_table_that_trains() -> None:
    count = "!apply:simple_spk.data.manifest.count_speakers [!ref <data_folder>/train.csv]"
    block = f"classes: {count}\nloss: !ref <classes>\n"
    base = "data_folder: a\ntrain_table: b\nloss: !new:simple_spk.vision.c.D\n"
    assert "image_table.count_classes [!ref <train_table>]" in exchange_loss(base, block)
    without = base.replace("train_table", "other")
    assert "count_classes [!ref <data_folder>/train.csv]" in exchange_loss(without, block)


def test_null_is_a_value_where_it_is_no_module():
    """As of settings that search_settings.py tries; only modules are left out."""
    base = (ROOT / "hparams/mini.yaml").read_text()
    plain = exchange_loss(base, (ROOT / "hparams/losses/sphereface2.yaml").read_text())
    text = exchange_loss(plain, "boundary_bias: null\nmargin_ramp: null\n")
    assert "\nboundary_bias: null\n" in text and "\nmargin_ramp: null\n" in text
    assert "initial_bias: !ref <boundary_bias>" in text and "queue" not in keys_of(text)
