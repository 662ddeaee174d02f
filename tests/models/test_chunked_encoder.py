"""Laws of embedding in chunks: the gradient of one pass over the chunks, with less memory."""

import copy

import pytest
import torch

from simple_spk.models.chunked_encoder import ChunkedEncoder
from simple_spk.models.resnet import ResNet

HEAD = {"form": "log_polar", "centered": True, "initial_length": 2.0}


def make_encoder():
    torch.manual_seed(0)
    return ResNet(num_mels=16, width=4, blocks=[1, 1, 1, 1], embedding_dim=8, output=HEAD).train()


def pair_loss(embeddings):
    """A loss over all pairs, which no chunk could compute alone."""
    return torch.nn.functional.softplus(embeddings @ embeddings.T).mean()


@pytest.mark.parametrize("with_lengths", [False, True])
def test_the_gradient_and_the_statistics_are_those_of_one_pass(with_lengths):
    plain = make_encoder()
    chunked = copy.deepcopy(plain)
    features = torch.randn(12, 30, 16)
    lengths = torch.arange(19, 31) if with_lengths else None
    parts = [
        plain(features[rows], None if lengths is None else lengths[rows])
        for rows in (slice(0, 4), slice(4, 8), slice(8, 12))
    ]
    expected = torch.cat(parts)
    pair_loss(expected).backward()
    found = ChunkedEncoder(chunked, 4)(features, lengths)
    assert torch.equal(found, expected)
    pair_loss(found).backward()
    for one, other in zip(plain.parameters(), chunked.parameters(), strict=True):
        assert torch.allclose(one.grad, other.grad, rtol=1e-5, atol=1e-8)
    state = chunked.state_dict()
    assert all(torch.equal(value, state[name]) for name, value in plain.state_dict().items())


def saved_bytes(encode, features):
    sizes = {}

    def count(tensor):
        sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        kept = encode(features)
    assert kept.requires_grad
    return sum(sizes.values())


def test_memory_does_not_hold_the_activations_of_the_batch():
    encoder, features = make_encoder(), torch.randn(32, 60, 16)
    whole = saved_bytes(encoder, features)
    assert saved_bytes(ChunkedEncoder(encoder, 4), features) < whole / 5


def test_a_rest_never_is_a_chunk_of_one():
    seen = []
    encoder = make_encoder()
    encoder.register_forward_pre_hook(lambda module, inputs: seen.append(len(inputs[0])))
    with torch.no_grad():
        ChunkedEncoder(encoder, 4)(torch.randn(9, 30, 16))
        ChunkedEncoder(encoder, 2)(torch.randn(3, 30, 16))
    assert seen == [3, 3, 3, 3]
    with pytest.raises(ValueError, match="2 recordings"):
        ChunkedEncoder(encoder, 1)
