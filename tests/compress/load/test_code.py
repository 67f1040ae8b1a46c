"""Architectures."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from compress.artifact import ModelSource
from compress.errors import CompressError, ModelError, UsageError
from compress.load.code import is_architecture, load_code, parse_code
from compress.load.loader import load_network

NET = """
from torch import nn
from parts import WIDTH

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, WIDTH)
    def forward(self, x):
        return self.body(x)

def build():
    import late_part
    return Net()

def needs(width, *, depth):
    return Net()

def wrong():
    return 3

def fails():
    raise ValueError("no luck\\nsecond line")
"""


def project(folder: Path, width: int = 3) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "parts.py").write_text(f"WIDTH = {width}\n")
    (folder / "late_part.py").write_text("")
    path = folder / "my_net.py"
    path.write_text(NET)
    return path


def test_functions_classes_and_siblings(tmp_path: Path) -> None:
    path = project(tmp_path)
    for factory in ("build", "Net"):
        network = load_code(f"{path}:{factory}").build(0)
        assert network.body.out_features == 3
    assert type(network).__module__ == "my_net"
    assert not list(tmp_path.rglob("__pycache__"))
    assert str(tmp_path) not in sys.path


def test_two_folders_with_the_same_names_dont_mix(tmp_path: Path) -> None:
    first, second = project(tmp_path / "a", 3), project(tmp_path / "b", 5)
    widths = [load_code(f"{p}:build").build(0).body.out_features for p in (first, second, first)]
    assert widths == [3, 5, 3]


@pytest.mark.parametrize("name", ["random", "types", "torch", "wave"])
def test_a_file_named_like_a_module_leaves_that_module_alone(name: str, tmp_path: Path) -> None:
    before = sys.modules.get(name)
    path = tmp_path / f"{name}.py"
    path.write_text(
        "def build():\n    from torch import nn\n    return nn.Linear(2, 1)\n" if name != "torch" else "X = 1\n"
    )
    load_code(f"{path}:build")
    assert sys.modules.get(name) is before
    if name == "wave":  # not imported before: Python's own must still be found
        import wave

        assert Path(wave.__file__).parent != tmp_path


def test_the_seed_draws_the_weights_and_leaves_the_global_state(tmp_path: Path) -> None:
    code = load_code(f"{project(tmp_path)}:build")
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    first, again, other = (code.build(s).body.weight for s in (1, 1, 2))
    assert torch.rand(1) == expected
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(
    ("factory", "said"),
    [
        ("nothing", "has no factory 'nothing'. It defines: Net, build, needs, wrong, fails."),
        ("needs", "needs arguments (width, depth)"),
        ("wrong", "must return a torch.nn.Module, not int"),
        ("fails", "failed: ValueError: no luck."),
    ],
)
def test_factories_that_dont_build(factory: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        load_code(f"{project(tmp_path)}:{factory}").build(0)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "text", ["raise KeyError('x')", "import not_there_at_all", "def (:", "import sys; sys.exit(2)"]
)
def test_files_that_cannot_be_imported(text: str, tmp_path: Path) -> None:
    path = tmp_path / "broken_net.py"
    path.write_text(text)
    with pytest.raises(ModelError, match=r"broken_net\.py cannot be imported"):
        load_code(f"{path}:build")


@pytest.mark.parametrize("text", ["net", "net:", ":build", "a-b:build", "net/x:build"])
def test_bad_code(text: str) -> None:
    with pytest.raises(UsageError, match=r"FILE\.py:factory"):
        parse_code(text)


def test_missing_file_and_module() -> None:
    with pytest.raises(ModelError, match="doesn't exist"):
        load_code("nowhere/net.py:build")
    with pytest.raises(ModelError, match="ModuleNotFoundError"):
        load_code("no_such_package.models:build")


def test_torchvision_timm_and_packages() -> None:
    assert load_network(ModelSource("torchvision:squeezenet1_1")).kind == "architecture"
    assert load_code("timm:resnet10t").build(0).num_classes == 1000
    built = load_code("torchvision.models.resnet:resnet18").build(0)
    assert type(built).__name__ == "ResNet"


@pytest.mark.parametrize("text", ["torchvision:resnet5", "timm:resnet5", "timm:hf-hub:someone/net"])
def test_unknown_architectures(text: str) -> None:
    with pytest.raises(CompressError):
        load_code(text).build(0)


def test_detection_models_download_no_backbone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a download was tried")

    monkeypatch.setattr(torch.hub, "load_state_dict_from_url", refuse)
    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", refuse)
    assert load_code("torchvision:lraspp_mobilenet_v3_large").build(0) is not None


def test_what_is_an_architecture(tmp_path: Path) -> None:
    assert is_architecture("torchvision:resnet50")
    assert is_architecture("timm:resnet10t.c3_in1k")
    assert is_architecture("folder/net.py:build")
    assert not is_architecture("model.pt")
    assert not is_architecture(r"C:\models\model.pt")
    odd = tmp_path / "odd:name"
    odd.write_text("x")
    assert not is_architecture(str(odd))
