"""Small ONNX networks for the passes' tests."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization.quant_utils import add_infer_metadata

from compress.artifact import Signature, TensorSpec
from compress.data.base import Batch
from compress.passes.int8.correct import Workbench
from compress.passes.int8.heldout import HeldOut, Split
from compress.passes.int8.network import Network, Settings
from compress.passes.observe import Histogram
from compress.progress import Quiet
from compress.runners.targets import TARGETS

Make = Callable[..., onnx.ModelProto]
Run = Callable[[onnx.ModelProto, np.ndarray], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Rows:
    """A data set of the rows of one array; with two views a sample is one row of each half."""

    array: np.ndarray
    views: int = 1
    name: str = "rows"
    labelled: bool = False
    classes: None = None
    task: str = "unknown"
    dynamic_axes: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    def __len__(self) -> int:
        return len(self.array) // self.views

    def batches(self, size, limit=None):
        halves = self.array.reshape(self.views, len(self), *self.array.shape[1:])
        for start in range(0, min(len(self), limit or len(self)), size):
            part = halves[:, start : start + size]
            yield Batch({"0": part.reshape(-1, *part.shape[2:])}, None, part.shape[1], self.views)

    def subset(self, samples, seed):
        return self

    def fingerprint(self):
        return "rows"


@pytest.fixture(scope="session")
def rows() -> type[Rows]:
    """Make a data set of an array."""
    return Rows


@pytest.fixture(scope="session")
def signature() -> Callable[..., Signature]:
    """Make the signature of a model that reads ``x`` in this shape."""
    return lambda *shape: Signature((TensorSpec("x", "float32", shape),))


@pytest.fixture(scope="session")
def copied() -> Callable[[onnx.ModelProto], onnx.ModelProto]:
    """Copy a model."""

    def copy(model: onnx.ModelProto) -> onnx.ModelProto:
        other = onnx.ModelProto()
        other.CopyFrom(model)
        return other

    return copy


@pytest.fixture(scope="session")
def weights_of() -> Callable[[onnx.ModelProto], dict[str, np.ndarray]]:
    """Return a model's initializers by name."""
    return lambda model: {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}


@pytest.fixture(scope="session")
def values_of() -> Callable[[onnx.ModelProto, np.ndarray], dict[str, np.ndarray]]:
    """Run a model on one input and return everything inside it by name."""

    def call(model: onnx.ModelProto, values: np.ndarray) -> dict[str, np.ndarray]:
        probe = onnx.ModelProto()
        probe.CopyFrom(model)
        names = [name for node in probe.graph.node for name in node.output]
        del probe.graph.output[:]
        probe.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
        session = onnxruntime.InferenceSession(probe.SerializeToString(), providers=["CPUExecutionProvider"])
        return {"x": values, **dict(zip(names, session.run(names, {"x": values}), strict=True))}

    return call


@pytest.fixture(scope="session")
def network(values_of) -> Callable[..., Network]:
    """Make a network ready for quantization of a model and calibration inputs."""

    def make(model: onnx.ModelProto, values: np.ndarray, *, reduce_range: bool = False) -> Network:
        prepared = onnx.ModelProto()
        prepared.CopyFrom(model)
        add_infer_metadata(prepared)
        seen = {}
        for name, array in values_of(prepared, values).items():
            seen[name] = Histogram()
            seen[name].add(array)
        settings = Settings(TARGETS["ort-cpu"].scheme, reduce_range, 99.99, frozenset())
        return Network(prepared, settings, seen, "minmax")

    return make


@pytest.fixture
def bench(tmp_path: Path) -> Callable[..., Workbench]:
    """Make a workbench for a network and calibration inputs; ``held`` judges in place of held-out samples."""

    def make(network: Network, values: np.ndarray, held: HeldOut | None = None) -> Workbench:
        signature = Signature((TensorSpec("x", "float32", ("batch", *values.shape[1:])),))
        split = Split(Rows(values), signature, 16)
        held = held or HeldOut(network.model, split, 1, tmp_path)
        return Workbench(network.settings, split, held, tmp_path, 1, 0, "cpu", 512, Quiet())

    return make


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
