import numpy as np
import pytest

from compress.artifact import Signature, TensorSpec
from compress.data.base import Batch
from compress.data.bind import bind
from compress.errors import DataError

IMAGES = np.zeros((2, 3, 8, 8), np.float32)


def signature(**inputs):
    return Signature(tuple(TensorSpec(n, t, s) for n, (t, s) in inputs.items()))


IMAGE = signature(pixels=("float32", ("batch", 3, 8, 8)))


@pytest.mark.parametrize("name", ["0", "x", "pixels"])
def test_a_single_array_goes_to_a_single_input(name):
    assert bind(Batch({name: IMAGES}, None, 2), IMAGE)["pixels"] is IMAGES


def test_names_win_over_order_and_positions_bind_in_order():
    two = signature(a=("float32", ("batch", 2)), b=("float32", ("batch", 2)))
    first, second = np.zeros((3, 2), np.float32), np.ones((3, 2), np.float32)
    assert bind({"b": second, "a": first}, two)["a"] is first
    bound = bind({"1": second, "0": first}, two)
    assert list(bound) == ["a", "b"]
    assert bound["a"] is first


def test_tokens_bind_by_name_or_in_their_usual_order_and_surplus_is_left_out():
    tokens = {n: np.full((2, 5), i) for i, n in enumerate(("input_ids", "attention_mask", "token_type_ids"))}
    shape = ("int64", ("batch", "sequence"))
    assert list(bind(tokens, signature(attention_mask=shape, input_ids=shape))) == ["attention_mask", "input_ids"]
    bound = bind(tokens, signature(ids=shape, mask=shape))
    assert [a[0, 0] for a in bound.values()] == [0, 1]


@pytest.mark.parametrize(
    ("have", "want"),
    [("int32", "int64"), ("int64", "int32"), ("float64", "float32"), ("float32", "float16"), ("bool", "int64"),
     ("uint8", "int64"), ("float16", "float32"), ("bool", "float32")],
)  # fmt: skip
def test_types_that_hold_the_values_are_converted(have, want):
    bound = bind({"x": np.array([[0, 1]], have)}, signature(x=(want, ("batch", 2))))["x"]
    assert bound.dtype.name == want
    assert bound.tolist() == [[0, 1]]


def test_bfloat16_inputs():
    pytest.importorskip("ml_dtypes")
    bound = bind({"x": np.array([[0.5]], np.float32)}, signature(x=("bfloat16", ("batch", 1))))["x"]
    assert bound.dtype.name == "bfloat16"
    assert float(bound[0, 0]) == 0.5


@pytest.mark.parametrize(
    ("array", "want", "message"),
    [
        (np.array([[2**40]]), "int32", "from 1099511627776"),
        (np.array([[1e6]], np.float32), "float16", "1e\\+06"),
        (np.array([[200]], np.uint8), "float32", "takes float32, the data is uint8.*preprocess 'none'"),
        (np.array([[1.5]], np.float32), "int64", "takes int64, the data is float32"),
    ],
)
def test_types_that_lose_values_are_refused(array, want, message):
    with pytest.raises(DataError, match=message):
        bind({"x": array}, signature(x=(want, ("batch", 1))))


@pytest.mark.parametrize(
    ("shape", "hint"),
    [
        ((2, 8, 8, 3), "layout: NCHW"),
        ((2, 3, 9, 8), r"resize: \[8, 8\]"),
        ((2, 1, 8, 8), "channels"),
        ((2, 3, 64), "number of axes"),
    ],
)
def test_wrong_shapes_show_both_and_a_way_out(shape, hint):
    with pytest.raises(DataError, match=hint) as caught:
        bind({"x": np.zeros(shape, np.float32)}, IMAGE)
    assert "[batch, 3, 8, 8]" in str(caught.value)
    assert f"[{', '.join(map(str, shape))}]" in str(caught.value)


def test_channels_last_models_get_their_own_hints():
    last = signature(x=("float32", ("batch", 6, 8, 3)))
    with pytest.raises(DataError, match="layout: NHWC"):
        bind({"x": np.zeros((2, 3, 6, 8), np.float32)}, last)
    with pytest.raises(DataError, match=r"resize: \[6, 8\]"):
        bind({"x": np.zeros((2, 9, 9, 3), np.float32)}, last)


def test_fixed_batch_and_unequal_symbols():
    with pytest.raises(DataError, match="batches of 1 only"):
        bind({"x": IMAGES}, signature(x=("float32", (1, 3, 8, 8))))
    two = signature(a=("float32", ("batch", 2)), b=("float32", ("batch", 2)))
    with pytest.raises(DataError, match="differ in size along 'batch': 3 and 4"):
        bind({"a": np.zeros((3, 2), np.float32), "b": np.zeros((4, 2), np.float32)}, two)


@pytest.mark.parametrize("names", [("a",), ("a", "c"), ("a", "b", "c"), ("0", "2")])
def test_names_that_do_not_match_are_listed(names):
    two = signature(a=("float32", ("batch", 2)), b=("float32", ("batch", 2)))
    with pytest.raises(DataError, match=r"the model takes 2 inputs \(a, b\)") as caught:
        bind({n: np.zeros((3, 2), np.float32) for n in names}, two)
    assert ", ".join(names) in str(caught.value)
