"""Train the digits network and write ``model.pt`` and ``data/{train,val}.npz`` beside this file.

Takes about ten seconds on two cores. Needs scikit-learn, for the scans:

    pip install scikit-learn && python models/digits/train.py
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.nn import functional

SEED = 0
VALIDATION = 597
EPOCHS = 20
BATCH = 60
PEAK_LEARNING_RATE = 4e-3


def network() -> nn.Sequential:
    """Return the network: float32 [N, 1, 8, 8] in, float32 [N, 10] out.

    It holds classes of ``torch.nn`` alone, so that the file it is pickled into loads without any code of ours.
    """

    def conv(channels_in: int, channels_out: int) -> list[nn.Module]:
        return [
            nn.Conv2d(channels_in, channels_out, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels_out),
            nn.ReLU(inplace=True),
        ]

    return nn.Sequential(
        *conv(1, 64),
        *conv(64, 64),
        *conv(64, 64),
        nn.MaxPool2d(2),
        *conv(64, 96),
        *conv(96, 96),
        *conv(96, 96),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(96, 10),
    )


def write_data(folder: Path) -> dict[str, tuple[Tensor, Tensor]]:
    """Split the scans, keeping the share of each class, write both parts, and return them as tensors."""
    scans, labels = load_digits(return_X_y=True)
    images = (scans / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    x_train, x_val, y_train, y_val = train_test_split(
        images, labels.astype(np.int64), test_size=VALIDATION, stratify=labels, random_state=SEED
    )
    folder.mkdir(exist_ok=True)
    parts = {"train": (x_train, y_train), "val": (x_val, y_val)}
    for name, (x, y) in parts.items():
        np.savez_compressed(folder / f"{name}.npz", x=x, y=y)
    return {name: (torch.from_numpy(x), torch.from_numpy(y)) for name, (x, y) in parts.items()}


def augmented(x: Tensor, generator: torch.Generator) -> Tensor:
    """Return ``x`` with each image turned, scaled and moved a little: up to about 10°, 10 % and half a pixel."""
    count = len(x)

    def uniform(limit: float) -> Tensor:
        return (torch.rand(count, generator=generator) * 2 - 1) * limit

    angle, scale = uniform(0.18), 1 + uniform(0.1)
    turn = torch.stack([angle.cos() * scale, -angle.sin() * scale, angle.sin() * scale, angle.cos() * scale], dim=1)
    move = torch.stack([uniform(0.125), uniform(0.125)], dim=1)
    affine = torch.cat([turn.view(count, 2, 2), move.view(count, 2, 1)], dim=2)
    grid = functional.affine_grid(affine, list(x.shape), align_corners=False)
    return functional.grid_sample(x, grid, align_corners=False)


def train(x: Tensor, y: Tensor) -> nn.Sequential:
    """Train for a fixed number of epochs and return the last state; the validation part takes no part in it."""
    torch.manual_seed(SEED)
    generator = torch.Generator().manual_seed(SEED)
    model = network().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK_LEARNING_RATE, weight_decay=0.05)
    steps = EPOCHS * (len(x) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=PEAK_LEARNING_RATE, total_steps=steps)
    for _ in range(EPOCHS):
        order = torch.randperm(len(x), generator=generator)
        for chosen in order.split(BATCH):
            loss = functional.cross_entropy(model(augmented(x[chosen], generator)), y[chosen], label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return model.eval()


@torch.inference_mode()
def top1(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """Return the share of samples, in percent, whose largest output is their label's."""
    return 100 * (model(x).argmax(1) == y).float().mean().item()


def main() -> None:
    """Write the data, train, say how good it got, and save the whole module."""
    here = Path(__file__).resolve().parent
    torch.set_num_threads(2)
    torch.use_deterministic_algorithms(True)
    parts = write_data(here / "data")
    started = time.perf_counter()
    model = train(*parts["train"])
    print(f"trained {EPOCHS} epochs in {time.perf_counter() - started:.0f} s")
    for name, (x, y) in parts.items():
        print(f"{name}: top-1 {top1(model, x, y):.2f} % of {len(y)}")
    model.requires_grad_(False)
    part = here / ".model.pt.tmp"
    torch.save(model, part)
    part.replace(here / "model.pt")


if __name__ == "__main__":
    main()
