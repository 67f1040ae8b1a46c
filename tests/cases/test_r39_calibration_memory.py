"""R39, microsoft/onnxruntime#10503: the memory of calibration doesn't grow with the number of samples."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys
from pathlib import Path
import numpy as np, onnx
from onnx import TensorProto, helper, numpy_helper
from compress.passes.observe import observe

samples, work = int(sys.argv[1]), Path(sys.argv[2])
rng = np.random.default_rng(0)
# An encoder-decoder with a skip connection: activations are large beside the weights, as in a U-Net.
def conv(i, o, w, x, y):
    weights.append(numpy_helper.from_array(rng.standard_normal((o, i, 3, 3)).astype(np.float32) * 0.1, w))
    return helper.make_node("Conv", [x, w], [y], pads=[1, 1, 1, 1])
weights = []
nodes = [
    conv(1, 16, "w1", "x", "a"), helper.make_node("Relu", ["a"], ["b"]),
    helper.make_node("MaxPool", ["b"], ["c"], kernel_shape=[2, 2], strides=[2, 2]),
    conv(16, 32, "w2", "c", "d"), helper.make_node("Relu", ["d"], ["e"]),
    helper.make_node("Resize", ["e", "", "s"], ["f"], mode="nearest"),
    helper.make_node("Concat", ["b", "f"], ["g"], axis=1), conv(48, 1, "w3", "g", "y"),
]
weights.append(numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "s"))
info = lambda n: helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", 1, 128, 128])
model = helper.make_model(helper.make_graph(nodes, "u", [info("x")], [info("y")], weights),
                          opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
def batches():
    for seed in range(samples // 4):
        yield {"x": np.random.default_rng(seed).standard_normal((4, 1, 128, 128)).astype(np.float32)}
found = observe(model, list("abcdefgy"), batches, work=work, threads=2, advance=lambda n: None, count=True)
assert found["y"].counts.sum() == samples * 128 * 128
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in other units elsewhere")
def test_peak_memory_is_flat_in_the_number_of_samples(tmp_path):
    peaks = {}
    for samples in (8, 96):
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, str(samples), str(tmp_path)], capture_output=True, text=True, check=True
        )
        peaks[samples] = int(done.stdout) / 1024
    # All activations of 96 samples would take 96 × 8.3 MB; one batch of 4 is all that is held.
    assert peaks[96] < peaks[8] + 40
