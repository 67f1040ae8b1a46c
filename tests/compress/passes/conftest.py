"""Small ONNX networks for the passes' tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

Make = Callable[..., onnx.ModelProto]
Run = Callable[[onnx.ModelProto, np.ndarray], np.ndarray]


@pytest.fixture(scope="session")
def net() -> Make:
    """Make a model from nodes (op, inputs, outputs, attributes) and weights: ``x`` float32 to ``y``."""

    def make(
        nodes: Sequence[tuple[str, list[str], list[str], dict[str, object]]],
        weights: Mapping[str, np.ndarray],
        shape: Sequence[str | int],
    ) -> onnx.ModelProto:
        graph = helper.make_graph(
            [helper.make_node(op, i, o, name=f"{op.lower()}_{o[0]}", **more) for op, i, o, more in nodes],
            "net",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(shape))],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [numpy_helper.from_array(np.ascontiguousarray(a), n) for n, a in weights.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        return onnx.shape_inference.infer_shapes(model)

    return make


@pytest.fixture(scope="session")
def run() -> Run:
    """Run a model on one input."""

    def call(model: onnx.ModelProto, values: np.ndarray) -> np.ndarray:
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        return session.run(None, {"x": values})[0]

    return call


@pytest.fixture(scope="session")
def convolutions(net: Make) -> onnx.ModelProto:
    """Two convolutions, the first of them depthwise with filters that differ in size by 1000 times, and a Gemm."""
    rng = np.random.default_rng(0)
    sizes = np.logspace(-1.5, 1.5, 8)[:, None, None, None]
    weights = {
        "w1": (rng.standard_normal((8, 1, 3, 3)) * sizes).astype(np.float32),
        "b1": rng.standard_normal(8).astype(np.float32) * sizes[:, 0, 0, 0].astype(np.float32),
        "w2": (rng.standard_normal((16, 8, 1, 1)) / sizes[:, 0, 0, 0][None, :, None, None]).astype(np.float32),
        "w3": rng.standard_normal((16, 4)).astype(np.float32),
        "b3": np.zeros(4, np.float32),
    }
    nodes = [
        ("Conv", ["x", "w1", "b1"], ["a"], {"group": 8, "pads": [1, 1, 1, 1]}),
        ("Relu", ["a"], ["b"], {}),
        ("Conv", ["b", "w2"], ["c"], {}),
        ("Relu", ["c"], ["d"], {}),
        ("GlobalAveragePool", ["d"], ["e"], {}),
        ("Flatten", ["e"], ["f"], {}),
        ("Gemm", ["f", "w3", "b3"], ["y"], {}),
    ]
    return net(nodes, weights, ("batch", 8, 8, 8))


@pytest.fixture(scope="session")
def outliers(net: Make) -> onnx.ModelProto:
    """A LayerNormalization with two channels a hundred times larger than the others, read by a MatMul."""
    rng = np.random.default_rng(1)
    gain = np.ones(32, np.float32)
    gain[[3, 17]] = 100
    weights = {
        "g": gain,
        "o": np.zeros(32, np.float32),
        "w1": rng.standard_normal((32, 64)).astype(np.float32) / gain[:, None],
        "w2": rng.standard_normal((64, 8)).astype(np.float32),
    }
    nodes = [
        ("LayerNormalization", ["x", "g", "o"], ["a"], {"axis": -1}),
        ("MatMul", ["a", "w1"], ["b"], {}),
        ("Relu", ["b"], ["c"], {}),
        ("MatMul", ["c", "w2"], ["y"], {}),
    ]
    return net(nodes, weights, ("batch", 32))
