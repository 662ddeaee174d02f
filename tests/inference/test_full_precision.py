"""Laws of full precision: no TF32 within, and outside whatever the caller has chosen."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from simple_spk.inference.model import full_precision

backends: Any = torch.backends


def settings() -> list[Any]:
    """All that can be asked; what torch refuses to say counts as None."""
    cudnn, matmul, mkldnn = backends.cudnn, backends.cuda.matmul, backends.mkldnn.matmul
    questions: list[Callable[[], Any]] = [
        *((lambda part=part: part.fp32_precision) for part in (cudnn.conv, cudnn.rnn, matmul)),
        lambda: mkldnn.fp32_precision,
        lambda: cudnn.allow_tf32,
        lambda: matmul.allow_tf32,
        torch.get_float32_matmul_precision,
    ]
    answers: list[Any] = []
    for ask in questions:
        try:
            answers.append(ask())
        except RuntimeError:
            answers.append(None)
    return answers


@pytest.fixture
def untouched() -> Iterator[None]:
    """Brings torch's own settings back."""
    yield
    torch.set_float32_matmul_precision("highest")
    backends.cuda.matmul.fp32_precision = backends.mkldnn.matmul.fp32_precision = "none"
    backends.cudnn.allow_tf32 = True


def choose_nothing() -> None:
    pass


def choose_tf32() -> None:
    backends.cudnn.allow_tf32 = True
    torch.set_float32_matmul_precision("high")


def choose_none() -> None:
    backends.cudnn.allow_tf32 = False
    backends.cuda.matmul.allow_tf32 = False


def choose_least() -> None:
    torch.set_float32_matmul_precision("medium")


def choose_in_the_newer_way() -> None:
    backends.cuda.matmul.fp32_precision = "tf32"


CHOICES = (choose_nothing, choose_tf32, choose_none, choose_least, choose_in_the_newer_way)


@pytest.mark.parametrize("choose", CHOICES)
@pytest.mark.usefixtures("untouched")
def test_settings_are_local(choose: Callable[[], None]) -> None:
    choose()
    before = settings()
    with full_precision():
        assert not backends.cudnn.allow_tf32 and not backends.cuda.matmul.allow_tf32
        assert backends.cudnn.conv.fp32_precision != "tf32"
    assert settings() == before
    with pytest.raises(RuntimeError, match="as planned"), full_precision():
        raise RuntimeError("as planned")
    assert settings() == before
    # Threads must not take each other's settings for those of the caller.
    inside = threading.Barrier(2)

    def overlap(_: int) -> None:
        with contextlib.suppress(threading.BrokenBarrierError), full_precision():
            inside.wait(0.2)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(overlap, range(2)))
    assert inside.broken and settings() == before
