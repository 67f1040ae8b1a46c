"""Exported programs and TorchScript: what is read from them, and what is refused."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from compress.artifact import ModelSource
from compress.errors import ModelError
from compress.load.exported_guard import _is_arithmetic
from compress.load.loader import load_model


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 4)
        self.register_buffer("shift", torch.ones(4))

    def forward(self, x: torch.Tensor, more: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        pooled = (self.body(x) + self.shift).view(x.shape[0] * x.shape[1], 4)
        return {"a": pooled, "b": more["y"] * 2}


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("exported") / "net.bin"
    dynamic = torch.export.Dim.DYNAMIC
    x, y = torch.randn(2, 3, 4), torch.randn(2, 5)
    program = torch.export.export(Net(), (x, {"y": y}), dynamic_shapes=({0: dynamic, 1: dynamic}, {"y": {0: dynamic}}))
    with path.open("wb") as file:
        torch.export.save(program, file)
    return path


def rewritten(
    path: Path, target: Path, change: Callable[[str, bytes], bytes | None], extra: dict[str, bytes] | None = None
) -> Path:
    """Copy an archive, each member through ``change``; None drops it."""
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            content = change(name.partition("/")[2], old.read(name))
            if content is not None:
                new.writestr(name, content)
        folder = old.namelist()[0].partition("/")[0]
        for name, content in (extra or {}).items():
            new.writestr(f"{folder}/{name}", content)
    return target


def test_inputs_come_from_the_file(exported: Path) -> None:
    loaded = load_model(ModelSource(str(exported)))
    assert loaded.kind == "exported program"
    assert [str(s) for s in loaded.signature.inputs] == [
        "x: float32[batch, x_dim1, 4]",
        "more_y: float32[more_y_dim0, 5]" if "more_y_dim0" in loaded.signature.symbols else "more_y: float32[batch, 5]",
    ]
    a, b = loaded.signature.outputs
    assert (a.name, a.shape) == ("a", ("a_dim0", 4))
    assert b.name == "b"
    assert loaded.module(torch.ones(1, 2, 4), torch.ones(1, 5))[1].tolist() == [[2.0] * 5]


def test_an_honest_copy_still_loads(exported: Path, tmp_path: Path) -> None:
    copy = rewritten(exported, tmp_path / "m.pt2", lambda name, content: content)
    assert load_model(ModelSource(str(copy))).parameters == 20


class Bomb:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.marker,)


def in_program(edit: Callable[[dict[str, Any]], None]) -> Callable[[str, bytes], bytes]:
    def change(name: str, content: bytes) -> bytes:
        if name != "models/model.json":
            return content
        program = json.loads(content)
        edit(program)
        return json.dumps(program).encode()

    return change


def test_unpickling_is_refused(exported: Path, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    torch.save((Bomb(marker),), tmp_path / "bomb.pt")
    bomb = (tmp_path / "bomb.pt").read_bytes()
    crafted = rewritten(exported, tmp_path / "m.pt2", lambda n, c: bomb if n.startswith("data/sample_inputs/") else c)
    with pytest.raises(ModelError, match=r"refused and nothing of it was run.*getattr.*sample_inputs"):
        load_model(ModelSource(str(crafted)))
    assert not marker.exists()


def test_pickled_weights_and_constants_are_refused(exported: Path, tmp_path: Path) -> None:
    torch.save(Bomb(tmp_path / "marker"), tmp_path / "bomb.pt")
    bomb = (tmp_path / "bomb.pt").read_bytes()

    def pickled(name: str, content: bytes) -> bytes:
        if name == "data/weights/model_weights_config.json":
            config = json.loads(content)
            for payload in config["config"].values():
                payload["use_pickle"] = True
            return json.dumps(config).encode()
        return bomb if name.startswith("data/weights/weight_") else content

    def custom(name: str, content: bytes) -> bytes:
        if name == "data/constants/model_constants_config.json":
            payload = {"path_name": "opaque_obj_0", "is_param": False, "use_pickle": True, "tensor_meta": None}
            return json.dumps({"config": {"c": payload}}).encode()
        return content

    for number, (change, extra) in enumerate(((pickled, {}), (custom, {"data/constants/opaque_obj_0": b"x"}))):
        crafted = rewritten(exported, tmp_path / f"{number}.pt2", change, extra)
        with pytest.raises(ModelError, match="nothing of it was run"):
            load_model(ModelSource(str(crafted)))
    assert not (tmp_path / "marker").exists()


def set_target(program: dict[str, Any], text: str) -> None:
    program["graph_module"]["graph"]["nodes"][0]["target"] = text


def set_shape(program: dict[str, Any], text: str) -> None:
    values = program["graph_module"]["graph"]["tensor_values"]
    for value in values.values():
        for size in value["sizes"]:
            if "as_expr" in size:
                size["as_expr"]["expr_str"] = text


def set_input_name(program: dict[str, Any], text: str) -> None:
    program["graph_module"]["graph"]["inputs"][-1]["as_tensor"]["name"] = text


@pytest.mark.parametrize(
    ("edit", "text"),
    [
        (set_target, "torch.os.system"),
        (set_target, "torch.hub.load"),
        (set_target, "torch.ops.load_library"),
        (set_target, "torch.ops.aten.from_file.default"),
        (set_target, "torch.ops.aten.add.__class__"),
        (set_target, "torch.ops.higher_order.inductor_compiled_code"),
        (set_target, "_operator.methodcaller"),
        (set_target, "#python:x"),
        (set_shape, "__import__('os').system('true')"),
        (set_shape, "Max('__import__(1)', 2)"),
        (set_shape, "(lambda: 1)()"),
        (set_shape, "Symbol.__class__"),
        (set_input_name, "x=__import__('os').getpid()"),
        (set_input_name, "x, y"),
    ],
)
def test_programs_that_could_run_code_are_refused(edit: Any, text: str, exported: Path, tmp_path: Path) -> None:
    crafted = rewritten(exported, tmp_path / "m.pt2", in_program(lambda program: edit(program, text)))
    with pytest.raises(ModelError, match="refused and nothing of it was run"):
        load_model(ModelSource(str(crafted)))


def test_compiled_code_and_odd_archives_are_refused(exported: Path, tmp_path: Path) -> None:
    compiled = rewritten(exported, tmp_path / "a.pt2", lambda n, c: c, {"data/aotinductor/model/model.so": b"x"})
    with pytest.raises(ModelError, match="compiled code"):
        load_model(ModelSource(str(compiled)))
    with pytest.warns(UserWarning, match="Duplicate name"):
        twice = rewritten(exported, tmp_path / "b.pt2", lambda n, c: c, {"models/model.json": b"{}"})
    with pytest.raises(ModelError, match="refused|damaged"):
        load_model(ModelSource(str(twice)))
    cased = rewritten(exported, tmp_path / "c.pt2", lambda n, c: c, {"models/MODEL.json": b"{}"})
    with pytest.raises(ModelError, match="laid out"):
        load_model(ModelSource(str(cased)))


@pytest.mark.parametrize(
    "text",
    ["Symbol('s77', positive=True, integer=True)", "2*s0 + 1", "FloorDiv(s0, 2)", "-oo", "int_oo", "Max(1, s0*s1)"],
)
def test_honest_shapes(text: str) -> None:
    assert _is_arithmetic(text)


class Writes(nn.Module):
    def __init__(self, path: str) -> None:
        super().__init__()
        self.path = path

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch.save(x, self.path)
        return x


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_torchscript_that_writes_files_is_refused(tmp_path: Path) -> None:
    marker = tmp_path / "written"
    torch.jit.script(Writes(str(marker))).save(tmp_path / "m.pt")
    source = ModelSource(str(tmp_path / "m.pt"), "", ("1x4",))
    with pytest.raises(ModelError, match=r"nothing of it was run: it uses save"):
        load_model(source)
    assert not marker.exists()


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_torchscript_inputs_by_name_and_frozen_modules(tmp_path: Path) -> None:
    class Two(nn.Module):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return a - b, a

    torch.jit.freeze(torch.jit.script(Two().eval())).save(tmp_path / "m.pt")
    loaded = load_model(ModelSource(str(tmp_path / "m.pt"), "", ("b:1x2", "a:1x2")))
    assert [s.name for s in loaded.signature.inputs] == ["b", "a"]
    assert [s.name for s in loaded.signature.outputs] == ["output_0", "output_1"]
    assert loaded.module(torch.ones(1, 2), torch.zeros(1, 2))[0].tolist() == [[-1.0, -1.0]]
