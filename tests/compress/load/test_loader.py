"""Loading models of every kind."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from compress.artifact import Artifact, Form, ModelSource, TensorSpec, sha256_of
from compress.errors import ModelError, UsageError
from compress.load.loader import load_model, open_source

FILES = {
    "resnet20_state.pt": "state_dict",
    "resnet20_module.pt": "module",
    "resnet20_checkpoint.pth": "checkpoint",
    "resnet20_torchscript.pt": "torchscript",
    "resnet20.pt2": "exported program",
    "resnet20.safetensors": "safetensors",
}


def source_of(folder: Path, name: str) -> ModelSource:
    holds_its_code = FILES[name] in ("torchscript", "exported program")
    code = "" if holds_its_code else f"{folder}/resnet_cifar.py:resnet20"
    return ModelSource(str(folder / name), code, () if name.endswith(".pt2") else ("1x3x32x32",))


@pytest.mark.data
def test_six_kinds_of_file_give_one_network(shared_data: Path) -> None:
    folder = shared_data / "user_models"
    x = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    outputs = {}
    for name, kind in FILES.items():
        artifact, loaded = open_source(source_of(folder, name))
        assert loaded is not None
        assert loaded.kind == kind
        assert loaded.parameters == 269_722
        assert artifact.form is Form.TORCH
        assert artifact.path == folder / name
        assert artifact.signature.inputs == (TensorSpec("x", "float32", ("batch", 3, 32, 32)),)
        assert artifact.signature.outputs == (TensorSpec("output", "float32", ("batch", 10)),)
        assert artifact.sha256 == sha256_of(*artifact.files)
        assert Artifact.from_json(artifact.to_json()) == artifact
        with torch.no_grad():
            (outputs[name],) = loaded.module(x)
    reference = outputs.pop("resnet20_state.pt")
    assert reference.std() > 0.5
    for name, output in outputs.items():
        assert (output - reference).abs().max() <= 1e-4, name


@pytest.mark.data
@pytest.mark.parametrize("name", FILES)
def test_six_kinds_of_file_learn_their_input_from_a_sample(shared_data: Path, name: str) -> None:
    source = dataclasses.replace(source_of(shared_data / "user_models", name), inputs=())
    artifact, _ = open_source(source, {"0": np.zeros((2, 3, 32, 32), np.float32)})
    assert artifact.signature.inputs == (TensorSpec("x", "float32", ("batch", 3, 32, 32)),)


def test_token_types_are_left_out_where_the_model_takes_none(tmp_path: Path) -> None:
    code = (
        "import torch\n"
        "class Encoder(torch.nn.Module):\n"
        "    def __init__(self):\n        super().__init__(); self.table = torch.nn.Embedding(10, 4)\n"
        "    def forward(self, input_ids, attention_mask):\n"
        "        return (self.table(input_ids) * attention_mask[..., None]).mean(1)\n"
    )
    (tmp_path / "encoder.py").write_text(code, encoding="utf-8")
    sample = {n: np.ones((2, 5), np.int64) for n in ("input_ids", "attention_mask", "token_type_ids")}
    axes = dict.fromkeys(sample, ("sequence",))
    artifact, loaded = open_source(ModelSource(f"{tmp_path}/encoder.py:Encoder"), sample, axes)
    assert [s.name for s in artifact.signature.inputs] == ["input_ids", "attention_mask"]
    assert loaded is not None
    assert any("token_type_ids are left out" in n for n in loaded.notes)


@pytest.mark.data
def test_the_checkpoint_tells_what_was_chosen(shared_data: Path) -> None:
    loaded = load_model(source_of(shared_data / "user_models", "resnet20_checkpoint.pth"))
    assert loaded.notes == (
        "weights taken from 'state_dict' of the checkpoint",
        "prefix 'module.' dropped from every key",
    )


def state(folder: Path, weights: Any, code: str) -> ModelSource:
    (folder / "tiny_net.py").write_text(code)
    torch.save(weights, folder / "m.pt")
    return ModelSource(str(folder / "m.pt"), f"{folder}/tiny_net.py:build", ("1x4",))


LINEAR = "from torch import nn\ndef build():\n    return nn.Linear(4, 2)\n"


@pytest.mark.parametrize(
    ("wrap", "note"),
    [
        (lambda s, e: {"model_state_dict": s}, "weights taken from 'model_state_dict' of the checkpoint"),
        (lambda s, e: {"net": s, "epoch": 3}, "weights taken from 'net' of the checkpoint"),
        (
            lambda s, e: {"params_ema": e, "params": s},
            "'params' of the checkpoint; the file also holds weights under 'params_ema'",
        ),
        (lambda s, e: {"ema": {"module": s}}, "weights taken from 'ema' of the checkpoint"),
        (lambda s, e: {"epoch": 1, "my_own_name": s}, "weights taken from 'my_own_name' of the checkpoint"),
        (
            lambda s, e: {"optimizer": {"state": {0: {"m": torch.ones(1)}}, "param_groups": []}, "model": s},
            "taken from 'model'",
        ),
    ],
)
def test_where_checkpoints_keep_their_weights(wrap: Any, note: str, tmp_path: Path) -> None:
    weights, averaged = nn.Linear(4, 2).state_dict(), nn.Linear(4, 2).state_dict()
    loaded = load_model(state(tmp_path, wrap(weights, averaged), LINEAR))
    assert loaded.kind == "checkpoint"
    assert note in loaded.notes[0]
    assert torch.equal(loaded.original.weight, weights["weight"])


def test_checkpoints_without_clear_weights(tmp_path: Path) -> None:
    weights = nn.Linear(4, 2).state_dict()
    with pytest.raises(ModelError, match=r"several sets of weights \(teacher, student\)"):
        load_model(state(tmp_path, {"teacher": weights, "student": weights}, LINEAR))
    with pytest.raises(ModelError, match="its keys are epoch, loss"):
        load_model(state(tmp_path, {"epoch": 1, "loss": 0.5}, LINEAR))
    with pytest.raises(ModelError, match="holds a list"):
        load_model(state(tmp_path, [1, 2], LINEAR))


def test_weights_alone_need_code(tmp_path: Path) -> None:
    torch.save(nn.Linear(4, 2).state_dict(), tmp_path / "m.pt")
    with pytest.raises(ModelError, match=r"weights alone \(2 tensors\).*--code FILE.py:factory"):
        load_model(ModelSource(str(tmp_path / "m.pt"), "", ("1x4",)))


def test_tied_weights_that_safetensors_dropped(tmp_path: Path) -> None:
    code = (
        "from torch import nn\nclass Tied(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.a = nn.Linear(4, 4, bias=False)\n        self.b = nn.Linear(4, 4, bias=False)\n"
        "        self.b.weight = self.a.weight\n    def forward(self, x):\n        return self.b(self.a(x))\n"
        "def build():\n    return Tied()\n"
    )
    (tmp_path / "tied.py").write_text(code)
    save_file({"a.weight": torch.eye(4) * 2}, tmp_path / "m.bin")  # the name doesn't count
    loaded = load_model(ModelSource(str(tmp_path / "m.bin"), f"{tmp_path}/tied.py:build", ("1x4",)))
    assert loaded.kind == "safetensors"
    assert loaded.module(torch.ones(1, 4))[0].tolist() == [[4.0] * 4]


def test_element_types_that_change_are_said(tmp_path: Path) -> None:
    loaded = load_model(state(tmp_path, nn.Linear(4, 2).half().state_dict(), LINEAR))
    assert "weights stored as float16 are used as float32" in loaded.notes


def test_subnormal_weights_are_counted(tmp_path: Path) -> None:
    weights = nn.Linear(4, 2).state_dict()
    weights["weight"][0] = torch.tensor([1e-40, -1e-39, 0.0, 2e-38])
    assert load_model(state(tmp_path, weights, LINEAR)).subnormal_weights == 2


class Pair(NamedTuple):
    first: torch.Tensor
    second: torch.Tensor


@dataclasses.dataclass
class Output:
    logits: torch.Tensor
    hidden: Any = None
    score: float = 0.5


class Many(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    def forward(self, x: torch.Tensor) -> Any:
        rows, wide = x.sum(1), x.repeat(1, 2)
        return {
            "tensor": x,
            "tuple": (rows, None, wide),
            "list": [rows, {"wide": wide}],
            "dict": {"rows": rows, "x": wide, "none": None},
            "named": Pair(rows, wide),
            "dataclass": Output(rows, [wide, rows]),
            "mean": x.mean(),
            "doubled": torch.cat([x, x]),
        }[self.how]


@pytest.mark.parametrize(
    ("how", "outputs"),
    [
        ("tensor", {"output": ("batch", 4)}),
        ("tuple", {"output_0": ("batch",), "output_2": ("batch", 8)}),
        ("list", {"output_0": ("batch",), "output_1.wide": ("batch", 8)}),
        ("dict", {"rows": ("batch",), "x_out": ("batch", 8)}),
        ("named", {"first": ("batch",), "second": ("batch", 8)}),
        ("dataclass", {"logits": ("batch",), "hidden.0": ("batch", 8), "hidden.1": ("batch",)}),
        ("mean", {"output": ()}),
        ("doubled", {"output": ("output_dim0", 4)}),
    ],
)
def test_outputs_are_flattened_and_named(how: str, outputs: dict[str, tuple[Any, ...]]) -> None:
    loaded = loaded_from(Many(how), ("1x4",))
    assert {s.name: s.shape for s in loaded.signature.outputs} == outputs
    assert len(loaded.module(torch.ones(3, 4))) == len(outputs)
    left_out = [n for n in loaded.notes if "left out (float)" in n]
    assert len(left_out) == (how == "dataclass")


def loaded_from(module: nn.Module, inputs: tuple[str, ...], sample: Any = None, axes: Any = None) -> Any:
    """Load a module defined here, without the detour over a file."""
    from compress.load import loader

    network = loader._evaluating(loader.Network(module, "module", own_mode=True))
    return loader.describe(network, ModelSource("m.pt", "", inputs), sample, axes)


class TwoAxes(nn.Module):
    def forward(self, ids: torch.Tensor, mask: torch.Tensor | None = None, *, scale: Any = None) -> torch.Tensor:
        value = ids.float() if mask is None else ids.float() * mask
        return value if scale is None else value * scale["by"][0][:, None]


def test_named_inputs_go_by_keyword_and_axes_are_found() -> None:
    loaded = loaded_from(TwoAxes(), ("mask:float32:1xseq", "ids:int64:1xseq", "scale.by.0:float32:1"))
    assert [str(s) for s in loaded.signature.inputs] == [
        "mask: float32[batch, seq]",
        "ids: int64[batch, seq]",
        "scale.by.0: float32[batch]",
    ]
    assert loaded.signature.outputs[0].shape == ("batch", "seq")
    mask, ids, by = torch.tensor([[1.0, 0.0]]), torch.tensor([[5, 6]]), torch.tensor([2.0])
    assert loaded.module(mask, ids, by)[0].tolist() == [[10.0, 0.0]]


def test_a_sample_gives_the_signature_and_axes_that_vary() -> None:
    sample = {"0": np.ones((2, 7), np.int64), "1": np.ones((2, 7), np.float32)}
    loaded = loaded_from(TwoAxes(), (), sample)
    assert [str(s) for s in loaded.signature.inputs] == ["ids: int64[batch, 7]", "mask: float32[batch, 7]"]
    loaded = loaded_from(TwoAxes(), (), sample, {"0": ("seq",), "1": ("seq",)})
    assert loaded.signature.outputs == (TensorSpec("output", "float32", ("batch", "seq")),)


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        (("ids:int64:1x4", "other:1x4"), "no parameter 'other'; it takes ids, mask, scale"),
        (("mask:1x4",), "missing a required argument: 'ids'"),
        (("1x4", "1x4", "1x4"), "takes 2 inputs by position (ids, mask), not 3"),
    ],
)
def test_inputs_that_dont_suit_forward(inputs: tuple[str, ...], said: str) -> None:
    with pytest.raises(ModelError) as caught:
        loaded_from(TwoAxes(), inputs)
    assert said in str(caught.value)


def test_without_any_signature_nothing_is_guessed(tmp_path: Path) -> None:
    torch.save(nn.Linear(4, 2), tmp_path / "m.pt")
    with pytest.raises(ModelError, match=r"Nothing tells what inputs m.pt takes.*--input.*--data"):
        load_model(ModelSource(str(tmp_path / "m.pt")))


def test_a_wrong_shape_is_told_with_the_models_own_words(tmp_path: Path) -> None:
    torch.save(nn.Linear(4, 2), tmp_path / "m.pt")
    with pytest.raises(ModelError, match=r"m.pt doesn't run on inputs input: float32\[batch, 5\]: RuntimeError: mat1"):
        load_model(ModelSource(str(tmp_path / "m.pt"), "", ("1x5",)))


class FixedBatch(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(1, 4) * 2


def test_a_batch_size_that_cannot_vary_is_said() -> None:
    loaded = loaded_from(FixedBatch(), ("1x4",))
    assert loaded.signature.inputs[0].shape == (1, 4)
    assert loaded.signature.outputs[0].shape == (1, 4)
    assert any("batch of 1 only" in note for note in loaded.notes)


def test_wrappers_for_several_devices_are_taken_off(tmp_path: Path) -> None:
    torch.save(nn.DataParallel(nn.Linear(4, 2)).eval(), tmp_path / "m.pt")
    loaded = load_model(ModelSource(str(tmp_path / "m.pt"), "", ("1x4",)))
    assert isinstance(loaded.original, nn.Linear)
    assert loaded.notes == ("taken out of its DataParallel wrapper",)


def test_an_architecture_is_a_model_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "tiny_net.py").write_text(LINEAR)
    text = f"{tmp_path}/tiny_net.py:build"
    artifact, loaded = open_source(ModelSource(text, "", ("1x4",), seed=3))
    assert loaded is not None
    assert loaded.kind == "architecture"
    assert artifact.path == Path(text)
    assert artifact.source == ModelSource("", text, ("1x4",), seed=3)
    other, different = open_source(ModelSource(text, "", ("1x4",), seed=4))
    assert artifact.sha256 != other.sha256
    assert different is not None
    assert not torch.equal(loaded.original.weight, different.original.weight)
    with pytest.raises(UsageError, match="architecture itself"):
        load_model(ModelSource("torchvision:resnet18", "timm:resnet18"))


def test_open_source_names_the_code_in_its_digest(tmp_path: Path) -> None:
    source = state(tmp_path, nn.Linear(4, 2).state_dict(), LINEAR)
    before, _ = open_source(source)
    assert before.side_files == (tmp_path / "tiny_net.py",)
    files = (tmp_path / "m.pt").read_bytes() + (tmp_path / "tiny_net.py").read_bytes()
    assert before.sha256 == hashlib.sha256(files).hexdigest()
    (tmp_path / "tiny_net.py").write_text(LINEAR + "# changed\n")
    after, _ = open_source(source)
    assert after.sha256 != before.sha256


def test_a_known_signature_is_not_tried_out_again(tmp_path: Path) -> None:
    source = state(tmp_path, nn.Linear(4, 2).state_dict(), LINEAR)
    first = load_model(source)
    again = load_model(dataclasses.replace(source, inputs=()), signature=first.signature)
    assert again.signature == first.signature
    assert torch.equal(first.module(torch.ones(1, 4))[0], again.module(torch.ones(1, 4))[0])
