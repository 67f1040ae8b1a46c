"""The exporter from torch to ONNX."""

from __future__ import annotations

import onnx
import onnxruntime
import pytest
import torch
from torch import nn

from compress.artifact import BATCH, Artifact, Form, ModelSource, Signature, TensorSpec, sha256_of
from compress.errors import StageError
from compress.load.loader import load_model
from compress.load.probe import probe_inputs
from compress.progress import Quiet
from compress.runners.onnx_file import precision_of, read_proto, read_signature
from compress.runners.targets import TARGETS
from compress.stage import Context
from exporters.onnx import OnnxExporter, example_inputs


class Recorder(Quiet):
    """Keeps what it is told."""

    def __init__(self):
        self.lines, self.warnings, self.details = [], [], []

    def line(self, text):
        self.lines.append(text)

    def warn(self, text):
        self.warnings.append(text)

    def detail(self, text):
        self.details.append(text)


class Net(nn.Module):
    """A small CNN whose forward can be given another end."""

    def __init__(self, end=lambda self, x: self.linear(x.flatten(1))):
        super().__init__()
        self.conv, self.norm, self.linear, self.end = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(144, 5), end

    def forward(self, x):
        return (self.end(self, torch.relu(self.norm(self.conv(x)))),)


def signature(inputs, outputs):
    def specs(lines):
        return tuple(TensorSpec(name, dtype, shape) for name, dtype, shape in lines)

    return Signature(specs(inputs), specs(outputs))


IMAGE = signature([("image", "float32", (BATCH, 3, 8, 8))], [("scores", "float32", (BATCH, 5))])


def export(module, sig, folder, progress=None, **settings):
    exporter = OnnxExporter(**settings)
    return exporter.export(module.eval(), sig, folder, sample=None, seed=0, progress=progress or Quiet())


def assert_same(path, module, sig, batches=(1, 3, 8), sizes=None):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for batch in batches:
        inputs = probe_inputs(sig, batch, 1, None, sizes)
        with torch.no_grad():
            expected = module(*(torch.from_numpy(inputs[s.name]) for s in sig.inputs))
        made = session.run(None, {i.name: inputs[i.name] for i in session.get_inputs()})
        assert len(made) == len(expected)
        for have, want in zip(made, expected, strict=True):
            torch.testing.assert_close(torch.from_numpy(have), want, rtol=1e-4, atol=1e-5)


def test_names_types_and_open_axes_are_the_models(tmp_path):
    made = export(module := Net(), IMAGE, tmp_path)
    assert made.signature == IMAGE == read_signature(made.path)
    assert (made.notes, made.side_files, made.execution) == ((), (), {})
    assert_same(made.path, module, IMAGE)


def test_batch_norm_is_folded_unless_told_not_to(tmp_path):
    (tmp_path / "plain").mkdir()
    plain = export(module := Net(), IMAGE, tmp_path / "plain", optimize=False)
    folded = export(module, IMAGE, tmp_path)
    assert "BatchNormalization" not in {n.op_type for n in read_proto(folded.path).graph.node}
    assert len(read_proto(plain.path).graph.node) > len(read_proto(folded.path).graph.node)
    assert_same(plain.path, module, IMAGE)


