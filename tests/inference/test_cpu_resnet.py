"""Laws of embedding on a processor: the same embeddings as the model's own, whatever the batch."""

import threading
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn

from simple_spk.inference import cpu_resnet
from simple_spk.inference.cpu_resnet import CpuEmbedding, FoldedResNet, each_on_a_core
from simple_spk.models.fbank import Fbank
from simple_spk.models.resnet import ResNet

SHAPES = {
    "full depth": {"width": 8, "stem_stride": 2, "embedding_dim": 6},
    "odd": {"num_mels": 23, "width": 3, "blocks": (1, 2), "stem_stride": 3},
    "wide": {"width": 32, "blocks": (1, 1), "stem_stride": 2},
    "polar": {"width": 4, "output": {"form": "polar", "centered": True, "initial_length": 2.0}},
}


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("shape", SHAPES)
@torch.no_grad()
def test_a_folded_encoder_is_the_encoder(
    shape: str, stir: Callable[[nn.Module], nn.Module]
) -> None:
    torch.manual_seed(0)
    encoder = stir(ResNet(**SHAPES[shape])).eval()
    folded = FoldedResNet(encoder)
    for frames in (1, 2, 3, 7, 8, 9, 31, 64, 65, 133):
        for count in (1, 3):
            features = torch.randn(count, frames, encoder.num_mels)
            before = features.clone()
            expected = encoder(features)
            assert (folded(features) - expected).norm() / expected.norm() < 1e-5, (frames, count)
            assert torch.equal(features, before)


def test_a_batch_does_not_show_in_an_answer(
    tiny_model: tuple[Fbank, ResNet, nn.Module], two_threads: None
) -> None:
    """Not even in the last bit; and the answer is that of the model itself."""
    front_end, encoder, _ = tiny_model
    embed = CpuEmbedding(front_end, encoder)
    torch.manual_seed(0)
    lengths = torch.tensor([400, 16000, 9001, 8999, 31999, 2345])
    waveforms = torch.randn(len(lengths), 32000) * 0.1  # what pads is not zero
    together = embed(waveforms, lengths)
    assert not together.requires_grad
    backwards = embed(waveforms.flip(0), lengths.flip(0)).flip(0)
    assert torch.equal(together, backwards)
    with torch.no_grad():
        expected = encoder(*front_end(waveforms, lengths))
    assert ((together - expected).norm(dim=1) / expected.norm(dim=1)).max() < 1e-4
    for row, waveform, length in zip(together, waveforms, lengths, strict=True):
        assert torch.equal(embed(waveform[None, :length])[0], row)


def test_waveforms_of_one_length_may_share_calls(
    tiny_model: tuple[Fbank, ResNet, nn.Module],
    two_threads: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cpu_resnet, "MOST_TOGETHER", 3)
    embed = CpuEmbedding(*tiny_model[:2])
    torch.manual_seed(0)
    lengths = torch.tensor([8000, 400, 8000, 8000, 2345, 8000, 8000, 400])
    waveforms = torch.randn(len(lengths), 9000) * 0.1
    alone = embed(waveforms, lengths)
    found = embed(waveforms, lengths, together=True)
    assert ((found - alone).norm(dim=1) / alone.norm(dim=1)).max() < 1e-5


@pytest.mark.parametrize("shape", SHAPES)
def test_half_the_precision_gives_nearly_the_same_whatever_the_batch(
    shape: str, stir: Callable[[nn.Module], nn.Module], two_threads: None
) -> None:
    torch.manual_seed(0)
    encoder = stir(ResNet(**SHAPES[shape])).eval()
    front_end = Fbank(num_mels=encoder.num_mels).eval()
    waveforms, lengths = torch.randn(3, 20000) * 0.1, torch.tensor([20000, 7001, 400])
    exact = CpuEmbedding(front_end, encoder)(waveforms, lengths)
    half = CpuEmbedding(front_end, encoder, torch.bfloat16)
    together = half(waveforms, lengths)
    assert together.dtype == torch.float32
    difference = (together - exact).norm(dim=1) / exact.norm(dim=1)
    assert 1e-5 < difference.max() < 0.03  # it is another way to compute the same
    for row, waveform, length in zip(together, waveforms, lengths, strict=True):
        assert torch.equal(half(waveform[None, :length])[0], row)


def test_half_the_precision_of_another_encoder() -> None:
    torch.manual_seed(0)
    front_end, waveforms = Fbank().eval(), torch.randn(2, 5000)

    class Linear(nn.Linear):
        def forward(self, features: Tensor, lengths: Tensor | None = None) -> Tensor:
            return super().forward(features.mean(dim=1))

    encoder = Linear(80, 4)
    with torch.no_grad():
        exact = encoder(front_end(waveforms)[0])
    half = CpuEmbedding(front_end, encoder, torch.bfloat16)(waveforms)
    assert half.dtype == torch.float32
    torch.testing.assert_close(half, exact, atol=0.02, rtol=0.05)


def test_another_encoder_is_used_as_it_is() -> None:
    class Mean(nn.Module):
        def forward(self, features: Tensor, lengths: Tensor | None = None) -> Tensor:
            return features.mean(dim=1)

    front_end = Fbank(mean_normalization=False).eval()
    waveforms = torch.randn(2, 5000)
    expected = front_end(waveforms)[0].mean(dim=1)
    torch.testing.assert_close(CpuEmbedding(front_end, Mean())(waveforms), expected)


def test_rows_are_computed_at_the_same_time_and_threads_are_left_as_they_were(
    two_threads: None,
) -> None:
    both = threading.Barrier(2)
    threads = []

    def task(row: Tensor) -> Tensor:
        both.wait(timeout=60)  # nobody passes alone
        threads.append(torch.get_num_threads())
        return row + 1

    rows = list(torch.arange(4.0))
    assert each_on_a_core(task, rows) == [row + 1 for row in rows]
    assert threads == [1] * 4
    assert torch.get_num_threads() == 2
    new_thread = []
    thread = threading.Thread(target=lambda: new_thread.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert new_thread == [2]


def test_rows_are_computed_without_threads_if_none_can_be_had(
    two_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, started = threading.Thread.start, []

    def start_one(thread: threading.Thread) -> None:
        started.append(thread)
        if len(started) == 2:
            raise RuntimeError("can't start new thread")
        start(thread)

    rows = list(torch.arange(4.0))
    results: list[Tensor] = []
    computing = threading.Thread(
        target=lambda: results.extend(each_on_a_core(lambda row: row + 1, rows)), daemon=True
    )
    monkeypatch.setattr(threading.Thread, "start", start_one)
    start(computing)
    computing.join(timeout=60)  # it might hang
    assert results == [row + 1 for row in rows] and len(started) == 2


def test_a_failure_leaves_the_threads_as_they_were(two_threads: None) -> None:
    def fail(row: Tensor) -> Tensor:
        raise ValueError("as planned")

    with pytest.raises(ValueError, match="as planned"):
        each_on_a_core(fail, list(torch.arange(3.0)))
    assert torch.get_num_threads() == 2
