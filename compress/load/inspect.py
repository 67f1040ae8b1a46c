"""Looking at a model: what it is, what it holds, what would be refused, and how much it computes."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compress.artifact import BATCH, ModelSource, Signature
from compress.errors import CompressError, ModelError
from compress.load.kinds import Kind, kind_of

if TYPE_CHECKING:
    from compress.load.loader import LoadedModel
    from compress.load.pickle_reader import Reading


@dataclasses.dataclass(frozen=True)
class Layer:
    """A layer of a network, an entry of a state_dict, or an operator type of a graph.

    Attributes:
        name: Its dotted name.
        type: Its class, operator, or ``tensor``.
        shape: Shape of its weight (or of the tensor); None where it has none.
        parameters: Numbers in its own parameters.
    """

    name: str
    type: str
    shape: tuple[int, ...] | None
    parameters: int


@dataclasses.dataclass(frozen=True)
class Inspection:
    """What is known of a model.

    Attributes:
        path: The file, or the architecture's text.
        kind: As for :class:`~compress.load.loader.LoadedModel`, or ``onnx``, ``openvino``.
        size_bytes: Size of the file and its side files; None for an architecture.
        signature: Inputs and outputs; None where nothing tells them.
        parameters: Numbers in all parameters; None where they couldn't be counted.
        macs: Multiply-accumulates of one sample; None where they couldn't be counted.
        dtypes: Parameters by element type.
        layers: Layers, or entries of a state_dict.
        refused: What a safe load refuses, each in words.
        notes: What was chosen, and why something above is unknown.
    """

    path: str
    kind: str
    size_bytes: int | None
    signature: Signature | None = None
    parameters: int | None = None
    macs: int | None = None
    dtypes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    layers: tuple[Layer, ...] = ()
    refused: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-ready dict."""
        return dataclasses.asdict(self)


def inspect_file(source: ModelSource, sample: Mapping[str, Any] | None = None) -> Inspection:
    """Look at a model without running foreign code; only a file named with ``--code`` is run.

    A pickle that would be refused is read as symbols: its names, and the keys and shapes of its tensors.

    Raises:
        ModelError: The file is missing, damaged or nothing known.
        UsageError: ``source`` contradicts itself.
    """
    from compress.load.loader import normalized

    source = normalized(source)
    if not source.path:
        return _network(source, None, sample, ())
    path = Path(source.path)
    kind = kind_of(path)
    size = path.stat().st_size
    if kind is Kind.ONNX:
        return _onnx(path)
    if kind is Kind.OPENVINO:
        return _openvino(path)
    if kind is Kind.SAFETENSORS and not source.code:
        return _safetensors(path, size)
    if kind in (Kind.PICKLE, Kind.LEGACY_PICKLE):
        from compress.load.code import load_code
        from compress.load.safe import examine

        found = examine(path, load_code(source.code) if source.code else None)
        root = found.reading.root
        if (found.refused and not source.trust_pickle) or (not source.code and not _is_module(root)):
            return _symbols(path, size, found.reading, () if source.trust_pickle else found.refused)
        return _network(source, size, sample, found.refused)
    refused = _refused_in_archive(path, kind)
    if refused and not source.trust_pickle:
        return Inspection(str(path), kind.value, size, refused=refused)
    return _network(source, size, sample, refused)


def count_macs(loaded: LoadedModel) -> int | None:
    """Return the multiply-accumulates of one sample, by torch's own counter: matrix products, convolutions, attention.

    None where it counted none, or the network cannot be counted.
    """
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from compress.load.probe import default_sizes, probe_inputs

    sizes = default_sizes(loaded.signature)
    arrays = probe_inputs(loaded.signature, 1, 0, None, sizes)
    first = loaded.signature.inputs[0].shape
    rows = first[0] if first and isinstance(first[0], int) else 1
    counter = FlopCounterMode(display=False)
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad(), counter:
            loaded.module(*(torch.from_numpy(arrays[s.name]) for s in loaded.signature.inputs))
    except (RuntimeError, TypeError, ValueError, NotImplementedError, IndexError, AssertionError):
        return None
    return round(counter.get_total_flops() / 2 / rows) or None


