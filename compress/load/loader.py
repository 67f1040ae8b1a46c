"""The entry points: from a user's model, whatever kind of file it is, to a network that runs and a signature."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from compress.artifact import BATCH, Artifact, Dim, Form, ModelSource, Signature, TensorSpec, sha256_of
from compress.data.base import Array
from compress.errors import ModelError, UsageError
from compress.load import code as codes
from compress.load import graphs
from compress.load.kinds import Kind, damaged, kind_of
from compress.load.spec import InputSpec, parse_inputs

if TYPE_CHECKING:
    from torch import nn

    from compress.load.flat import Flat


@dataclasses.dataclass(frozen=True)
class LoadedModel:
    """A network, ready to run.

    Attributes:
        module: The flat network in evaluation mode: tensors in by position, in the signature's order; a tuple of
            tensors out, in the order of the signature's outputs.
        signature: Inputs and outputs; the outputs as a real run gave them.
        kind: ``module``, ``state_dict``, ``checkpoint``, ``torchscript``, ``exported program``, ``safetensors`` or
            ``architecture``.
        notes: Sentences for the report.
        parameters: Numbers in all parameters.
        original: The network as its code made it.
        subnormal_weights: Weights that aren't zero but below the smallest normal float32.
    """

    module: nn.Module
    signature: Signature
    kind: str
    notes: tuple[str, ...]
    parameters: int
    original: nn.Module
    subnormal_weights: int


@dataclasses.dataclass(frozen=True)
class Network:
    """A network before anything is known of its inputs.

    Attributes:
        original: The network, in evaluation mode.
        kind: As for :class:`LoadedModel`.
        notes: What was chosen while loading.
        flat: Its flat form and inputs, where the file fixes them (exported programs).
        inputs: Inputs the file describes; empty where it doesn't.
        own_mode: Whether its training or evaluation mode was the file's and not that of a network just built.
    """

    original: nn.Module
    kind: str
    notes: tuple[str, ...] = ()
    flat: Flat | None = None
    inputs: tuple[TensorSpec, ...] = ()
    own_mode: bool = False


def load_model(
    source: ModelSource,
    sample: Mapping[str, Array] | None = None,
    dynamic_axes: Mapping[str, tuple[str, ...]] | None = None,
    signature: Signature | None = None,
) -> LoadedModel:
    """Load a torch model of any kind to the CPU and learn its signature.

    Inputs come from ``source.inputs``, else from an exported program itself, else from ``sample``; never from a guess.

    Args:
        source: The file, the code and what the user allowed.
        sample: One real preprocessed batch by input name, or by position (``"0"``, ``"1"``, …).
        dynamic_axes: Names of further axes of ``sample`` that vary: input name → names of its axes from 1 on.
        signature: The signature where it is known already, outputs included: the network isn't tried out then.

    Raises:
        ModelError: The model cannot be loaded, doesn't run, or nothing tells its inputs.
        UsageError: ``source`` contradicts itself, or an input spec is wrong.
    """
    source = normalized(source)
    if signature is None and source.inputs:
        parse_inputs(source.inputs)
    return describe(load_network(source), source, sample, dynamic_axes, signature)


def describe(
    network: Network,
    source: ModelSource,
    sample: Mapping[str, Array] | None = None,
    dynamic_axes: Mapping[str, tuple[str, ...]] | None = None,
    signature: Signature | None = None,
) -> LoadedModel:
    """Flatten a network and learn its signature; arguments and errors as for :func:`load_model`."""
    what = Path(source.path).name if source.path else source.code
    flat, inputs, notes = _flattened(network, source, what, sample, dynamic_axes, signature)
    notes = (*network.notes, *notes)
    if signature is None or not signature.outputs:
        from compress.load.dry_run import dry_run

        signature, more = dry_run(flat, inputs, what, sample, source.seed)
        notes = (*notes, *more)
    parameters, subnormal = count_weights(network.original)
    return LoadedModel(flat, signature, network.kind, notes, parameters, network.original, subnormal)


def open_source(
    source: ModelSource,
    sample: Mapping[str, Array] | None = None,
    dynamic_axes: Mapping[str, tuple[str, ...]] | None = None,
) -> tuple[Artifact, LoadedModel | None]:
    """Open a user's model as the first artifact of a pipeline. Their files are read in place, never copied or changed.

    The digest of a torch artifact covers the model file and the file of ``--code``, which is listed as a side file. An
    architecture without a weights file has its own text as path and the digest of that text and its seed.

    Returns:
        The artifact; the loaded network for torch artifacts, None for ONNX and OpenVINO files.

    Raises:
        ModelError: The model cannot be used.
        UsageError: ``source`` contradicts itself.
    """
    source = normalized(source)
    path = Path(source.path)
    kind = kind_of(path) if source.path else None
    if kind is Kind.ONNX:
        model = graphs.read_onnx(path)
        side_files = graphs.onnx_side_files(path, model)
        digest = sha256_of(path, *side_files)
        return Artifact(Form.ONNX, path, graphs.onnx_signature(model), digest, side_files=side_files), None
    if kind is Kind.OPENVINO:
        side_files = graphs.openvino_files(path)
        digest = sha256_of(path, *side_files)
        return Artifact(Form.OPENVINO, path, graphs.openvino_signature(path), digest, side_files=side_files), None
    loaded = load_model(source, sample, dynamic_axes)
    code = codes.parse_code(source.code).file if source.code else None
    side_files = (code,) if code else ()
    if source.path:
        digest = sha256_of(path, *side_files)
    else:
        path = Path(source.code)
        text = f"{source.code}\n{source.seed}\n" + "".join(sha256_of(f) for f in side_files)
        digest = hashlib.sha256(text.encode()).hexdigest()
    return Artifact(Form.TORCH, path, loaded.signature, digest, source=source, side_files=side_files), loaded


def normalized(source: ModelSource) -> ModelSource:
    """Return a source whose ``path`` is a file: an architecture given as the model moves to ``code``.

    Raises:
        UsageError: There is no model, or two architectures.
    """
    if source.path and codes.is_architecture(source.path):
        if source.code and source.code != source.path:
            raise UsageError(
                f"The model {source.path} is an architecture itself; --code {source.code} cannot apply to it."
            )
        return dataclasses.replace(source, path="", code=source.path)
    if not source.path and not source.code:
        raise UsageError("There is no model.", f"Name a file or an architecture ({codes.FORMS}).")
    return source


def load_network(source: ModelSource) -> Network:
    """Load a network in evaluation mode, without running it.

    Raises:
        ModelError: The model cannot be loaded.
    """
    source = normalized(source)
    architecture = codes.load_code(source.code) if source.code else None
    if not source.path:
        if architecture is None:  # normalized() has seen to it
            raise UsageError("There is no model.")
        return _evaluating(Network(architecture.build(source.seed), "architecture"))
    path = Path(source.path)
    kind = kind_of(path)
    if kind in (Kind.ONNX, Kind.OPENVINO):
        raise ModelError(f"{path} is no torch model but {kind.value}.")
    if kind is Kind.TORCHSCRIPT:
        from compress.load.torchscript import load_torchscript

        module = load_torchscript(path, source.trust_pickle)
        return _evaluating(Network(module, "torchscript", _unused_code(source), own_mode=True))
    if kind is Kind.EXPORTED:
        from compress.load.exported import load_exported

        module, flat, inputs, notes = load_exported(path, source.trust_pickle)
        return Network(module, "exported program", (*_unused_code(source), *notes), flat, inputs)
    if kind is Kind.SAFETENSORS:
        return _evaluating(_filled(path, _safetensors(path), "safetensors", (), architecture, source))

    from compress.load.checkpoint import choose
    from compress.load.safe import load_pickle

    found, name, notes = choose(path, load_pickle(path, architecture, source.trust_pickle))
    if isinstance(found, Mapping):
        return _evaluating(_filled(path, found, name, notes, architecture, source))
    return _evaluating(Network(found, name, notes, own_mode=True))


def count_weights(module: nn.Module) -> tuple[int, int]:
    """Return the numbers in all parameters, and those that aren't zero but below the smallest normal float32."""
    import torch

    tiny = torch.finfo(torch.float32).tiny
    parameters = subnormal = 0
    for parameter in module.parameters():
        parameters += parameter.numel()
        if parameter.dtype in (torch.float32, torch.float64):
            size = parameter.detach().abs()
            subnormal += int(((size > 0) & (size < tiny)).sum())
    return parameters, subnormal


