"""Two processes are one process on the joined batch (gloo, on CPUs)."""

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from simple_spk import distributed
from simple_spk.distributed import (
    gather_in_rank_order,
    gather_objects,
    leave_group,
    mean_over_ranks,
    own_device,
)
from simple_spk.losses.hard_example import BroadFaceLoss, CurricularFaceLoss
from simple_spk.losses.key_queue import KeyQueue
from simple_spk.losses.margin import ArcFaceLoss
from simple_spk.losses.quality_aware import AdaFaceLoss
from simple_spk.losses.simple import SimPLELoss
from simple_spk.models.momentum_encoder import MomentumEncoder
from simple_spk.models.similarity import GeneralizedInnerProduct

PROCESSES, LOCAL_BATCH, INPUT_DIM, DIM, STEPS, QUEUE = 2, 6, 5, 4, 7, 31


def train_a_little(process: int, processes: int) -> dict[str, torch.Tensor]:
    """A few SimPLE steps of a linear encoder on this process's share of each batch."""
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Linear(INPUT_DIM, 8), nn.Tanh(), nn.Linear(8, DIM)).double()
    similarity = GeneralizedInnerProduct(0.3, learnable=True)
    loss = SimPLELoss(similarity, 0.3, 2.0, 5.0, -0.5).double()
    momentum_encoder = MomentumEncoder(encoder, momentum=0.5)
    queue = KeyQueue(QUEUE, DIM).double()
    parameters = [*encoder.parameters(), *loss.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    if processes > 1:
        encoder, loss = DistributedDataParallel(encoder), DistributedDataParallel(loss)
    for step in range(STEPS):
        generator = torch.Generator().manual_seed(step)
        size = PROCESSES * LOCAL_BATCH
        inputs = torch.randn(size, INPUT_DIM, generator=generator, dtype=torch.float64)
        # Speakers are spread unevenly, so that processes have different numbers of positives.
        labels = torch.randint(3, (size,), generator=generator)
        share = slice(process * size // processes, (process + 1) * size // processes)
        queries, keys = encoder(inputs[share]), momentum_encoder(inputs[share])
        own_keys = queue.enqueue(keys, labels[share])
        stored, stored_labels = queue.contents()
        # The own key of each query is its very twin, on every process and at every pointer.
        assert torch.equal(stored[own_keys], keys)
        optimizer.zero_grad()
        loss(queries, labels[share], stored, stored_labels, own_keys).backward()
        optimizer.step()
        momentum_encoder.update(encoder.module if processes > 1 else encoder)
    state = {f"parameter {n}": p.detach().clone() for n, p in enumerate(parameters)}
    return state | {"queue": queue.keys.clone(), "labels": queue.labels.clone()}


def train_class_vectors(process: int, processes: int) -> dict[str, torch.Tensor]:
    """A few steps with losses over class vectors, some of which remember past batches."""
    state = {}
    for loss_class in (ArcFaceLoss, CurricularFaceLoss, AdaFaceLoss, BroadFaceLoss):
        torch.manual_seed(0)
        encoder, loss = nn.Linear(INPUT_DIM, DIM).double(), loss_class(DIM, 3).double()
        own = loss
        parameters = [*encoder.parameters(), *loss.parameters()]
        if processes > 1:
            encoder, loss = DistributedDataParallel(encoder), DistributedDataParallel(loss)
        for step in range(STEPS):
            generator = torch.Generator().manual_seed(step)
            size = PROCESSES * LOCAL_BATCH
            inputs = torch.randn(size, INPUT_DIM, generator=generator, dtype=torch.float64)
            labels = torch.randint(3, (size,), generator=generator)
            share = slice(process * size // processes, (process + 1) * size // processes)
            loss(encoder(inputs[share]), labels[share]).backward()
            with torch.no_grad():
                for parameter in parameters:
                    parameter -= 0.1 * parameter.grad
                    parameter.grad = None
        weights = {f"{loss_class.__name__} {n}": p.detach() for n, p in enumerate(parameters)}
        state |= weights | {f"{loss_class.__name__} {n}": b for n, b in own.named_buffers()}
    return state


def in_process(process: int, folder: str) -> None:
    """What each of the processes does; results go to files."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=process, world_size=PROCESSES
    )
    state = train_a_little(process, PROCESSES) | train_class_vectors(process, PROCESSES)
    torch.save(state, Path(folder) / f"{process}.pt")
    rows = gather_in_rank_order(torch.tensor([[process, process], [8.0, 9.0]]).T)
    assert rows.tolist() == [[0.0, 8.0], [0.0, 9.0], [1.0, 8.0], [1.0, 9.0]]
    assert float(mean_over_ranks(torch.tensor(float(process)))) == 0.5
    assert gather_objects({"process": process}) == [{"process": 0}, {"process": 1}]
    leave_group()


def test_two_processes_equal_one_on_the_joined_batch(tmp_path):
    multiprocessing.spawn(in_process, args=(str(tmp_path),), nprocs=PROCESSES)
    first, second = (torch.load(tmp_path / f"{p}.pt", weights_only=True) for p in range(PROCESSES))
    for name, value in first.items():
        assert torch.equal(value, second[name]), f"{name} differs between the processes"
    for name, value in (train_a_little(0, 1) | train_class_vectors(0, 1)).items():
        torch.testing.assert_close(first[name], value, rtol=1e-10, atol=1e-12, msg=name)


def test_one_process_needs_no_group():
    rows = torch.randn(3, 2, requires_grad=True)
    assert torch.equal(gather_in_rank_order(rows), rows)
    assert not gather_in_rank_order(rows).requires_grad
    assert gather_objects(1) == [1]


def test_each_process_has_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """But for one process, and where the GPU is named."""
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert own_device("cuda") == "cuda"
    monkeypatch.setattr(distributed, "world_size", lambda: 4)
    assert [own_device(name) for name in ("cuda", "cuda:1", "cpu")] == ["cuda:3", "cuda:1", "cpu"]
