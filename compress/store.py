"""The run folder: atomic writes, cached stages, resume, lock, manifest."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from compress.artifact import Artifact, sha256_of
from compress.atomic import write_text
from compress.errors import StageError, UsageError

_STATE = ".run.json"
_LOCK = ".lock"
_OWN = frozenset({_STATE, _LOCK, "stages", "steps", "artifacts", "log.txt", "recipe.yaml", "preprocess.yaml"}) | {
    "report.html",
    "report.md",
    "results.json",
    "manifest.json",
}


def digest(value: Any) -> str:
    """Return a SHA-256 over the JSON form of ``value``; equal values have equal digests."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


class RunFolder:
    """One run's folder, locked while it is open.

    Stages are cached by what goes into them, so that a killed run goes on where it was and shared prefixes of variants
    run once. Nothing appears under a final name before it is whole.

    Attributes:
        path: The folder.
        resumed: Whether an unfinished run of the same recipe was found in it.
    """

    def __init__(self, path: Path, recipe_digest: str, *, force: bool = False) -> None:
        self.path = path
        self._lock = FileLock(path / _LOCK, timeout=0)
        state = _check(path, recipe_digest, force=force)
        self.resumed = state is not None and state["recipe"] == recipe_digest and not state["finished"]
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._lock.acquire()
        except Timeout as error:
            raise UsageError(f"Another run is using {path}.", "Wait for it, or choose another --out.") from error
        except OSError as error:
            raise StageError(f"The run folder {path} cannot be written: {error.strerror}.") from error
        try:
            self._clean()
            self._mark(recipe_digest, finished=False)
        except BaseException:
            self._lock.release()
            raise
        self._recipe = recipe_digest

    def close(self) -> None:
        """Release the lock."""
        self._lock.release()

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def stage(self, key: Any, make: Callable[[Path], Artifact]) -> tuple[Artifact, bool]:
        """Return the artifact that ``make`` makes in a folder it is given, from the cache where it was made before.

        Args:
            key: All that decides the result; JSON-ready.
            make: Leaves the artifact's files in the folder; whatever else it leaves in ``scratch`` is removed.

        Returns:
            The artifact and whether it came from the cache.
        """
        folder = self.path / "stages" / digest(key)[:20]
        cached = _read_stage(folder)
        if cached is not None:
            return cached, True
        work = folder.with_name(f".part-{folder.name}")
        _remove(work)
        _remove(folder)
        work.mkdir(parents=True)
        try:
            artifact = make(work)
            _remove(work / "scratch")
            record = artifact.to_json()
            record["path"] = artifact.path.name
            record["side_files"] = [p.name for p in artifact.side_files]
            write_text(work / "stage.json", json.dumps({"key": key, "artifact": record}, indent=1, default=str))
        except BaseException:
            _remove(work)
            raise
        work.replace(folder)
        made = _read_stage(folder)
        if made is None:
            raise StageError(f"The stage in {folder} was changed while it was written.", "Run the same command again.")
        return made, False

    def step(self, key: Any, compute: Callable[[], Any]) -> tuple[Any, bool]:
        """Return the JSON-ready result of ``compute``, from the cache where the same key was computed before."""
        file = self.path / "steps" / f"{digest(key)[:20]}.json"
        with contextlib.suppress(OSError, ValueError):
            return json.loads(file.read_text(encoding="utf-8"))["result"], True
        result = compute()
        file.parent.mkdir(exist_ok=True)
        write_text(file, json.dumps({"key": key, "result": result}, default=str))
        return result, False

    def publish(self, artifact: Artifact, name: str) -> Artifact:
        """Put an artifact's files under ``artifacts/<name>.*`` and return it at its new place."""
        folder = self.path / "artifacts"
        folder.mkdir(exist_ok=True)
        main = folder / f"{name}{artifact.path.suffix}"
        side = tuple(folder / (name + p.name.removeprefix(artifact.path.stem)) for p in artifact.side_files)
        for source, goal in zip(artifact.files, (main, *side), strict=True):
            _link(source, goal)
        if side and artifact.path.suffix == ".onnx":
            _relocate(main, {p.name: s.name for p, s in zip(artifact.side_files, side, strict=True)})
        record = artifact.to_json()
        record |= {"path": str(main), "side_files": [str(p) for p in side], "sha256": sha256_of(main, *side)}
        return Artifact.from_json(record)

    def unpublish(self) -> None:
        """Remove what an earlier run under ``--force`` left in ``artifacts`` and the reports."""
        _remove(self.path / "artifacts")
        for name in ("report.html", "report.md", "results.json", "manifest.json"):
            (self.path / name).unlink(missing_ok=True)

    def finish(self) -> Path:
        """Write the manifest of every file, size in bytes and SHA-256, and mark the run as finished."""
        files = {
            str(p.relative_to(self.path).as_posix()): {"size_bytes": p.stat().st_size, "sha256": sha256_of(p)}
            for p in sorted(self.path.rglob("*"))
            if p.is_file() and p.name not in (_LOCK, _STATE, "manifest.json", "log.txt")
        }
        manifest = self.path / "manifest.json"
        write_text(manifest, json.dumps({"files": files}, indent=1, ensure_ascii=False))
        self._mark(self._recipe, finished=True)
        return manifest

    def _mark(self, recipe_digest: str, *, finished: bool) -> None:
        write_text(self.path / _STATE, json.dumps({"recipe": recipe_digest, "finished": finished}))

    def _clean(self) -> None:
        """Remove what a killed run left half-way."""
        for leftover in (*self.path.glob("stages/.part-*"), *self.path.rglob(".*.tmp")):
            _remove(leftover)


