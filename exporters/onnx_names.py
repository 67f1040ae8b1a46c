"""Giving an exported graph the names of the model's signature, and dropping inputs that nothing reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from compress.artifact import Dim, Signature, TensorSpec
from compress.errors import StageError
from compress.runners.onnx_file import replace_symbols

if TYPE_CHECKING:
    import onnx_ir

_KEPT_METADATA = frozenset({"namespace", "pkg.torch.onnx.name_scopes"})
"""What tells which module a node came from. The rest repeats stack traces with paths of the user's machine."""


def tidy(model: onnx_ir.Model, signature: Signature, kept: Sequence[int]) -> tuple[str, ...]:
    """Name inputs, outputs and axes as ``signature`` does, in place, and drop inputs that no node reads.

    Args:
        model: A graph whose outputs are in the signature's order.
        signature: The names, and the symbols of axes; its outputs may be empty.
        kept: Position in the signature of each input of the graph.

    Returns:
        Sentences on what was dropped or could not keep its name.

    Raises:
        StageError: The graph has another number of outputs than the signature, or reads none of its inputs.
    """
    from onnx_ir.passes.common import NameFixPass, OutputFixPass

    graph = model.graph
    OutputFixPass()(model)  # an output that is an input, a weight or another output gets an Identity of its own
    inputs = tuple(signature.inputs[i] for i in kept)
    gone = [s.name for i, s in enumerate(signature.inputs) if i not in kept]
    outputs = signature.outputs or tuple(
        TensorSpec(o.name or f"output{i}", "", ()) for i, o in enumerate(graph.outputs)
    )
    if len(graph.outputs) != len(outputs):
        raise StageError(f"The exported graph has {len(graph.outputs)} outputs, the model {len(outputs)}.")

    symbols = _symbols(graph, inputs)
    for value in _values(graph):
        if value.shape is not None:
            _rename_axes(value, symbols)
    for value, spec in zip(graph.inputs, inputs, strict=True):
        _set_axes(value, spec.shape)
    for value, spec in zip(graph.outputs, outputs, strict=True):
        _set_axes(value, spec.shape)
    notes = [*_name(graph, inputs, outputs), *_drop_unused(graph, gone)]
    NameFixPass()(model)  # inner tensors that have a name of an input or output get another one
    for weight in graph.initializers.values():
        # Listed again in value_info they break tools that transpose weights, such as onnxruntime's quantizer.
        weight.shape = weight.type = weight.doc_string = None
        weight.metadata_props.clear()
    _strip(model)
    return tuple(notes)


def _symbols(graph: onnx_ir.Graph, inputs: Sequence[TensorSpec]) -> dict[str, str]:
    """Return the exporter's own symbols (``s77``) → the signature's."""
    found: dict[str, str] = {}
    for value, spec in zip(graph.inputs, inputs, strict=True):
        for made, wanted in zip(value.shape or (), spec.shape, strict=False):
            name = getattr(made, "value", None)
            if isinstance(wanted, str) and isinstance(name, str):
                found.setdefault(name, wanted)
    return found


def _rename_axes(value: onnx_ir.Value, names: Mapping[str, str]) -> None:
    import onnx_ir

    dims = [d.value if isinstance(d, onnx_ir.SymbolicDim) else d for d in value.shape or ()]
    value.shape = onnx_ir.Shape([replace_symbols(d, names) if isinstance(d, str) else d for d in dims])


def _set_axes(value: onnx_ir.Value, wanted: tuple[Dim, ...]) -> None:
    """Give open axes the symbols that are wanted. An axis that the graph fixed stays fixed: that must be seen."""
    import onnx_ir

    if value.shape is None or len(value.shape) != len(wanted):
        return
    pairs = zip(value.shape, wanted, strict=True)
    value.shape = onnx_ir.Shape([w if isinstance(d, onnx_ir.SymbolicDim) else d for d, w in pairs])


def _name(graph: onnx_ir.Graph, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> list[str]:
    """Name inputs and outputs. A graph's names are unique: an output called like an input gets another one."""
    notes = []
    for value, spec in zip(graph.inputs, inputs, strict=True):
        value.name = spec.name
    taken = {s.name for s in inputs} | {s.name for s in outputs}
    used = {s.name for s in inputs}
    for value, spec in zip(graph.outputs, outputs, strict=True):
        name = spec.name
        if name in used:
            name = next(n for n in (f"{spec.name}_out", *(f"{spec.name}_out{i}" for i in range(99))) if n not in taken)
            notes.append(f"Output {spec.name} is called {name} in the graph, since another tensor has its name.")
        used.add(name)
        taken.add(name)
        value.name = name
    return notes


def _drop_unused(graph: onnx_ir.Graph, gone: Sequence[str]) -> list[str]:
    dropped = [value for value in graph.inputs if not value.uses()]
    if len(dropped) == len(graph.inputs):
        raise StageError("The exported graph reads none of its inputs: the model's result is a constant.")
    for value in dropped:
        graph.inputs.remove(value)
    names = [*gone, *(str(value.name) for value in dropped)]
    return [f"Inputs that don't affect the result were dropped from the graph: {', '.join(names)}."] if names else []


def _values(graph: onnx_ir.Graph) -> Iterator[onnx_ir.Value]:
    yield from graph.inputs
    yield from graph.initializers.values()
    for node in graph.all_nodes():
        yield from node.outputs


def _strip(model: onnx_ir.Model) -> None:
    model.graph.metadata_props.clear()
    model.metadata_props.clear()
    for node in model.graph.all_nodes():
        for key in set(node.metadata_props) - _KEPT_METADATA:
            del node.metadata_props[key]
        for value in node.outputs:
            value.metadata_props.clear()
