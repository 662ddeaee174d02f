"""The weights of a WeSpeaker ResNet in an ONNX file, by the names that its avg_model.pt has.

Exports have BatchNorm folded into convolutions and generated names, so that only the order of the
graph tells the layers: the first convolution, two of each block, and the shortcut third.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from simple_spk.io.input_file import file_size

Array = NDArray[Any]
EPSILON = torch.nn.BatchNorm2d(1).eps
FOLDED: dict[str, Any] = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply}
LARGEST_BYTES = 2**31  # of a protocol buffer


def read_wespeaker_onnx(path: Path) -> dict[str, Tensor]:
    """The weights of a ResNet with statistics pooling and one linear layer after it."""
    if find_spec("onnx") is None:
        raise ValueError("reading ONNX needs the package onnx: pip install onnx")
    import onnx

    if file_size(path, "ONNX file") > LARGEST_BYTES:
        raise ValueError(f"{path} is larger than an ONNX file can be: take another")
    try:
        graph = onnx.load(path, load_external_data=False).graph
        constants = _constants(graph)
        layers = [
            [_constant(constants, name) for name in node.input[1:]]
            for node in graph.node
            if node.op_type == "Conv"
        ]
        linear = [node for node in graph.node if node.op_type in ("Gemm", "MatMul")]
        if len(layers) < 3 or len(linear) != 1:
            raise ValueError(f"{len(layers)} Conv and {len(linear)} Gemm or MatMul")
        return _named_convolutions(layers) | _linear(graph, linear[0], constants)
    except Exception as error:  # damaged files raise nearly anything
        raise ValueError(
            f"{path} is not the ONNX file of a ResNet-18 or ResNet-34 of WeSpeaker ({error}): take "
            "another, or its avg_model.pt"
        ) from error


def _constants(graph: Any) -> dict[str, Array]:
    """The tensors of a graph by name, also those that are stored as integers and scaled."""
    from onnx import numpy_helper

    constants: dict[str, Array] = {}
    for tensor in graph.initializer:
        if tensor.data_location:
            raise ValueError(f"{tensor.name} lies in another file")
        constants[tensor.name] = numpy_helper.to_array(tensor)
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            constants[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
        inputs = [constants[name] for name in node.input if name in constants]
        if not inputs or len(inputs) < len(node.input):
            continue
        function = FOLDED.get(node.op_type)
        if node.op_type in ("Identity", "Cast") and inputs[0].dtype.kind in "fiu":
            constants[node.output[0]] = inputs[0].astype(np.float32)
        # of no more numbers than an input has: else a few bytes would be many
        elif function and np.broadcast(*inputs).size == max(one.size for one in inputs):
            constants[node.output[0]] = function(*inputs)
    return constants


def _constant(constants: dict[str, Array], name: str) -> Tensor:
    """A tensor of the graph, in single precision."""
    if name not in constants:
        raise ValueError(f"{name} is not a constant")
    return torch.from_numpy(np.array(constants[name], dtype=np.float32))


def _named_convolutions(layers: list[list[Tensor]]) -> dict[str, Tensor]:
    """The layers of all blocks by name; a shortcut begins a stage."""
    weights: dict[str, Tensor] = {}

    def add(convolution: str, norm: str, layer: list[Tensor]) -> None:
        kernel, bias = layer[0], layer[1] if len(layer) > 1 else torch.zeros(len(layer[0]))
        weights[f"{convolution}.weight"] = kernel
        # A BatchNorm that only adds the bias.
        weights[f"{norm}.weight"], weights[f"{norm}.bias"] = torch.ones(len(kernel)), bias
        weights[f"{norm}.running_mean"] = torch.zeros(len(kernel))
        weights[f"{norm}.running_var"] = torch.full((len(kernel),), 1.0 - EPSILON)

    add("conv1", "bn1", layers[0])
    rest, stage, number = layers[1:], 1, 0
    while len(rest) >= 2:
        has_shortcut = len(rest) > 2 and rest[2][0].shape[2:] == (1, 1)
        if has_shortcut:
            stage, number = stage + 1, 0
        block = f"layer{stage}.{number}"
        add(f"{block}.conv1", f"{block}.bn1", rest[0])
        add(f"{block}.conv2", f"{block}.bn2", rest[1])
        if has_shortcut:
            add(f"{block}.shortcut.0", f"{block}.shortcut.1", rest[2])
        rest, number = rest[3 if has_shortcut else 2 :], number + 1
    if rest:
        raise ValueError(f"{len(layers)} convolutions do not make blocks of two")
    return weights


def _linear(graph: Any, node: Any, constants: dict[str, Array]) -> dict[str, Tensor]:
    """The last layer; what the graph adds to its output or subtracts becomes its bias."""
    matrix = _constant(constants, node.input[1])
    attributes = {one.name: one for one in node.attribute}
    if node.op_type == "MatMul" or "transB" not in attributes or not attributes["transB"].i:
        matrix = matrix.T
    bias = torch.zeros(len(matrix))
    if len(node.input) > 2:
        bias = _constant(constants, node.input[2])
    output = node.output[0]
    for after in graph.node:
        if output in after.input and after.op_type in ("Add", "Sub"):
            other = next(name for name in after.input if name != output)
            if after.op_type == "Sub" and after.input[0] != output:
                raise ValueError("the embedding is subtracted from a constant")
            sign = 1.0 if after.op_type == "Add" else -1.0
            bias, output = bias + sign * _constant(constants, other).flatten(), after.output[0]
    if output != graph.output[0].name:
        raise ValueError(f"{output}, the output of the last layer, is not that of the graph")
    return {"seg_1.weight": matrix.contiguous(), "seg_1.bias": bias}