def test_sequence_axis_stays_open(tmp_path):
    class Text(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.linear = nn.Embedding(20, 8), nn.Linear(8, 3)

        def forward(self, ids, mask):
            weight = mask.unsqueeze(-1).float()
            hidden = self.embed(ids) * weight
            return hidden.sum(1) / weight.sum(1), self.linear(hidden)

    sig = signature(
        [("ids", "int64", (BATCH, "sequence")), ("mask", "int64", (BATCH, "sequence"))],
        [("pooled", "float32", (BATCH, 8)), ("tokens", "float32", (BATCH, "sequence", 3))],
    )
    made = export(module := Text(), sig, tmp_path)
    assert made.signature == sig
    for length in (1, 7):
        assert_same(made.path, module, sig, sizes={"sequence": length})


def test_expressions_of_axes_use_the_models_symbols(tmp_path):
    sig = signature([("x", "float32", (BATCH, 4))], [])
    made = export(_returning(lambda x: (torch.cat([x, x]),)), sig, tmp_path)
    assert made.signature.outputs[0].shape == ("2*batch", 4)


def test_fixed_signature_gives_fixed_file(tmp_path):
    sig = signature([("x", "float32", (1, 3, 8, 8))], [("y", "float32", (1, 5))])
    assert export(Net(), sig, tmp_path).signature == sig


def test_int_of_a_batch_size_is_no_obstacle(tmp_path):
    module = Net(lambda self, x: self.linear(x.reshape(int(x.shape[0]), -1)))
    made = export(module, IMAGE, tmp_path, progress := Recorder())
    assert progress.lines == []
    assert_same(made.path, module, IMAGE)


def _returning(function):
    class Module(nn.Module):
        def forward(self, *tensors):
            return function(*tensors)

    return Module()


def test_outputs_that_are_inputs_or_the_same_tensor(tmp_path):
    sig = signature(
        [("x", "float32", (BATCH, 4))],
        [("x", "float32", (BATCH, 4)), ("y", "float32", (BATCH, 4)), ("z", "float32", (BATCH, 4))],
    )

    def twice(x):
        y = x * 2
        return x, y, y

    made = export(module := _returning(twice), sig, tmp_path)
    assert [o.name for o in made.signature.outputs] == ["x_out", "y", "z"]
    assert made.notes == ("Output x is called x_out in the graph, since another tensor has its name.",)
    assert_same(made.path, module, sig)


def test_inner_tensor_with_the_name_of_an_output(tmp_path):
    sig = signature([("conv2d", "float32", (BATCH, 3, 8, 8))], [("linear", "float32", (BATCH, 5))])
    module = Net(lambda self, x: self.linear(x.flatten(1)) + 1)
    made = export(module, sig, tmp_path)
    assert made.signature == sig
    assert_same(made.path, module, sig)


def test_constant_result_is_refused(tmp_path):
    sig = signature([("x", "float32", (BATCH, 4))], [("y", "float32", (3,))])
    with pytest.raises(StageError, match="reads none of its inputs"):
        export(_returning(lambda x: (torch.ones(3),)), sig, tmp_path)


@pytest.mark.parametrize("limit, external", [(0.001, True), (1900, False)])
def test_large_weights_go_beside_the_file(tmp_path, limit, external):
    made = export(module := Net(), IMAGE, tmp_path, external_data_mb=limit)
    assert made.side_files == ((tmp_path / "model.onnx.data",) if external else ())
    assert {p.name for p in tmp_path.iterdir()} == {"model.onnx", *(["model.onnx.data"] if external else [])}
    assert_same(made.path, module, IMAGE)


@pytest.mark.parametrize("opset", [17, 18, 21])
def test_opset_is_the_one_asked_for(tmp_path, opset):
    made = export(
        module := Net(lambda self, x: self.linear(x.flatten(1)).mean(1, keepdim=True)), _one(), tmp_path, opset=opset
    )
    assert {o.domain: o.version for o in read_proto(made.path).opset_import}[""] == opset
    assert_same(made.path, module, _one())


def _one():
    return signature([("image", "float32", (BATCH, 3, 8, 8))], [("mean", "float32", (BATCH, 1))])


def test_no_path_of_the_users_machine_is_in_the_file(tmp_path):
    made = export(Net(), IMAGE, tmp_path)
    assert __file__.encode() not in made.path.read_bytes()
    assert b"stack_trace" not in made.path.read_bytes()


def test_weights_are_not_listed_again_as_values(tmp_path):
    graph = read_proto(export(Net(), IMAGE, tmp_path).path).graph
    assert not {v.name for v in graph.value_info} & {i.name for i in graph.initializer}


def test_weight_that_is_not_finite_is_named(tmp_path):
    module = Net()
    with torch.no_grad():
        module.linear.weight[0, 0] = float("nan")
    with pytest.raises(StageError, match=r"linear\.weight holds NaN or infinity"):
        export(module, IMAGE, tmp_path)


def test_torchscript_goes_through_its_own_exporter_and_says_so(tmp_path):
    class Wrapped(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.jit.script(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(144, 5)).eval())

        def forward(self, *tensors):
            return (self.inner(*tensors),)

    made = export(module := Wrapped(), IMAGE, tmp_path, progress := Recorder())
    assert made.signature == IMAGE
    assert made.notes == tuple(progress.lines)
    assert "TorchScript exporter: the file holds TorchScript" in made.notes[0]
    assert_same(made.path, module, IMAGE)


def test_code_that_decides_by_data_falls_back_and_warns(tmp_path):
    module = Net(lambda self, x: self.linear(x.flatten(1)) * (1 if x.sum() > -1e9 else 2))
    made = export(module, IMAGE, tmp_path, progress := Recorder())
    assert progress.lines[0].startswith("Exported with torch's TorchScript exporter: torch.export failed (")
    assert "may be wrong for others" in progress.warnings[0]
    assert made.notes == (progress.lines[0], progress.warnings[0])
    assert_same(made.path, module, IMAGE)


def test_chatter_goes_to_the_log(tmp_path, capfd):
    module = Net(lambda self, x: self.linear(x.flatten(1)) * (1 if x.sum() > -1e9 else 2))
    export(module, IMAGE, tmp_path, progress := Recorder())
    assert capfd.readouterr() == ("", "")
    assert any("TracerWarning" in text for text in progress.details)


def test_fixed_sequence_axis_is_named(tmp_path):
    sig = signature([("x", "float32", (BATCH, "sequence", 4))], [("y", "float32", (BATCH, 64))])
    with pytest.raises(StageError, match="frozen to size 16 on axis 1 .sequence."):
        export(_returning(lambda x: (x.reshape(-1, 64),)), sig, tmp_path)


def test_example_inputs_share_no_size():
    sig = signature([("x", "float32", (BATCH, "a", "b")), ("y", "int64", (BATCH, "c"))], [])
    shapes = {name: array.shape for name, array in example_inputs(sig, 0, None).items()}
    sizes = [*shapes["x"], shapes["y"][1]]
    assert shapes["x"][0] == shapes["y"][0] == 2
    assert len(set(sizes)) == 4
    assert min(sizes) == 2


@pytest.mark.data
@pytest.mark.parametrize("name", ["resnet20_torchscript.pt", "resnet20.pt2", "resnet20_state.pt"])
def test_users_files(shared_data, tmp_path, name):
    folder = shared_data / "user_models"
    code = f"{folder / 'resnet_cifar.py'}:resnet20" if name.endswith("state.pt") else ""
    source = ModelSource(str(folder / name), code, () if name.endswith("pt2") else ("1x3x32x32",))
    loaded = load_model(source)
    path = folder / name
    artifact = Artifact(Form.TORCH, path, loaded.signature, sha256_of(path), source=source)
    context = Context(TARGETS["ort-cpu"], tmp_path, Recorder(), verify=lambda child, parent: None)
    child = OnnxExporter().run(artifact, context)
    assert child.form is Form.ONNX
    assert child.signature == loaded.signature
    assert child.lineage[-1].stage == "export-onnx"
    assert precision_of(child.path) == "fp32"
    onnx.checker.check_model(child.path, full_check=True)
    assert_same(child.path, loaded.module, loaded.signature)
