"""The door for pickles."""

from __future__ import annotations

import functools
import io
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
import torchvision
from torch import nn

from compress.errors import ModelError
from compress.load.code import load_code
from compress.load.safe import examine, load_pickle


class Call:
    def __init__(self, function: Any, *args: Any) -> None:
        self.what = (function, args)

    def __reduce__(self) -> tuple[Any, ...]:
        return self.what


def saved(folder: Path, value: Any, **settings: Any) -> Path:
    path = folder / "file.pt"
    torch.save(value, path, **settings)
    return path


@pytest.mark.parametrize(
    "build",
    [
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten()),
        lambda: nn.TransformerEncoderLayer(8, 2, 16, activation="gelu"),
        lambda: nn.LSTM(4, 5, bidirectional=True),
        lambda: torchvision.models.resnet18(num_classes=3),
        lambda: torchvision.models.VisionTransformer(32, 16, 1, 2, 16, 32, num_classes=3),
        lambda: torchvision.models.mobilenet_v3_small(num_classes=3),
    ],
)
def test_whole_modules_of_known_libraries(build: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = build().eval()
    again = load_pickle(saved(tmp_path, module), None, trust=False)
    assert type(again) is type(module)
    assert all(
        torch.equal(a, b) for a, b in zip(module.state_dict().values(), again.state_dict().values(), strict=True)
    )


def test_a_timm_module_with_an_enum(tmp_path: Path) -> None:
    import timm

    module = timm.create_model("vit_tiny_patch16_224", depth=1)
    again = load_pickle(saved(tmp_path, module), None, trust=False)
    x = torch.randn(1, 3, 224, 224)
    with torch.no_grad():
        assert torch.equal(module.eval()(x), again.eval()(x))


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (Call(print, "x"), "builtins.print"),
        (Call(getattr, "x", "upper"), "builtins.getattr"),
        (Call(torch.hub.load, "x", "y"), "torch.hub.load"),
        (Call(torch.load, "x"), "torch.serialization.load"),
        (functools.partial(print), "builtins.print, functools.partial"),
        (functools.partial(functools.partial, nn.ReLU), "functools.partial"),
        # Known classes may be filled, as honest pickles do, but not called with arguments of the file's choice.
        (Call(nn.Linear, 2, 2), "torch.nn.modules.linear.Linear (called with arguments)"),
        (Call(list, (1,)), "builtins.list (called with arguments)"),
        (torch.fx.symbolic_trace(nn.ReLU()), "torch.fx.graph_module.reduce_graph_module"),
        ({"w": torch.ones(1), "cfg": pickle.PickleError("x")}, "PickleError"),
        (torchvision.datasets.folder.default_loader, "torchvision.datasets.folder.default_loader"),
    ],
)
@pytest.mark.parametrize("legacy", [False, True])
def test_refused_by_name(value: Any, name: str, legacy: bool, tmp_path: Path) -> None:
    path = saved(tmp_path, {"state": value}, _use_new_zipfile_serialization=not legacy)
    with pytest.raises(ModelError) as caught:
        load_pickle(path, None, trust=False)
    assert name in str(caught.value)
    assert "--trust-pickle" in str(caught.value)
    assert "nothing of it was run" in str(caught.value)


def test_a_partial_cannot_be_given_another_function_afterwards(tmp_path: Path) -> None:
    # partial(nn.ReLU) whose state then names something else: BUILD replaces what REDUCE was checked for.
    data = b"\x80\x02cfunctools\npartial\nctorch.nn.modules.activation\nReLU\n\x85R(c_codecs\nencode\n)}Ntb."
    path = tmp_path / "f.pt"
    torch.save({}, path)
    with torch.serialization._open_zipfile_writer(str(path)) as archive:
        archive.write_record("data.pkl", data, len(data))
    assert "functools.partial" in examine(path).refused


def test_the_old_format_goes_through_the_same_door(tmp_path: Path) -> None:
    path = saved(tmp_path, {"w": torch.arange(3)}, _use_new_zipfile_serialization=False)
    assert load_pickle(path, None, trust=False)["w"].tolist() == [0, 1, 2]
    whole = saved(tmp_path, nn.Linear(2, 2), _use_new_zipfile_serialization=False)
    with pytest.raises(ModelError, match="before version 1.6"):
        load_pickle(whole, None, trust=False)
    assert isinstance(load_pickle(whole, None, trust=True), nn.Linear)


def test_a_plain_pickle_is_named_for_what_it_is(tmp_path: Path) -> None:
    path = tmp_path / "m.pt"
    path.write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(ModelError, match="plain pickle"):
        load_pickle(path, None, trust=False)


def test_a_newer_pickle_protocol_says_so(tmp_path: Path) -> None:
    path = saved(tmp_path, {"a": torch.ones(2)}, pickle_protocol=4)
    with pytest.raises(ModelError, match=r"Unsupported operand.*--trust-pickle"):
        load_pickle(path, None, trust=False)
    assert load_pickle(path, None, trust=True)["a"].tolist() == [1, 1]


USER = """
import dataclasses, enum, os
from os import system
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(2, 2)
    def forward(self, x):
        return act(self.body(x))

class Mode(enum.Enum):
    A = 1

@dataclasses.dataclass
class Config:
    lr: float = 0.1

def act(x):
    return x.relu()
"""


def pickled(*lines: bytes) -> Any:
    data = b"\x80\x02" + b"".join(lines) + b"."
    from compress.load.pickle_reader import read_pickle

    return read_pickle(io.BytesIO(data))


def test_classes_of_the_code_file(tmp_path: Path) -> None:
    from compress.load.safe import judge

    (tmp_path / "user_net.py").write_text(USER)
    code = load_code(f"{tmp_path}/user_net.py:Net")
    for module in (b"user_net", b"__main__", b"old.place.user_net", b"renamed"):
        assert judge(pickled(b"c%b\nNet\n)\x81" % module), code).refused == ()
        assert judge(pickled(b"c%b\nConfig\n)\x81" % module), code).refused == ()
        assert judge(pickled(b"c%b\nMode\nK\x01\x85R" % module), code).refused == ()
    assert judge(pickled(b"cuser_net\nact\n"), code).refused == ()
    # Functions may be referred to, never called; what the file imported isn't its own.
    assert judge(pickled(b"cuser_net\nact\nK\x01\x85R"), code).refused == ("user_net.act (called with arguments)",)
    assert judge(pickled(b"cuser_net\nNet\n)R"), code).refused == ("user_net.Net (called with arguments)",)
    assert judge(pickled(b"cuser_net\nsystem\n"), code).refused == ("user_net.system",)
    assert judge(pickled(b"cuser_net\nos\n"), code).refused == ("user_net.os",)
