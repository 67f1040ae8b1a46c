import textwrap

import numpy as np
import pytest

from compress.data.open import open_dataset
from compress.data.preprocess import PRESETS
from compress.errors import DataError, UsageError

X = np.arange(40, dtype=np.float32).reshape(10, 4)

HEAD = """
import numpy as np
X = np.arange(40, dtype=np.float32).reshape(10, 4)
Y = np.arange(10) % 2
"""


def opened(path, body, **options):
    (path / "mine.py").write_text(HEAD + textwrap.dedent(body))
    return open_dataset(f"{path / 'mine.py'}:make", None, **options)


def check_all(dataset, labelled=True, key="0"):
    assert len(dataset) == 10
    for size, counts in ((4, [4, 4, 2]), (1, [1] * 10), (100, [10])):
        batches = list(dataset.batches(size))
        assert [b.count for b in batches] == counts
        np.testing.assert_array_equal(np.concatenate([b.inputs[key] for b in batches]), X)
        if labelled:
            np.testing.assert_array_equal(np.concatenate([b.targets for b in batches]), np.arange(10) % 2)
        else:
            assert batches[0].targets is None


@pytest.mark.parametrize(
    "body",
    [
        "def make(): return [(X[i:i+3], Y[i:i+3]) for i in range(0, 10, 3)]",
        "def make():\n    for i in range(0, 10, 3): yield X[i:i+3], Y[i:i+3]",
        "def make(): return X, Y",
        "def make(): return [(x, int(y)) for x, y in zip(X, Y)]",
        "def make(): return [[X, Y[:, None]]]",
    ],
)
def test_labelled_batches_in_many_shapes(tmp_path, body):
    check_all(opened(tmp_path, body))


@pytest.mark.parametrize(
    "body", ["def make(): return [X[:3], X[3:]]", "def make(): return X", "def make(): yield (X,)"]
)
def test_unlabelled_batches(tmp_path, body):
    check_all(opened(tmp_path, body), labelled=False)


def test_dicts_bind_by_name(tmp_path):
    check_all(opened(tmp_path, "def make(): return [{'a': X, 'labels': Y, 'b': X}]"), key="a")
    check_all(opened(tmp_path, "def make(): return [({'a': X, 'b': X}, Y)]"), key="b")
    check_all(opened(tmp_path, "def make(): return {'a': X, 'y': Y}"), key="a")


def test_several_inputs_by_position(tmp_path):
    batch = next(opened(tmp_path, "def make(): return [((X, Y), Y)]").batches(10))
    assert list(batch.inputs) == ["0", "1"]


@pytest.mark.parametrize(
    "made",
    [
        "TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))",
        "DataLoader(TensorDataset(torch.from_numpy(X), torch.from_numpy(Y)), batch_size=3)",
    ],
)
def test_torch_data_sets_and_loaders(tmp_path, made):
    pytest.importorskip("torch")
    head = "import torch\nfrom torch.utils.data import DataLoader, TensorDataset\n"
    check_all(opened(tmp_path, f"{head}def make(): return {made}"))


def test_subset_is_balanced_in_the_loaders_order(tmp_path):
    body = "def make(): return [(X[:3], Y[:3]), (X[3:], Y[3:])]"
    dataset = opened(tmp_path, body)
    part = dataset.subset(4, seed=3)
    batch = next(part.batches(10))
    np.testing.assert_array_equal(np.bincount(batch.targets), [2, 2])
    rows = (batch.inputs["0"][:, 0] / 4).astype(int)
    assert (np.diff(rows) > 0).all()
    np.testing.assert_array_equal(batch.targets, rows % 2)
    assert part.fingerprint() != dataset.fingerprint()
    assert opened(tmp_path, body).fingerprint() == dataset.fingerprint()
    assert [b.count for b in part.batches(3, 2)] == [2]


def test_varying_lengths_are_not_mixed_in_a_batch(tmp_path):
    dataset = opened(tmp_path, "def make(): return [np.ones((3, 5), int), np.ones((2, 7), int)]")
    assert dataset.dynamic_axes == {"0": ("sequence",)}
    assert [b.inputs["0"].shape for b in dataset.batches(2)] == [(2, 5), (1, 5), (2, 7)]


def test_shuffling_is_pointed_out_once(tmp_path, told):
    body = """
    random = np.random.default_rng(0)
    def make():
        order = random.permutation(10)
        yield X[order], Y[order]
    """
    dataset = opened(tmp_path, body, progress=told)
    list(dataset.batches(10))
    list(dataset.batches(10))
    assert len(told.warnings) == 1
    assert "other batches on every pass" in told.warnings[0]


def test_preprocess_settings_are_said_not_to_apply(tmp_path, told):
    (tmp_path / "mine.py").write_text(HEAD + "def make(): return [X]")
    open_dataset(f"{tmp_path / 'mine.py'}:make", PRESETS["cifar10"], progress=told)
    assert "aren't applied" in told.lines[0]


def test_modules_beside_the_file_can_be_imported(tmp_path):
    (tmp_path / "my_sibling_arrays.py").write_text("import numpy as np\nA = np.ones((2, 3))\n")
    assert len(opened(tmp_path, "from my_sibling_arrays import A\ndef make(): return [A]")) == 2


@pytest.mark.parametrize(
    ("body", "error", "message"),
    [
        ("def other(): pass", UsageError, "no function 'make'"),
        ("1 / 0", DataError, "failed on import: ZeroDivisionError"),
        ("def make(): raise OSError('disk gone')", DataError, "failed: OSError: disk gone"),
        ("def make():\n    yield X\n    raise OSError('later')", DataError, "failed: OSError: later"),
        ("def make(): return 3", DataError, "returns a int"),
        ("def make(): return [(X, Y, Y)]", DataError, "tuple of 3, not \\(inputs, targets\\)"),
        ("def make(): return [(X, Y[:3])]", DataError, "0 10, targets 3"),
        ("def make(): return ['text']", DataError, "str, not an array of numbers"),
        ("def make(): return [{'y': Y}]", DataError, "no inputs"),
        ("def make(): return [(X, Y), X]", DataError, "targets for 10 of 20"),
    ],
)
def test_unusable_factories_are_named(tmp_path, body, error, message):
    with pytest.raises(error, match=message) as caught:
        opened(tmp_path, body)
    assert "mine.py" in str(caught.value)


def test_missing_file_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"No Python file at .*nowhere\.py"):
        open_dataset(f"{tmp_path}/nowhere.py:make", None)
