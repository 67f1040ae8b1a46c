"""Reading --input."""

from __future__ import annotations

import pytest

from compress.errors import UsageError
from compress.load.spec import InputSpec, parse_input, parse_inputs


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1x3x32x32", InputSpec("", "float32", ("batch", 3, 32, 32))),
        ("8x3x32x32", InputSpec("", "float32", ("batch", 3, 32, 32))),
        ("Nx3x32x32", InputSpec("", "float32", ("batch", 3, 32, 32))),
        ("5", InputSpec("", "float32", ("batch",))),
        ("float16:1x3x8x8", InputSpec("", "float16", ("batch", 3, 8, 8))),
        ("ids:1x128", InputSpec("ids", "float32", ("batch", 128))),
        ("ids:int64:1x128", InputSpec("ids", "int64", ("batch", 128))),
        ("ids:int64:1xseq", InputSpec("ids", "int64", ("batch", "seq"))),
        ("x:float32:1x3xheightx64", InputSpec("x", "float32", ("batch", 3, "height", 64))),
        ("ids:int64:1xmax", InputSpec("ids", "int64", ("batch", "max"))),
        ("ids:int64:1,max_len,2", InputSpec("ids", "int64", ("batch", "max_len", 2))),
        ("batch.image:float32:1x3x8x8", InputSpec("batch.image", "float32", ("batch", 3, 8, 8))),
        ("pair.0:bool:1x4", InputSpec("pair.0", "bool", ("batch", 4))),
        (" 1x4 ", InputSpec("", "float32", ("batch", 4))),
    ],
)
def test_good_text(text: str, expected: InputSpec) -> None:
    assert parse_input(text) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no size"),
        ("1x0x3", "'0'"),
        ("1x-3", "'-3'"),
        ("1xx3", "no size"),
        ("1x3.5", "'3.5'"),
        ("ids:int65:1x3", "'int65'"),
        ("bfloat16:", "no size"),
        (":int64:1x3", "name is empty"),
        ("a b:int64:1x3", "'a b'"),
        ("a.:1x3", "'a.'"),
        ("a:b:c:d", "colons"),
        ("1xseqxdim", "parts two axes"),
        ("1xmax_len", "parts two axes"),
        ("1x³", "'³'"),
    ],
)
def test_bad_text_says_what_and_shows_how(text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_input(text)
    assert said in str(caught.value)
    assert "1x3x32x32" in str(caught.value) or "commas" in str(caught.value)


def test_names_must_differ_and_follow_the_unnamed() -> None:
    with pytest.raises(UsageError, match="called 'a'"):
        parse_inputs(["a:1x2", "a:1x3"])
    with pytest.raises(UsageError, match="before"):
        parse_inputs(["a:1x2", "1x3"])
    assert [s.name for s in parse_inputs(["1x2", "a:1x3"])] == ["", "a"]
