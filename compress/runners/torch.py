"""Torch eager, the baseline: the model as it was handed over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import torch

from compress.artifact import Form, Signature
from compress.data.base import Array
from compress.errors import ModelError, UsageError
from compress.load.loader import LoadedModel, load_model
from compress.runners.base import Runner


class TorchRunner(Runner):
    """Runs a torch artifact eagerly, in inference mode, on the CPU or a CUDA device.

    The number of threads is torch's own and thus the whole process's; ``close`` puts the former one back.
    """

    forms: ClassVar[frozenset[Form]] = frozenset({Form.TORCH})

    _loaded: LoadedModel | None = None
    _former_threads: int | None = None

    def _load(self) -> None:
        self._device = _device(self.options.device)
        if self.artifact.source is None:
            raise ModelError(f"{self.artifact.path} doesn't say how to load it.")
        self._former_threads = torch.get_num_threads()
        torch.set_num_threads(self.options.threads)
        self._loaded = load_model(self.artifact.source, signature=self.artifact.signature)
        self._module = self._loaded.module.to(self._device)

    def _signature(self) -> Signature:
        return self._open().signature

    def _infer(self, inputs: dict[str, Array]) -> dict[str, Array]:
        tensors = self._tensors(inputs)
        try:
            with torch.inference_mode():
                outputs = self._module(*tensors)
        except Exception as error:
            raise ModelError(f"{self.artifact.path.name} failed in torch: {type(error).__name__}: {error}.") from error
        return {s.name: _array(t) for s, t in zip(self.signature.outputs, outputs, strict=True)}

    def _bind(self, inputs: dict[str, Array]) -> Callable[[], None]:
        tensors, module, cuda = self._tensors(inputs), self._module, self._device.type == "cuda"

        def once() -> None:
            with torch.inference_mode():
                module(*tensors)
            if cuda:
                torch.cuda.synchronize(self._device)

        return once

    def facts(self) -> dict[str, Any]:
        """Return what is really used; ``precisions`` counts parameters by element type."""
        module = self._open().module
        precisions = Counter[str]()
        devices = Counter[str]()
        for parameter in module.parameters():
            precisions[str(parameter.dtype).removeprefix("torch.")] += parameter.numel()
            devices[str(parameter.device)] += parameter.numel()
        device = devices.most_common(1)[0][0] if devices else str(self._device)
        return {
            "runtime": "torch eager",
            "version": torch.__version__,
            "device": device,
            "device_name": torch.cuda.get_device_name(self._device) if self._device.type == "cuda" else "cpu",
            "threads": torch.get_num_threads(),
            "precisions": dict(precisions),
        }

    def _close(self) -> None:
        if self._former_threads is not None:
            torch.set_num_threads(self._former_threads)
            self._former_threads = None
        if self._loaded is not None:
            self._loaded = None
            del self._module

    def _open(self) -> LoadedModel:
        if self._loaded is None:
            raise ModelError(f"The runner of {self.artifact.path.name} is closed.")
        return self._loaded

    def _tensors(self, inputs: dict[str, Array]) -> list[torch.Tensor]:
        self._open()
        # torch warns of arrays that may not be written to, and would share the memory of others.
        return [torch.tensor(inputs[s.name], device=self._device) for s in self.signature.inputs]


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise UsageError(f"'{name}' is no device.", "Write cpu or cuda:0.") from error
    if device.type not in ("cpu", "cuda"):
        raise UsageError(f"The torch runner runs on cpu and cuda, not on '{name}'.")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UsageError(f"Device {name} was asked for, but torch finds no CUDA device here.", "Ask for cpu.")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UsageError(f"Device {name} was asked for, but there are only {torch.cuda.device_count()} CUDA devices.")
    return device


def _array(tensor: torch.Tensor) -> Array:
    tensor = tensor.detach().to("cpu")
    if tensor.dtype == torch.bfloat16:  # NumPy has no such type
        tensor = tensor.float()
    array: Array = np.ascontiguousarray(tensor.numpy())
    return array
