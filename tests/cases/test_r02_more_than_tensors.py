"""R02: honest checkpoints that carry more than tensors (hhaentze/MRSegmentator#19, GET-Foundation/get_model#23)."""

from __future__ import annotations

import argparse
import collections
import dataclasses
import functools
import pathlib
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from compress.artifact import ModelSource
from compress.errors import ModelError
from compress.load.loader import load_model

CODE = "from torch import nn\ndef build():\n    return nn.Linear(4, 2)\n"


@dataclasses.dataclass
class Config:
    rate: float = 0.1


def checkpoint(folder: Path, **extra: Any) -> ModelSource:
    (folder / "linear_net.py").write_text(CODE)
    torch.save({"state_dict": nn.Linear(4, 2).state_dict(), "epoch": 3, **extra}, folder / "c.pth")
    return ModelSource(str(folder / "c.pth"), f"{folder}/linear_net.py:build", ("1x4",))


def filled() -> collections.defaultdict[str, list[int]]:
    made: collections.defaultdict[str, list[int]] = collections.defaultdict(list)
    made["a"].append(1)
    return made


@pytest.mark.parametrize(
    "extra",
    [
        np.float64(0.9),
        np.float32(0.9),
        np.int64(3),
        np.bool_(True),
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.array(["a", "b"]),
        np.dtype("float16"),
        np.float32,
        argparse.Namespace(lr=0.1, nested=argparse.Namespace(x=[1])),
        pathlib.Path("runs/1"),
        pathlib.PureWindowsPath("runs/1"),
        collections.OrderedDict(a=1),
        filled(),
        collections.defaultdict(int, {"x": 2}),
        collections.Counter("aab"),
        {1, 2},
        frozenset({1}),
        range(3),
        slice(1, 2),
        1 + 2j,
        b"bytes",
        torch.float16,
        torch.device("cpu"),
        torch.Size([1, 2]),
        functools.partial(nn.LayerNorm, eps=1e-6),
    ],
    ids=lambda v: f"{type(v).__name__}",
)
def test_common_extras_are_let_through(extra: Any, tmp_path: Path) -> None:
    loaded = load_model(checkpoint(tmp_path, extra=extra))
    assert loaded.kind == "checkpoint"
    assert loaded.parameters == 10


@pytest.mark.parametrize(
    ("extra", "names"),
    [
        (Config(), ["Config"]),
        (functools.partial(print, "x"), ["functools.partial", "builtins.print"]),
        (Decimal("0.1"), ["decimal.Decimal"]),
        ([Decimal("0.1"), Config()], ["decimal.Decimal", "Config"]),
    ],
)
def test_others_are_all_named_with_the_way_out(extra: Any, names: list[str], tmp_path: Path) -> None:
    source = checkpoint(tmp_path, extra=extra)
    with pytest.raises(ModelError) as caught:
        load_model(source)
    assert all(name in str(caught.value) for name in names)
    assert "--trust-pickle" in str(caught.value)
    trusted = dataclasses.replace(source, trust_pickle=True)
    if Config.__module__ in __import__("sys").modules or not any(n == "Config" for n in names):
        assert load_model(trusted).parameters == 10


def test_the_list_holds_for_one_load_only(tmp_path: Path) -> None:
    load_model(checkpoint(tmp_path, extra=argparse.Namespace(a=1)))
    assert argparse.Namespace not in torch.serialization.get_safe_globals()
    with pytest.raises(Exception, match="argparse"):
        torch.load(tmp_path / "c.pth", weights_only=True)
