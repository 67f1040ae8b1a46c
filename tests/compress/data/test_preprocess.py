import json

import numpy as np
import pytest
import yaml
from PIL import Image

from compress.data.preprocess import PRESETS, Preprocess, TextPreprocess, load_preprocess
from compress.errors import DataError, UsageError

RANDOM = np.random.default_rng(0)
PHOTO = RANDOM.integers(0, 256, (47, 61, 3), dtype=np.uint8)


def test_scale_mean_std_and_layout():
    image = np.array([[[0, 51, 255], [255, 102, 0]]], dtype=np.uint8)
    made = Preprocess(mean=(0.0, 0.2, 0.5), std=(1.0, 2.0, 0.5))(image)
    expected = np.array([[[0, 1]], [[0, 0.1]], [[1, -1]]], dtype=np.float32)
    assert made.dtype == np.float32
    assert made.shape == (3, 1, 2)
    np.testing.assert_allclose(made, expected, atol=1e-6)


def test_bgr_takes_mean_in_the_order_of_the_output():
    image = np.array([[[10, 20, 30]]], dtype=np.uint8)
    made = Preprocess(scale=1, mean=(30, 20, 10), channel_order="BGR", layout="NHWC")(image)
    np.testing.assert_array_equal(made, np.zeros((1, 1, 3), np.float32))


def test_none_keeps_pixels_as_float_in_nchw():
    made = PRESETS["none"](PHOTO)
    assert made.dtype == np.float32
    np.testing.assert_array_equal(made, PHOTO.transpose(2, 0, 1))


def test_uint8_keeps_pixels():
    made = Preprocess(dtype="uint8", layout="NHWC")(PHOTO)
    assert made.dtype == np.uint8
    np.testing.assert_array_equal(made, PHOTO)


def test_gray_and_color_convert_as_pillow_does():
    gray = Preprocess(channels=1, scale=1)(PHOTO)
    np.testing.assert_allclose(gray[0], np.asarray(Image.fromarray(PHOTO).convert("L")), atol=1)
    one = Image.fromarray(PHOTO).convert("L")
    np.testing.assert_array_equal(Preprocess(channels=1, scale=1)(one)[0], np.asarray(one))
    np.testing.assert_array_equal(Preprocess(scale=1)(one)[2], np.asarray(one))


def test_sixteen_bit_images_use_their_whole_range(tmp_path):
    pixels = np.array([[0, 65535], [32768, 1]], dtype=np.uint16)
    Image.fromarray(pixels).save(tmp_path / "x.png")
    with Image.open(tmp_path / "x.png") as image:
        np.testing.assert_allclose(Preprocess(channels=1)(image)[0], pixels / 65535, atol=1e-6)


def test_palette_and_transparent_images_become_rgb():
    rgba = Image.fromarray(np.dstack([PHOTO, np.full(PHOTO.shape[:2], 7, np.uint8)]))
    np.testing.assert_array_equal(PRESETS["none"](rgba), PHOTO.transpose(2, 0, 1))
    assert PRESETS["none"](Image.fromarray(PHOTO).convert("P")).shape == (3, 47, 61)


def test_float_arrays_are_not_divided_by_255():
    np.testing.assert_allclose(Preprocess(mean=0.5)(np.full((2, 2, 3), 0.75, np.float64)), np.full((3, 2, 2), 0.25))


def test_integer_arrays_of_unknown_range_are_refused():
    with pytest.raises(DataError, match="int64"):
        Preprocess()(PHOTO.astype(np.int64))


@pytest.mark.parametrize("size", [(61, 47), (47, 61), (300, 280), (256, 256)])
def test_imagenet_equals_torchvision_to_the_last_bit(size):
    transforms = pytest.importorskip("torchvision.transforms")
    image = Image.fromarray(RANDOM.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8))
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    theirs = transforms.Compose(
        [
            transforms.Resize(256),
            transforms.CenterCrop(224),
            transforms.ToTensor(),
            transforms.Normalize(mean, std),
        ]
    )(image)
    np.testing.assert_array_equal(PRESETS["imagenet"](image), theirs.numpy())


def test_model_brings_torchvisions_preprocessing():
    models = pytest.importorskip("torchvision.models")
    for name in ("resnet50", "efficientnet_b0"):
        image = Image.fromarray(RANDOM.integers(0, 256, (280, 310, 3), dtype=np.uint8))
        ours = load_preprocess(None, f"torchvision:{name}")
        theirs = models.get_model_weights(name).DEFAULT.transforms()(image)
        np.testing.assert_array_equal(ours(image), theirs.numpy())