def _network(
    source: ModelSource, size: int | None, sample: Mapping[str, Any] | None, refused: tuple[str, ...]
) -> Inspection:
    from compress.load.loader import count_weights, describe, load_network

    network = load_network(source)
    parameters, _ = count_weights(network.original)
    signature, macs, notes = None, None, list(network.notes)
    try:
        loaded = describe(network, source, sample)
        signature, macs, notes = loaded.signature, count_macs(loaded), list(loaded.notes)
        if macs is None:
            notes.append("multiply-accumulates could not be counted")
        elif set(signature.symbols) - {BATCH}:
            notes.append("multiply-accumulates are for the smallest sizes tried of axes that vary")
    except CompressError as error:
        notes.append(f"inputs, outputs and multiply-accumulates are unknown: {error}")
    dtypes = Counter[str]()
    for parameter in network.original.parameters():
        dtypes[str(parameter.dtype).removeprefix("torch.")] += parameter.numel()
    return Inspection(
        source.path or source.code, network.kind, size, signature, parameters, macs, dict(dtypes),
        tuple(_layers(network.original)), refused, tuple(notes),
    )  # fmt: skip


def _layers(module: Any) -> Iterator[Layer]:
    import torch

    for name, layer in module.named_modules():
        own = list(layer.parameters(recurse=False))
        if not own and list(layer.children()):
            continue
        weight = getattr(layer, "weight", None)
        shape = tuple(weight.shape) if isinstance(weight, torch.Tensor) else tuple(own[0].shape) if own else None
        kind = getattr(layer, "original_name", type(layer).__name__)
        yield Layer(name or "(the model)", kind, shape, sum(p.numel() for p in own))


def _is_module(root: Any) -> bool:
    from compress.load.pickle_reader import Global, Made

    return isinstance(root, Made) and root.how == "new" and isinstance(root.callee, Global)


def _symbols(path: Path, size: int, reading: Reading, refused: tuple[str, ...]) -> Inspection:
    entries = list(_tensors(reading.root, "", 0))
    dtypes = Counter[str]()
    for layer, dtype in entries:
        dtypes[dtype] += layer.parameters
    root = reading.root
    inside = root.state if not isinstance(root, dict) and isinstance(getattr(root, "state", None), dict) else root
    nested = isinstance(inside, dict) and any("." in n.name and n.name.partition(".")[0] in inside for n, _ in entries)
    flat = isinstance(inside, dict) and inside and all(any(n.name == k for n, _ in entries) for k in inside)
    kind = "module" if _is_module(root) else "state_dict" if flat and not nested else "checkpoint"
    notes = []
    if isinstance(inside, dict) and kind == "checkpoint":
        notes.append(f"top-level keys: {', '.join(map(str, list(inside)[:20]))}")
    if refused:
        notes.append("read as symbols; nothing of the file was run")
    elif kind != "module":
        notes.append("weights alone; --code adds the network they belong to")
    # A module's tensors lie deep inside its attributes, so only their sum is told.
    total = sum(layer.parameters for layer, _ in entries)
    return Inspection(
        str(path), kind, size, None, total or None, None, dict(dtypes), tuple(layer for layer, _ in entries), refused,
        tuple(notes),
    )  # fmt: skip


def _tensors(value: Any, name: str, depth: int) -> Iterator[tuple[Layer, str]]:
    """Yield tensors in what a pickle holds, as far as dicts go."""
    from compress.load.pickle_reader import Global, Made, Persistent

    if isinstance(value, dict):
        items: Any = value
    elif isinstance(value, Made):
        callee = value.callee.name if isinstance(value.callee, Global) else ""
        args = value.args if isinstance(value.args, tuple) else ()
        if callee.startswith("torch._utils._rebuild_parameter") and args:
            yield from _tensors(args[0], name, depth)
            return
        if callee.startswith("torch._utils._rebuild_tensor") and len(args) >= 4:
            storage: Any = args[0].key if isinstance(args[0], Persistent) else ()
            kind = storage[1].name if len(storage) > 1 and isinstance(storage[1], Global) else "torch.unknown"
            shape = tuple(d for d in args[2] if isinstance(d, int)) if isinstance(args[2], tuple) else ()
            count = 1
            for d in shape:
                count *= d
            yield Layer(name, "tensor", shape, count), _dtype(kind)
            return
        items = value.state if isinstance(value.state, dict) else {}
    else:
        return
    if depth > 40:
        return
    for key, item in items.items():
        yield from _tensors(item, f"{name}.{key}" if name else str(key), depth + 1)


