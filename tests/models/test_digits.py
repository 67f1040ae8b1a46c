"""The bundled example: its data, its weights and its recipe are what the card says."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from compress.recipe import load_recipe

FOLDER = Path(__file__).resolve().parents[2] / "models" / "digits"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("digits_train", FOLDER / "train.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def model(script: ModuleType) -> torch.nn.Module:
    """The shipped file, loaded with no more than the classes of torch.nn that the network is made of."""
    classes = {type(m) for m in script.network().modules()}
    with torch.serialization.safe_globals(list(classes)):
        return torch.load(FOLDER / "model.pt", weights_only=True)


def test_the_file_holds_the_scripts_network_ready_for_inference(script: ModuleType, model: torch.nn.Module) -> None:
    fresh = script.network().eval()
    assert str(model) == str(fresh)
    assert not any(m.training for m in model.modules())
    assert {k: v.shape for k, v in model.state_dict().items()} == {k: v.shape for k, v in fresh.state_dict().items()}
    assert sum(p.numel() for p in model.parameters()) == 297_418


def test_it_reads_the_validation_scans(script: ModuleType, model: torch.nn.Module) -> None:
    part = np.load(FOLDER / "data" / "val.npz")
    x, y = torch.from_numpy(part["x"]), torch.from_numpy(part["y"])
    assert script.top1(model, x, y) >= 98.5
    assert model(x).std(dim=0).min() > 0.5  # logits that depend on the scan, for every class


def test_the_script_writes_the_data_that_are_shipped(script: ModuleType, tmp_path: Path) -> None:
    script.write_data(tmp_path / "data")
    for name, count in (("train", 1200), ("val", 597)):
        made, shipped = np.load(tmp_path / "data" / f"{name}.npz"), np.load(FOLDER / "data" / f"{name}.npz")
        assert shipped["x"].shape == (count, 1, 8, 8)
        np.testing.assert_array_equal(made["x"], shipped["x"])
        np.testing.assert_array_equal(made["y"], shipped["y"])


def test_no_scan_is_in_both_parts_and_classes_are_even() -> None:
    train, val = (np.load(FOLDER / "data" / f"{name}.npz") for name in ("train", "val"))
    assert {x.tobytes() for x in train["x"]} & {x.tobytes() for x in val["x"]} == set()
    for part in (train, val):
        share = np.bincount(part["y"], minlength=10) / len(part["y"])
        np.testing.assert_allclose(share, 0.1, atol=0.004)
        assert (part["x"].min(), part["x"].max()) == (0.0, 1.0)


def test_training_gives_the_same_weights_twice(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "EPOCHS", 1)
    part = np.load(FOLDER / "data" / "train.npz")
    x, y = torch.from_numpy(part["x"][:120]), torch.from_numpy(part["y"][:120])
    first, second = (script.train(x, y).state_dict() for _ in range(2))
    assert all(torch.equal(first[k], second[k]) for k in first)
    assert not torch.equal(first["0.weight"], script.network().state_dict()["0.weight"])


def test_the_recipe_finds_its_files_from_any_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    recipe = load_recipe(FOLDER / "recipe.yaml")
    assert (Path(recipe.model), Path(recipe.data or ""), Path(recipe.train or "")) == (
        FOLDER / "model.pt",
        FOLDER / "data" / "val.npz",
        FOLDER / "data" / "train.npz",
    )
    assert (recipe.target, recipe.batch, recipe.max_drop) == ("auto", (1, 32), 0.5)


def test_the_bundle_is_small() -> None:
    assert (FOLDER / "model.pt").stat().st_size < 1_500_000
    assert sum(f.stat().st_size for f in (FOLDER / "data").iterdir()) < 300_000