def _filled(
    path: Path,
    weights: Mapping[str, Any],
    kind: str,
    notes: tuple[str, ...],
    architecture: codes.Architecture | None,
    source: ModelSource,
) -> Network:
    from compress.load.checkpoint import fill

    if architecture is None:
        raise ModelError(
            f"{path} holds weights alone ({len(weights)} tensors), not the network they belong to.",
            f"Say what builds it: --code {codes.FORMS}.",
        )
    network = architecture.build(source.seed)
    return Network(network, kind, (*notes, *fill(path, weights, network, source.code)))


def _safetensors(path: Path) -> Mapping[str, Any]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        weights: Mapping[str, Any] = load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise damaged(path, str(error).partition("\n")[0].rstrip(".")) from error
    return weights


def _unused_code(source: ModelSource) -> tuple[str, ...]:
    return (f"--code {source.code} isn't needed: the file holds the network itself",) if source.code else ()


def _evaluating(network: Network) -> Network:
    """Put a network into evaluation mode and take it out of wrappers for several devices."""
    import torch

    module, notes = network.original, list(network.notes)
    if isinstance(module, (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)):
        notes.append(f"taken out of its {type(module).__name__} wrapper")
        module = module.module
    # Frozen TorchScript has no modes left.
    if not isinstance(module, torch.jit.ScriptModule) or hasattr(module, "training"):
        if module.training and network.own_mode:
            notes.append("the model is used in evaluation mode; it was saved in training mode")
        module.eval()
        stubborn = [name or "the model" for name, m in module.named_modules() if getattr(m, "training", False)]
        if stubborn:
            notes.append(f"stays in training mode although asked not to: {', '.join(stubborn[:5])}")
    return dataclasses.replace(network, original=module, notes=tuple(notes))


