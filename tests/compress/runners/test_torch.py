"""The torch runner."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from compress.artifact import Artifact, ModelSource
from compress.errors import ModelError, UsageError
from compress.load.loader import open_source
from compress.runners.base import RunOptions
from compress.runners.torch import TorchRunner


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    path = tmp_path_factory.mktemp("runner") / "m.pt"
    net = nn.Linear(4, 2)
    nn.init.constant_(net.weight, 1.0)
    nn.init.zeros_(net.bias)
    torch.save(net, path)
    made, _ = open_source(ModelSource(str(path), "", ("1x4",)))
    return made


def test_infer_and_bind(artifact: Artifact) -> None:
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    with TorchRunner(artifact, RunOptions(threads=1)) as runner:
        assert runner.signature == artifact.signature
        outputs = runner.infer({"input": x})
        assert {n: a.tolist() for n, a in outputs.items()} == {"output": [[6.0, 6.0], [22.0, 22.0]]}
        once = runner.bind({"input": x})
        assert once() is None
        assert once() is None


def test_inputs_are_neither_shared_nor_changed(artifact: Artifact) -> None:
    x = np.ones((1, 4), np.float32)
    x.flags.writeable = False
    with TorchRunner(artifact, RunOptions(threads=1)) as runner:
        assert runner.infer({"input": x})["output"].tolist() == [[4.0, 4.0]]


def test_facts_are_read_from_torch_and_threads_given_back(artifact: Artifact) -> None:
    before = torch.get_num_threads()
    other = 1 if before > 1 else 2
    runner = TorchRunner(artifact, RunOptions(threads=other))
    facts = runner.facts()
    assert facts["runtime"] == "torch eager"
    assert facts["version"] == torch.__version__
    assert (facts["device"], facts["threads"], facts["precisions"]) == ("cpu", other, {"float32": 10})
    runner.close()
    runner.close()
    assert torch.get_num_threads() == before
    with pytest.raises(ModelError, match="closed"):
        runner.infer({"input": np.ones((1, 4), np.float32)})


def test_wrong_inputs(artifact: Artifact) -> None:
    with TorchRunner(artifact, RunOptions(threads=1)) as runner:
        with pytest.raises(ModelError, match="unknown: y"):
            runner.infer({"y": np.ones((1, 4), np.float32)})
        with pytest.raises(ModelError, match="must be float32"):
            runner.infer({"input": np.ones((1, 4), np.float64)})
        with pytest.raises(ModelError, match="failed in torch: RuntimeError"):
            runner.infer({"input": np.ones((1, 5), np.float32)})


def test_devices_that_arent_there(artifact: Artifact) -> None:
    if not torch.cuda.is_available():
        with pytest.raises(UsageError, match="no CUDA device"):
            TorchRunner(artifact, RunOptions(threads=1, device="cuda:0"))
    with pytest.raises(UsageError, match="is no device"):
        TorchRunner(artifact, RunOptions(threads=1, device="quantum"))
    with pytest.raises(UsageError, match="not on 'meta'"):
        TorchRunner(artifact, RunOptions(threads=1, device="meta"))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_a_gpu(artifact: Artifact) -> None:
    with TorchRunner(artifact, RunOptions(threads=1, device="cuda:0")) as runner:
        assert runner.facts()["device"] == "cuda:0"
        assert runner.infer({"input": np.ones((3, 4), np.float32)})["output"].tolist() == [[4.0, 4.0]] * 3
        runner.bind({"input": np.ones((3, 4), np.float32)})()


@pytest.mark.data
@pytest.mark.parametrize("name", ["resnet20_torchscript.pt", "resnet20.pt2", "resnet20_state.pt"])
def test_a_fresh_load_needs_only_the_artifact(name: str, shared_data: Path) -> None:
    folder = shared_data / "user_models"
    code = f"{folder}/resnet_cifar.py:resnet20" if name.endswith("state.pt") else ""
    opened, loaded = open_source(ModelSource(str(folder / name), code, () if name.endswith("pt2") else ("1x3x32x32",)))
    assert loaded is not None
    again = Artifact.from_json(opened.to_json())
    x = np.random.default_rng(0).standard_normal((3, 3, 32, 32)).astype(np.float32)
    with TorchRunner(again, RunOptions(threads=2)) as runner:
        output = runner.infer({"x": x})["output"]
        assert runner.facts()["precisions"] == {"float32": 269_722}
    with torch.no_grad():
        expected = loaded.module(torch.from_numpy(x))[0].numpy()
    np.testing.assert_allclose(output, expected, atol=1e-5)


def test_bfloat16_outputs_become_float32(tmp_path: Path) -> None:
    code = (
        "from torch import nn\nclass Low(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.body = nn.Linear(2, 2).bfloat16()\n    def forward(self, x):\n"
        "        return self.body(x.bfloat16())\n"
    )
    (tmp_path / "low.py").write_text(code)
    made, _ = open_source(ModelSource(f"{tmp_path}/low.py:Low", "", ("1x2",)))
    assert made.signature.outputs[0].dtype == "float32"
    with TorchRunner(made, RunOptions(threads=1)) as runner:
        assert runner.infer({"x": np.ones((1, 2), np.float32)})["output"].dtype == np.float32
        assert runner.facts()["precisions"] == {"bfloat16": 6}
