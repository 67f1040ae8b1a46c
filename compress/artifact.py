"""The vocabulary of the project: what an artifact is, what it takes and gives, and where it came from."""

from __future__ import annotations

import dataclasses
import enum
import hashlib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

Dim = int | str
"""A dimension: a fixed size, or a symbol such as ``"batch"`` for one that varies."""

BATCH = "batch"
"""The symbol of the batch axis, in every signature of the project."""


class Form(str, enum.Enum):
    """What kind of file an artifact is."""

    TORCH = "torch"
    ONNX = "onnx"
    OPENVINO = "openvino"
    TENSORRT = "tensorrt"
    TENSORRT_RTX = "tensorrt-rtx"


@dataclasses.dataclass(frozen=True)
class TensorSpec:
    """One input or output.

    Attributes:
        name: Name of the tensor; an input inside a container argument is called ``argument.key``.
        dtype: NumPy's name of the element type (``float32``, ``int64``, …).
        shape: One entry an axis; a symbol marks an axis whose size may vary.
    """

    name: str
    dtype: str
    shape: tuple[Dim, ...]

    def concrete(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Return the shape with symbols replaced; a symbol without a size raises ``KeyError``."""
        return tuple(d if isinstance(d, int) else sizes[d] for d in self.shape)

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclasses.dataclass(frozen=True)
class Signature:
    """Inputs and outputs of a model, in order. ``outputs`` is empty until a stage has run the model once."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...] = ()

    @property
    def symbols(self) -> tuple[str, ...]:
        """Symbols of the inputs in order of first appearance."""
        return tuple(dict.fromkeys(d for spec in self.inputs for d in spec.shape if isinstance(d, str)))

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-ready dict."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Signature:
        """Rebuild from :meth:`to_json`."""

        def specs(items: list[dict[str, Any]]) -> tuple[TensorSpec, ...]:
            return tuple(TensorSpec(i["name"], i["dtype"], tuple(i["shape"])) for i in items)

        return cls(specs(data["inputs"]), specs(data["outputs"]))


@dataclasses.dataclass(frozen=True)
class ModelSource:
    """How to load a torch artifact again, in this or a fresh process.

    Attributes:
        path: The model file; empty for an architecture without a weights file (``torchvision:resnet50``).
        code: Where the architecture comes from: ``FILE.py:factory``, ``package.module:factory``,
            ``torchvision:NAME`` or ``timm:NAME``; empty where the file holds it.
        inputs: Input specs as the user gave them (see :mod:`compress.load.spec`).
        trust_pickle: Whether the user allowed full unpickling.
        seed: Seeds the weights of an architecture that has no weights file.
    """

    path: str
    code: str = ""
    inputs: tuple[str, ...] = ()
    trust_pickle: bool = False
    seed: int = 0


@dataclasses.dataclass(frozen=True)
class Difference:
    """How far the outputs of a child are from its parent's, on the same inputs.

    Attributes:
        sqnr_db: Signal to quantization noise ratio, 10·log10(Σ parent² / Σ (parent − child)²), in dB; capped at 200.
        cosine: Mean cosine similarity of the flattened outputs, sample by sample.
        max_abs: Largest absolute difference.
        top1_agreement: Share of samples (0–1) with the same largest output; None where outputs aren't ``[N, classes]``.
        samples: Samples compared.
    """

    sqnr_db: float
    cosine: float
    max_abs: float
    top1_agreement: float | None
    samples: int


@dataclasses.dataclass(frozen=True)
class StageRecord:
    """What one stage did.

    Attributes:
        stage: Name of the pass or exporter.
        config: Its settings.
        seconds: Wall-clock time it took when it ran.
        notes: Sentences for the report: choices made, fall-backs said, inputs dropped.
        difference: Change against the parent artifact; None for the first stage of a lineage.
        details: What it measured before it decided, JSON-ready (:class:`compress.results.StageDetails`); None for none.
    """

    stage: str
    config: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    difference: Difference | None = None
    details: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-ready dict."""
        return {**dataclasses.asdict(self), "config": dict(self.config)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> StageRecord:
        """Rebuild from :meth:`to_json`."""
        difference = Difference(**data["difference"]) if data["difference"] else None
        return cls(
            data["stage"], data["config"], data["seconds"], tuple(data["notes"]), difference, data.get("details")
        )


@dataclasses.dataclass(frozen=True)
class Artifact:
    """A model on disk, at one point of the pipeline. Never changed; a stage makes a new one.

    Attributes:
        form: Kind of file.
        path: Main file; side files (external data, ``.bin``) lie beside it and are named in ``side_files``.
        signature: Inputs and outputs.
        sha256: Digest over the main file and its side files, in order.
        lineage: Records of the stages that led here, oldest first.
        source: How a torch artifact is loaded; None for other forms.
        execution: What the runtime must be told and the file cannot hold (``{"inference_precision": "bf16"}``).
        side_files: Files beside ``path`` that belong to it.
    """

    form: Form
    path: Path
    signature: Signature
    sha256: str
    lineage: tuple[StageRecord, ...] = ()
    source: ModelSource | None = None
    execution: Mapping[str, str] = dataclasses.field(default_factory=lambda: MappingProxyType({}))
    side_files: tuple[Path, ...] = ()

    @property
    def files(self) -> tuple[Path, ...]:
        """All files of the artifact, the main one first."""
        return (self.path, *self.side_files)

    @property
    def size_bytes(self) -> int:
        """Size of all files on disk, in bytes."""
        return sum(f.stat().st_size for f in self.files if f.is_file())

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-ready dict; paths as strings."""
        return {
            "form": self.form.value,
            "path": str(self.path),
            "signature": self.signature.to_json(),
            "sha256": self.sha256,
            "lineage": [r.to_json() for r in self.lineage],
            "source": dataclasses.asdict(self.source) if self.source else None,
            "execution": dict(self.execution),
            "side_files": [str(p) for p in self.side_files],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Artifact:
        """Rebuild from :meth:`to_json`."""
        source = data["source"]
        return cls(
            form=Form(data["form"]),
            path=Path(data["path"]),
            signature=Signature.from_json(data["signature"]),
            sha256=data["sha256"],
            lineage=tuple(StageRecord.from_json(r) for r in data["lineage"]),
            source=ModelSource(**{**source, "inputs": tuple(source["inputs"])}) if source else None,
            execution=data["execution"],
            side_files=tuple(Path(p) for p in data["side_files"]),
        )


def sha256_of(*paths: Path) -> str:
    """Return the SHA-256 over the contents of files, in order. A missing file raises ``FileNotFoundError``."""
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()