def _flattened(
    network: Network,
    source: ModelSource,
    what: str,
    sample: Mapping[str, Array] | None,
    dynamic_axes: Mapping[str, tuple[str, ...]] | None,
    signature: Signature | None,
) -> tuple[Flat, tuple[TensorSpec, ...], tuple[str, ...]]:
    from compress.load.flat import Flat, bind

    if network.flat is not None:
        notes = ("--input is not used: the exported program describes its inputs",) if source.inputs else ()
        return network.flat, network.inputs, notes
    left_out: tuple[str, ...] = ()
    if signature is not None:
        # Names of inputs that no parameter has were given by position when the signature was made.
        specs = tuple(InputSpec(s.name, s.dtype, s.shape) for s in signature.inputs)
    elif source.inputs:
        specs = parse_inputs(source.inputs)
    elif sample:
        taken, left_out = _taken(network.original, sample)
        specs = _specs_of(taken, dynamic_axes or {})
    else:
        raise ModelError(
            f"Nothing tells what inputs {what} takes.",
            "Give --input, such as --input 1x3x224x224 or --input ids:int64:1xseq, or --data.",
        )
    binding = bind(network.original, specs, what)
    inputs = tuple(TensorSpec(n, s.dtype, s.shape) for n, s in zip(binding.names, specs, strict=True))
    return Flat(network.original, binding), inputs, left_out


def _taken(module: nn.Module, sample: Mapping[str, Array]) -> tuple[Mapping[str, Array], tuple[str, ...]]:
    """Leave out token types where ``forward`` has no such parameter: tokenizers make them for every model."""
    from compress.load.flat import parameters_of

    if "token_type_ids" not in sample:
        return sample, ()
    if any(p.name == "token_type_ids" or p.kind is p.VAR_KEYWORD for p in parameters_of(module)):
        return sample, ()
    kept = {name: array for name, array in sample.items() if name != "token_type_ids"}
    return kept, ("The data's token_type_ids are left out: the model takes none.",)


def _specs_of(sample: Mapping[str, Array], dynamic_axes: Mapping[str, tuple[str, ...]]) -> tuple[InputSpec, ...]:
    specs = []
    for name, value in sample.items():
        array = np.asarray(value)
        named = dict(enumerate(dynamic_axes.get(name, ()), start=1))
        shape: tuple[Dim, ...] = (BATCH, *(named.get(axis) or array.shape[axis] for axis in range(1, array.ndim)))
        specs.append(InputSpec("" if name.isdigit() else name, array.dtype.name, shape))
    return tuple(specs)
