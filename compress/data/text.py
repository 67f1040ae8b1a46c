"""Pairs of sentences with a similarity: ``.csv``, ``.tsv`` and ``.jsonl``."""

from __future__ import annotations

import csv
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from compress.artifact import sha256_of
from compress.data.base import Array
from compress.data.preprocess import TextPreprocess
from compress.data.screen import BadSample
from compress.errors import DataError, UsageError

TENSORS = ("input_ids", "attention_mask", "token_type_ids")
"""What a batch of text holds, in the order in which Hugging Face's encoders take them. All int64 [rows, tokens]."""

_FIRST = ("sentence1", "text1", "text_a", "premise")
_SECOND = ("sentence2", "text2", "text_b", "hypothesis")
_SCORE = ("score", "similarity", "similarity_score", "label")


class TextSource:
    """Pairs of sentences in file order; a batch has all first sentences, then all second ones (two views).

    The file has a header (``sentence1``, ``sentence2`` and, where known, ``score``) or none: then the columns are in
    that order. ``.jsonl`` has these as keys. Rows are padded to the longest of both views.

    Args:
        path: The file.
        preprocess: Tokenizer and lengths.
        name: What to call it in messages.

    Raises:
        DataError: The file cannot be read or holds no pairs.
        UsageError: The package ``tokenizers`` isn't there, or the tokenizer's file is damaged.
    """

    def __init__(self, path: Path, preprocess: TextPreprocess, *, name: str = "") -> None:
        self.name = name or str(path)
        self.views = 2
        self.classes: tuple[str, ...] | None = None
        self._path = path
        self._preprocess = preprocess
        self._tokenizer, self._fill = _tokenizer(preprocess)
        self._rows = _read_rows(path, self.name)
        if not self._rows:
            raise DataError(f"{self.name}: 0 pairs of sentences found, at least 1 wanted.")
        fixed = preprocess.padding == "max"
        self.dynamic_axes: Mapping[str, tuple[str, ...]] = {} if fixed else dict.fromkeys(TENSORS, ("sequence",))
        scores = [r.score for r in self._rows]
        self.labels: Array | None = None
        if any(s is not None for s in scores):
            self.labels = np.array([np.nan if s is None else s for s in scores], dtype=np.float32)
        self.task = "unknown" if self.labels is None else "pairs"

    def __len__(self) -> int:
        return len(self._rows)

    def where(self, index: int) -> str:
        """Return the line of the pair."""
        return f"{self.name}, line {self._rows[index].line}"

    def read(self, index: int) -> Mapping[str, Array]:
        """Return token ids, mask and types of the first (``0/…``) and second (``1/…``) sentence, unpadded."""
        row = self._rows[index]
        if row.problem:
            raise BadSample("unreadable", f"{self.where(index)} {row.problem}")
        sample: dict[str, Array] = {}
        for view, sentence in enumerate((row.first, row.second)):
            encoded = self._tokenizer.encode(sentence)
            for tensor, values in zip(TENSORS, (encoded.ids, encoded.attention_mask, encoded.type_ids), strict=True):
                sample[f"{view}/{tensor}"] = np.array(values, dtype=np.int64)
        return sample

    def collate(self, indices: Sequence[int], samples: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
        """Pad to the longest row of both views, or to ``max_length``."""
        length = self._preprocess.max_length
        if self._preprocess.padding == "longest":
            length = max(s[f"{view}/input_ids"].size for s in samples for view in (0, 1))
        padded: dict[str, Array] = {}
        for tensor in TENSORS:
            rows = np.full((2 * len(samples), length), self._fill[tensor], dtype=np.int64)
            for at, values in enumerate(s[f"{view}/{tensor}"] for view in (0, 1) for s in samples):
                rows[at, : values.size] = values
            padded[tensor] = rows
        return padded

    def digest(self) -> str:
        """Digest the contents of the file and the tokenizer, and the lengths."""
        content = sha256_of(self._path, Path(self._preprocess.tokenizer))
        settings = self._preprocess.model_dump_json(exclude={"tokenizer"})
        return hashlib.sha256(f"{content}\0{settings}".encode()).hexdigest()


class _Row:
    def __init__(self, line: int, cells: Sequence[Any], found: str = "") -> None:
        self.line = line
        self.first = self.second = self.problem = ""
        self.score: float | None = None
        texts = [c for c in cells[:2] if isinstance(c, str)]
        if len(texts) != 2 or len(cells) > 3:
            self.problem = f"holds {found or f'{len(cells)} column(s)'} instead of two sentences and a score"
            return
        self.first, self.second = texts
        if len(cells) == 3:
            try:
                self.score = float(cells[2])
            except (TypeError, ValueError):
                self.problem = f"has the score {cells[2]!r}, which is no number"


def _tokenizer(preprocess: TextPreprocess) -> tuple[Any, Mapping[str, int]]:
    """Return the tokenizer without padding, and what each tensor is to be padded with."""
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise UsageError(
            "Text needs the package tokenizers, which isn't installed.", "pip install 'compress-pipeline[text]'"
        ) from error
    try:
        library = Tokenizer.from_file(preprocess.tokenizer)
    except Exception as error:  # the package raises bare exceptions
        raise UsageError(f"Tokenizer {preprocess.tokenizer} cannot be read: {error}.") from error
    own = library.padding or {}
    named = (library.token_to_id(t) for t in ("[PAD]", "<pad>", "<|pad|>"))
    pad_id = own.get("pad_id", next((i for i in named if i is not None), 0))
    # The file's own settings (MiniLM's pads everything to 128) would make every row the same length.
    library.no_padding()
    library.enable_truncation(preprocess.max_length)
    return library, {"input_ids": pad_id, "attention_mask": 0, "token_type_ids": own.get("pad_type_id", 0)}


def _read_rows(path: Path, name: str) -> list[_Row]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            if path.suffix.lower() in (".jsonl", ".ndjson"):
                return _json_rows(file)
            return _table_rows(file, name, tabs=path.suffix.lower() == ".tsv")
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{name} cannot be read as UTF-8 text: {error}.") from error


def _json_rows(lines: Iterable[str]) -> list[_Row]:
    rows = []
    for line, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            entry = json.loads(text)
        except ValueError:
            entry = None
        if not isinstance(entry, dict):
            rows.append(_Row(line, (), "no JSON object"))
            continue
        cells = [next((entry[k] for k in keys if k in entry), None) for keys in (_FIRST, _SECOND, _SCORE)]
        rows.append(_Row(line, cells if cells[2] is not None else cells[:2], f"the keys {', '.join(entry)}"))
    return rows


def _table_rows(file: Iterable[str], name: str, *, tabs: bool) -> list[_Row]:
    # Tab-separated files of this kind hold lone quotation marks that mean nothing.
    reader = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE) if tabs else csv.reader(file, strict=True)
    rows: list[_Row] = []
    columns: list[int] | None = None
    last = 0
    for number, cells in enumerate(filter(None, reader)):
        line, last = last + 1, reader.line_num
        if number == 0:
            columns = _columns(cells, name)
            if columns is not None:
                continue
        if columns is not None:
            whole = len(cells) > max(columns)
            cells = [cells[c] for c in columns] if whole else cells[:1]
        rows.append(_Row(line, cells))
    return rows


def _columns(cells: Sequence[str], name: str) -> list[int] | None:
    """Return where a header has the two sentences and the score; None where the first row is no header."""
    lower = [c.strip().lower() for c in cells]
    found = [next((lower.index(k) for k in keys if k in lower), None) for keys in (_FIRST, _SECOND, _SCORE)]
    if found[0] is not None and found[1] is not None:
        return [c for c in found if c is not None]
    if len(cells) in (2, 3) and (len(cells) == 2 or _is_number(cells[2])):
        return None
    raise DataError(
        f"{name} has the columns {', '.join(cells)[:120]} in line 1, not two sentences and a score.",
        "Name them sentence1, sentence2, score in a header, or leave other columns out.",
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
