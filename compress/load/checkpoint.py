"""From what a file of weights holds to a network with exactly these weights: choosing, unwrapping, strict loading."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from compress.errors import ModelError

_KEYS = (
    "state_dict", "model_state_dict", "model_state", "model", "net", "network", "module", "params", "weights",
    "ema_state_dict", "state_dict_ema", "model_ema", "ema_model", "ema", "params_ema",
)  # fmt: skip
"""Where training scripts put the weights, in the order they are looked for: plain weights before averaged ones."""

_PREFIXES = ("module.", "model.", "_orig_mod.", "net.")
"""What wrappers put before every key: DataParallel, Lightning, torch.compile, and home-made ones."""

_SHOWN = 5


def is_state_dict(value: Any) -> bool:
    """Whether a value is a mapping of names to tensors (a few entries of extra state allowed)."""
    if not isinstance(value, Mapping) or not value:
        return False
    return all(isinstance(k, str) for k in value) and all(
        isinstance(v, torch.Tensor) or k.endswith("_extra_state") for k, v in value.items()
    )


def choose(path: Path, value: Any) -> tuple[nn.Module | Mapping[str, Any], str, tuple[str, ...]]:
    """Find the weights or the module in what a file holds.

    Returns:
        The module or state_dict; the kind of file (``module``, ``state_dict``, ``checkpoint``); notes on the choice.

    Raises:
        ModelError: There are none, or several and no way to tell which.
    """
    if isinstance(value, nn.Module):
        return value, "module", ()
    if is_state_dict(value):
        return value, "state_dict", ()
    if not isinstance(value, Mapping):
        raise ModelError(f"{path} holds a {type(value).__name__}, neither a network nor weights.")
    found = _candidates(value)
    if not found:
        keys = ", ".join(map(str, list(value)[:12])) or "nothing"
        raise ModelError(f"{path} holds no weights: its keys are {keys}.", f"Known keys are {', '.join(_KEYS)}.")
    known = [key for key in _KEYS if key in found]
    if not known and len(found) > 1:
        raise ModelError(
            f"{path} holds several sets of weights ({', '.join(found)}), and none has a known name.",
            "Save the one you mean as a state_dict of its own.",
        )
    key = known[0] if known else next(iter(found))
    others = [k for k in found if k != key]
    also = f"; the file also holds weights under {', '.join(map(repr, others))}" if others else ""
    return found[key], "checkpoint", (f"weights taken from {key!r} of the checkpoint{also}",)


def fill(path: Path, weights: Mapping[str, Any], network: nn.Module, text: str) -> tuple[str, ...]:
    """Load weights into a network strictly, in place.

    A wrapper's prefix is dropped where it is on every key and the network's own names fit better without it.

    Args:
        path: The file, for messages.
        weights: Tensors by name.
        network: The network to fill.
        text: What made the network, for messages.

    Returns:
        Notes: the prefix dropped, element types changed.

    Raises:
        ModelError: A key is missing or unexpected, or a tensor has another shape; all are counted, the first few named.
    """
    own = network.state_dict()
    prefix = _prefix(list(weights), set(own))
    renamed = {key[len(prefix) :]: value for key, value in weights.items()}
    reshaped = [
        f"{key} {list(value.shape)} (needs {list(own[key].shape)})"
        for key, value in renamed.items()
        if key in own and isinstance(value, torch.Tensor) and isinstance(own[key], torch.Tensor)
        and value.shape != own[key].shape
    ]  # fmt: skip
    missing, unexpected = [k for k in own if k not in renamed], [k for k in renamed if k not in own]
    if not reshaped:
        # torch knows old layouts (BatchNorm without a counter), so its word counts on what is missing.
        metadata = getattr(weights, "_metadata", None)
        if metadata is not None and not prefix:
            renamed = _with_metadata(renamed, metadata)
        try:
            result = network.load_state_dict(renamed, strict=False)
        except RuntimeError as error:
            raise ModelError(f"{path} doesn't fit {text}: {str(error).strip().splitlines()[-1].strip()}.") from error
        tied = {_place(v) for k, v in own.items() if k in renamed and isinstance(v, torch.Tensor)}
        missing = [
            k for k in result.missing_keys if not isinstance(own.get(k), torch.Tensor) or _place(own[k]) not in tied
        ]
        unexpected = list(result.unexpected_keys)
    lists = (("missing", missing), ("unexpected", unexpected), ("of another shape", reshaped))
    wrong = [f"{len(items)} {what} ({_first(items)})" for what, items in lists if items]
    if wrong:
        raise ModelError(
            f"{path} doesn't fit {text}: {len(weights)} keys against the network's {len(own)}; {', '.join(wrong)}.",
            "Name the code that the weights were trained with.",
        )
    notes = [f"prefix {prefix!r} dropped from every key"] if prefix else []
    return (*notes, *_changed_types(own, renamed))


def _candidates(value: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, item in value.items():
        if isinstance(item, nn.Module) or is_state_dict(item):
            found[str(key)] = item
        elif isinstance(item, Mapping):
            inner = {k: v for k, v in item.items() if k in _KEYS and (isinstance(v, nn.Module) or is_state_dict(v))}
            if inner:
                found[str(key)] = inner[next(k for k in _KEYS if k in inner)]
    return found


def _prefix(keys: list[str], own: set[str]) -> str:
    """Return the wrappers' prefix after whose removal most keys fit; the shortest where several fit as well."""
    best, prefix = "", ""
    fits = len(own.intersection(keys))
    while True:
        step = next((p for p in _PREFIXES if keys and all(k.startswith(prefix + p) for k in keys)), "")
        if not step:
            return best
        prefix += step
        now = len(own.intersection(k[len(prefix) :] for k in keys))
        if now > fits:
            best, fits = prefix, now


def _with_metadata(weights: dict[str, Any], metadata: Any) -> dict[str, Any]:
    ordered = OrderedDict(weights)
    ordered._metadata = metadata  # type: ignore[attr-defined]
    return ordered


def _place(tensor: torch.Tensor) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    return tensor.data_ptr(), tuple(tensor.shape), tensor.stride()


def _changed_types(own: Mapping[str, Any], loaded: Mapping[str, Any]) -> list[str]:
    changed = {
        (str(v.dtype).removeprefix("torch."), str(own[k].dtype).removeprefix("torch."))
        for k, v in loaded.items()
        if isinstance(v, torch.Tensor) and isinstance(own.get(k), torch.Tensor) and v.dtype != own[k].dtype
    }
    return [f"weights stored as {stored} are used as {used}" for stored, used in sorted(changed)]


def _first(items: list[str]) -> str:
    more = f", … {len(items) - _SHOWN} more" if len(items) > _SHOWN else ""
    return ", ".join(items[:_SHOWN]) + more