_STORAGES = {
    "FloatStorage": "float32", "DoubleStorage": "float64", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
    "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8",
    "ByteStorage": "uint8", "BoolStorage": "bool",
}  # fmt: skip


def _dtype(storage: str) -> str:
    name = storage.rpartition(".")[2]
    return _STORAGES.get(name, name)


def _refused_in_archive(path: Path, kind: Kind) -> tuple[str, ...]:
    from compress.load.archives import Archive

    if kind is Kind.TORCHSCRIPT:
        from compress.load.torchscript import unsafe_operators

        return tuple(unsafe_operators(Archive(path)))
    if kind is Kind.EXPORTED:
        from compress.load.exported_guard import unsafe_parts

        return tuple(unsafe_parts(Archive(path)))
    return ()


def _safetensors(path: Path, size: int) -> Inspection:
    from safetensors import SafetensorError, safe_open

    from compress.load.kinds import damaged

    layers, dtypes = [], Counter[str]()
    try:
        with safe_open(path, framework="numpy") as file:
            for key in file.keys():  # noqa: SIM118 - no mapping
                entry = file.get_slice(key)
                count = 1
                for d in entry.get_shape():
                    count *= d
                layers.append(Layer(key, "tensor", tuple(entry.get_shape()), count))
                dtypes[str(entry.get_dtype())] += count
    except SafetensorError as error:
        raise damaged(path, str(error).rstrip(".")) from error
    notes = ("weights alone; --code adds the network they belong to",)
    total = sum(layer.parameters for layer in layers)
    return Inspection(str(path), "safetensors", size, None, total, None, dict(dtypes), tuple(layers), notes=notes)


def _onnx(path: Path) -> Inspection:
    import math

    from onnx import helper

    from compress.load import graphs

    model = graphs.read_onnx(path)
    notes, size = [], path.stat().st_size
    try:
        size += sum(f.stat().st_size for f in graphs.onnx_side_files(path, model))
    except ModelError as error:
        notes.append(str(error))
    dtypes = Counter[str]()
    for tensor in model.graph.initializer:
        dtypes[helper.tensor_dtype_to_np_dtype(tensor.data_type).name] += math.prod(tensor.dims)
    shapes = {t.name: tuple(t.dims) for t in model.graph.initializer}
    layers = []
    for index, node in enumerate(model.graph.node):
        held = [shapes[name] for name in node.input if name in shapes]
        layers.append(
            Layer(node.name or f"node_{index}", node.op_type, held[0] if held else None, sum(map(math.prod, held)))
        )
    opsets = (f"{o.domain or 'ai.onnx'} {o.version}" for o in model.opset_import)
    notes.append(f"opset {', '.join(opsets)}")
    return Inspection(
        str(path), "onnx", size, graphs.onnx_signature(model), sum(dtypes.values()), None, dict(dtypes), tuple(layers),
        notes=tuple(notes),
    )  # fmt: skip


def _openvino(path: Path) -> Inspection:
    import math

    import openvino

    from compress.load import graphs

    size = path.stat().st_size + sum(f.stat().st_size for f in graphs.openvino_files(path))
    signature = graphs.openvino_signature(path)
    layers, dtypes = [], Counter[str]()
    for node in openvino.Core().read_model(path).get_ordered_ops():
        if node.get_type_name() == "Constant":
            count = math.prod(node.get_output_shape(0))
            dtypes[node.get_output_element_type(0).get_type_name()] += count
        else:
            layers.append(Layer(node.get_friendly_name(), node.get_type_name(), None, 0))
    return Inspection(
        str(path), "openvino", size, signature, sum(dtypes.values()), None, dict(dtypes), tuple(layers),
    )  # fmt: skip
