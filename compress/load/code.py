"""Architectures: the user's own code, an installed package, torchvision or timm. Nothing here downloads weights."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import importlib
import importlib.machinery
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

from compress.errors import ModelError, UsageError

if TYPE_CHECKING:
    from torch import nn

FORMS = "FILE.py:factory, package.module:factory, torchvision:NAME or timm:NAME"
_MARK = (
    "__compress_folder__"  # set on modules that came from a user's folder, so that the next folder's can replace them
)


@dataclasses.dataclass(frozen=True)
class CodeSpec:
    """Where an architecture comes from.

    Attributes:
        text: As the user wrote it.
        origin: ``file``, ``package``, ``torchvision`` or ``timm``.
        target: The file, the module's dotted name, or the library.
        factory: Function or class that makes the network, or the model's name; empty where only the file was named.
    """

    text: str
    origin: Literal["file", "package", "torchvision", "timm"]
    target: str
    factory: str

    @property
    def file(self) -> Path | None:
        """The user's file; None for the other origins."""
        return Path(self.target) if self.origin == "file" else None


def parse_code(text: str) -> CodeSpec:
    """Read ``--code``.

    Raises:
        UsageError: It has none of the four forms.
    """
    if text.endswith(".py"):
        return CodeSpec(text, "file", text, "")
    target, colon, factory = text.rpartition(":")
    if not colon or not target or not factory:
        raise UsageError(f"--code '{text}' names no factory.", f"Write {FORMS}.")
    if target.endswith(".py"):
        return CodeSpec(text, "file", target, factory)
    if target == "torchvision":
        return CodeSpec(text, "torchvision", target, factory)
    if target == "timm":
        return CodeSpec(text, "timm", target, factory)
    if re.fullmatch(r"[A-Za-z_]\w*(\.\w+)*", target):
        return CodeSpec(text, "package", target, factory)
    raise UsageError(f"--code '{text}' is neither a Python file nor a module.", f"Write {FORMS}.")


def is_architecture(text: str) -> bool:
    """Whether a MODEL argument is an architecture (``torchvision:resnet50``, ``net.py:factory``) and not a file."""
    if Path(text).exists():
        return False
    target, colon, factory = text.rpartition(":")
    return bool(colon and re.fullmatch(r"[\w.-]+", factory)) and (
        target.endswith(".py") or bool(re.fullmatch(r"[A-Za-z_]\w+(\.\w+)*", target))
    )


@dataclasses.dataclass(frozen=True)
class Architecture:
    """Loaded code that can build a network and knows the classes a pickle may refer to."""

    spec: CodeSpec
    module: ModuleType | None

    def build(self, seed: int) -> nn.Module:
        """Build the network, its random weights drawn from ``seed``; the global random state stays as it was.

        Raises:
            ModelError: The factory is missing, needs arguments, fails, or makes no module.
        """
        import torch

        factory = self._factory()
        with torch.random.fork_rng(), self._importable():
            torch.manual_seed(seed)
            try:
                made = factory()
            except Exception as error:
                raise ModelError(f"{self.spec.text} failed: {_said(error)}.") from error
        if not isinstance(made, torch.nn.Module):
            raise ModelError(f"{self.spec.text} must return a torch.nn.Module, not {type(made).__name__}.")
        return made

    def find(self, name: str) -> Any | None:
        """Return the class or function that a pickle calls ``module.name``, where this code defines it; else None."""
        if self.module is None or self.spec.origin not in ("file", "package"):
            return None
        wanted, _, member = name.rpartition(".")
        own = self._own_modules()
        for module in (own.get(wanted), self.module):
            found = getattr(module, member, None) if module is not None else None
            # What the code merely imported (os.system) is not its own.
            if (inspect.isclass(found) or inspect.isfunction(found)) and found.__module__ in own:
                return found
        return None

    def _own_modules(self) -> dict[str, ModuleType]:
        if self.module is None:
            return {}
        own = {self.module.__name__: self.module}
        root = self.module.__name__.partition(".")[0]
        for name, module in list(sys.modules.items()):
            marked = self.spec.file is not None and getattr(module, _MARK, None) == str(_folder(self.spec))
            if marked or (self.spec.origin == "package" and name.partition(".")[0] == root):
                own.setdefault(name, module)
        return own

    def _importable(self) -> contextlib.AbstractContextManager[None]:
        return _importable(_folder(self.spec)) if self.module is not None else contextlib.nullcontext()

    def _factory(self) -> Callable[[], Any]:
        if self.spec.origin == "torchvision":
            return _torchvision(self.spec.factory)
        if self.spec.origin == "timm":
            return _timm(self.spec.factory)
        if not self.spec.factory:
            raise UsageError(f"--code {self.spec.text} names no factory.", f"Write {self.spec.text}:FACTORY.")
        factory = getattr(self.module, self.spec.factory, None)
        if not callable(factory):
            known = ", ".join(_makers(self.module)) or "nothing that could"
            raise ModelError(f"{self.spec.target} has no factory '{self.spec.factory}'.", f"It defines: {known}.")
        try:
            needed = [
                p.name
                for p in inspect.signature(factory).parameters.values()
                if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
            ]
        except ValueError:  # built in C; the call will tell
            needed = []
        if needed:
            raise ModelError(
                f"{self.spec.text} needs arguments ({', '.join(needed)}), but a factory is called without any.",
                f"Add a function without arguments to {self.spec.target} that builds the network.",
            )
        result: Callable[[], Any] = factory
        return result