def test_model_brings_timms_preprocessing():
    timm = pytest.importorskip("timm")
    for name in ("resnet50", "vit_base_patch16_224"):
        config = timm.data.resolve_data_config(pretrained_cfg=timm.models.get_pretrained_cfg(name).to_dict(), args={})
        image = Image.fromarray(RANDOM.integers(0, 256, (280, 310, 3), dtype=np.uint8))
        ours = load_preprocess(None, f"timm:{name}")
        np.testing.assert_allclose(ours(image), timm.data.create_transform(**config)(image).numpy(), atol=1e-6)


@pytest.mark.parametrize(
    "code", ["", "torchvision:no_such", "timm:no_such", "model.py:make", "torchvision:fcn_resnet50"]
)
def test_nothing_given_and_nothing_known_is_none(code):
    assert load_preprocess(None, code) is None


def test_resize_pair_is_height_and_width():
    assert Preprocess(resize=(10, 20), scale=1)(PHOTO).shape == (3, 10, 20)
    floats = Preprocess(resize=(10, 20), interpolation="bicubic")(PHOTO.astype(np.float32) / 255)
    np.testing.assert_allclose(floats, Preprocess(resize=(10, 20), interpolation="bicubic")(PHOTO), atol=0.05)


def test_crop_larger_than_the_image_is_refused():
    with pytest.raises(DataError, match="47×61 pixels is smaller than the crop of 224×224"):
        Preprocess(crop=224)(PHOTO)


@pytest.mark.parametrize(
    "made",
    [
        *PRESETS.values(),
        Preprocess(resize=(3, 4), crop=2, mean=0.1, std=(1, 2, 3), layout="NHWC", channel_order="BGR"),
    ],
)
def test_yaml_and_json_read_back_equal(made, tmp_path):
    (tmp_path / "preprocess.yaml").write_text(made.to_yaml())
    (tmp_path / "preprocess.json").write_text(made.model_dump_json())
    assert load_preprocess(str(tmp_path / "preprocess.yaml")) == made
    assert load_preprocess(str(tmp_path / "preprocess.json")) == made
    assert load_preprocess(yaml.safe_load(made.to_yaml())) == made


def test_settings_may_start_from_a_preset():
    made = load_preprocess({"preset": "imagenet", "crop": 160})
    assert made == PRESETS["imagenet"].model_copy(update={"crop": 160})


def test_tokenizer_is_found_in_a_folder_and_from_a_settings_file(tmp_path):
    (tmp_path / "model").mkdir()
    file = tmp_path / "model" / "tokenizer.json"
    file.write_text(json.dumps({"model": {}, "added_tokens": []}))
    expected = TextPreprocess(tokenizer=str(file))
    assert load_preprocess(str(tmp_path / "model")) == expected
    assert load_preprocess(str(file)) == expected
    (tmp_path / "p.yaml").write_text("tokenizer: model\nmax_length: 64\n")
    made = load_preprocess(str(tmp_path / "p.yaml"))
    assert made == expected.model_copy(update={"max_length": 64})
    (tmp_path / "again.yaml").write_text(made.to_yaml())
    assert load_preprocess(str(tmp_path / "again.yaml")) == made


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("imagnet", "imagenet, cifar10, none"),
        ({"resiez": 3}, "'resiez' is no setting.*resize"),
        ({"resize": 0}, "resize"),
        ({"mean": [1, 2]}, "mean has 2 values for 3 channels"),
        ({"std": 0}, "std must be above 0"),
        ({"scale": float("nan")}, "scale"),
        ({"dtype": "uint8", "mean": 0.5}, "uint8 takes the pixels as they are"),
        ({"interpolation": "magic"}, "interpolation.*bilinear"),
        ({"preset": "nosuch"}, "'nosuch' is no preset"),
        ({"tokenizer": "nowhere"}, "no tokenizer at"),
        ({"tokenizer": "nowhere", "max_len": 3}, "'max_len' is no setting.*max_length"),
    ],
)
def test_wrong_settings_are_named(spec, message):
    with pytest.raises(UsageError, match=message) as caught:
        load_preprocess(spec)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_mapping_is_refused(tmp_path):
    (tmp_path / "p.yaml").write_text("- 1\n")
    with pytest.raises(UsageError, match="mapping"):
        load_preprocess(str(tmp_path / "p.yaml"))
    (tmp_path / "p.json").write_text("{")
    with pytest.raises(UsageError, match="cannot be read"):
        load_preprocess(str(tmp_path / "p.json"))