def require_space(folder: Path, size_bytes: int) -> None:
    """Check that there is room to write; else raise ``StageError`` with the path and the space needed."""
    free = shutil.disk_usage(folder).free
    if free < size_bytes:
        raise StageError(
            f"Not enough space in {folder}: {size_bytes / 1e6:.0f} MB may be needed, {free / 1e6:.0f} MB are free.",
            "Make room, or choose another --out.",
        )


def next_folder(parent: Path, model: str, recipe_digest: str) -> Path:
    """Return ``<parent>/<model>-<n>``: the last unfinished run of the same recipe, else the first free number."""
    stem = "".join(c if c.isalnum() or c in "._-" else "-" for c in model).strip("-.") or "model"
    number = 1
    while True:
        folder = parent / f"{stem}-{number}"
        state = read_state(folder)
        if state is not None and state["recipe"] == recipe_digest and not state["finished"] and not _locked(folder):
            return folder
        if not folder.exists():
            return folder
        number += 1


def read_state(folder: Path) -> dict[str, Any] | None:
    """Return a run folder's state (``recipe`` digest, ``finished``); None where it isn't one."""
    try:
        state = json.loads((folder / _STATE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return state if isinstance(state, dict) and {"recipe", "finished"} <= state.keys() else None


def _locked(folder: Path) -> bool:
    lock = FileLock(folder / _LOCK, timeout=0)
    try:
        with lock:
            return False
    except (Timeout, OSError):
        return True


def _check(path: Path, recipe_digest: str, *, force: bool) -> dict[str, Any] | None:
    """Refuse a folder that isn't ours to write, before any work."""
    if not path.exists():
        return None
    if not path.is_dir():
        raise UsageError(f"--out {path} is a file.", "Name a folder.")
    state = read_state(path)
    foreign = sorted(p.name for p in path.iterdir() if p.name not in _OWN)
    if state is None and (foreign or any(path.iterdir())):
        raise UsageError(f"--out {path} is not empty and holds no run of compress.", "Choose another folder.")
    if state is not None and not force:
        if state["finished"]:
            raise UsageError(f"{path} holds a finished run.", "Choose another --out, or --force to measure again.")
        if state["recipe"] != recipe_digest:
            raise UsageError(
                f"{path} holds an unfinished run of another recipe.", "Choose another --out, or --force to replace it."
            )
    return state


def _read_stage(folder: Path) -> Artifact | None:
    """Return the cached artifact if all of its files are there, unchanged."""
    try:
        record: Mapping[str, Any] = json.loads((folder / "stage.json").read_text(encoding="utf-8"))["artifact"]
        placed = {
            **record,
            "path": str(folder / record["path"]),
            "side_files": [str(folder / n) for n in record["side_files"]],
        }
        artifact = Artifact.from_json(placed)
        return artifact if sha256_of(*artifact.files) == artifact.sha256 else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _link(source: Path, goal: Path) -> None:
    part = goal.with_name(f".{goal.name}.tmp")
    part.unlink(missing_ok=True)
    try:
        try:
            os.link(source, part)
        except OSError:
            shutil.copyfile(source, part)
        part.replace(goal)
    except OSError as error:
        size = source.stat().st_size / 1e6
        raise StageError(f"{goal} cannot be written ({size:.1f} MB): {error.strerror or error}.") from error


def _relocate(path: Path, renamed: Mapping[str, str]) -> None:
    """Point an ONNX file's external data at the side files' new names."""
    import onnx

    model = onnx.load(path, load_external_data=False)
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = renamed.get(entry.value, entry.value)
    part = path.with_name(f".{path.name}.tmp")
    onnx.save(model, part)
    part.replace(path)


def _remove(path: Path) -> None:
    """Remove a file or folder; a failure is left for the next start, since what was made is whole."""
    with contextlib.suppress(OSError):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