def load_code(text: str) -> Architecture:
    """Import what ``--code`` names. This runs the user's file; the user named it.

    A file is imported under its own stem, with its folder importable, so that its siblings are found and pickles that
    refer to it by that name, or to ``__main__``, resolve to it. A module of that name which Python already knows, or
    would find elsewhere, keeps its place.

    Raises:
        UsageError: The text has none of the known forms.
        ModelError: The file or module is missing or cannot be imported.
    """
    spec = parse_code(text)
    if spec.origin == "file":
        return Architecture(spec, _import_file(Path(spec.target)))
    if spec.origin == "package":
        with _importable(Path.cwd()):
            try:
                return Architecture(spec, importlib.import_module(spec.target))
            except (Exception, SystemExit) as error:
                raise ModelError(f"Module {spec.target} of --code cannot be imported: {_said(error)}.") from error
    return Architecture(spec, None)


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ModelError(f"The code file {path} doesn't exist.", "Check the path of --code.")
    name = path.stem
    loader_spec = importlib.util.spec_from_file_location(name, path.resolve())
    if loader_spec is None or loader_spec.loader is None:
        raise ModelError(f"{path} is no Python file.")
    module = importlib.util.module_from_spec(loader_spec)
    with _importable(path.resolve().parent):
        former = sys.modules.get(name)
        sys.modules[name] = module
        try:
            loader_spec.loader.exec_module(module)
        except (Exception, SystemExit) as error:
            raise ModelError(f"{path} cannot be imported: {_said(error)}.") from error
        finally:
            if former is not None and not hasattr(former, _MARK):
                sys.modules[name] = former
    setattr(module, _MARK, str(path.resolve().parent))
    return module


def is_users_module(name: str) -> bool:
    """Whether a module that is loaded now came from a user's file, and not from what is installed."""
    return hasattr(sys.modules.get(name), _MARK)


@contextlib.contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Let imports find ``folder`` first, as they do when a script in it is run; leave no trace but its own modules."""
    for name, module in list(sys.modules.items()):
        if getattr(module, _MARK, str(folder)) != str(folder):
            del sys.modules[name]  # another network's folder: its layers.py must not stand in for this one's
    before = set(sys.modules)
    writes = sys.dont_write_bytecode
    sys.path.insert(0, str(folder))
    sys.dont_write_bytecode = True  # no __pycache__ beside the user's files
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.dont_write_bytecode = writes
        with contextlib.suppress(ValueError):
            sys.path.remove(str(folder))
        for name in set(sys.modules) - before:
            module = sys.modules[name]
            file = getattr(module, "__file__", None)
            if not file or folder not in Path(file).parents or "site-packages" in Path(file).parts:
                continue
            setattr(module, _MARK, str(folder))
            if _found_elsewhere(name.partition(".")[0], folder):
                del sys.modules[name]


def _found_elsewhere(name: str, folder: Path) -> bool:
    if name in sys.builtin_module_names:
        return True
    spec = importlib.machinery.PathFinder.find_spec(name)
    return spec is not None and spec.origin is not None and folder not in Path(spec.origin).resolve().parents


def _folder(spec: CodeSpec) -> Path:
    return Path(spec.target).resolve().parent if spec.origin == "file" else Path.cwd()


def _torchvision(name: str) -> Callable[[], Any]:
    try:
        from torchvision import models
    except ImportError as error:
        raise ModelError(
            f"torchvision:{name} needs the package torchvision.", "Install compress-pipeline[vision]."
        ) from error
    known: list[str] = models.list_models()
    if name not in known:
        raise ModelError(f"torchvision has no model '{name}'.", _close(name, known))
    builder = models.get_model_builder(name)
    # Detection and segmentation models download a backbone by default.
    settings = {k: None for k in ("weights", "weights_backbone") if k in inspect.signature(builder).parameters}
    return lambda: builder(**settings)


def _timm(name: str) -> Callable[[], Any]:
    try:
        import timm
    except ImportError as error:
        raise ModelError(f"timm:{name} needs the package timm.", "Install compress-pipeline[vision].") from error
    if not timm.is_model(name):
        raise ModelError(f"timm has no model '{name}'.", _close(name, timm.list_models()))
    return lambda: timm.create_model(name, pretrained=False)


def _close(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=4)
    return f"Close: {', '.join(close)}." if close else ""


def _makers(module: ModuleType | None) -> list[str]:
    return [
        name
        for name, value in vars(module).items()
        if (inspect.isclass(value) or inspect.isfunction(value))
        and module is not None
        and value.__module__ == module.__name__
        and not name.startswith("_")
    ]


def _said(error: BaseException) -> str:
    first = next(iter(str(error).strip().splitlines()), "").rstrip(".")
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
