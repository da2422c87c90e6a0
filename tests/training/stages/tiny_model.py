"""Makes a model of random weights and a tokenizer in which whole programs are single tokens, so that a tiny model can write
them. Both are made here: nothing is downloaded.

Where to look next: `training/stages/grpo.py` (what they are for).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

TEMPLATE = (                               # Qwen's form, with marks around what the assistant says
    "{% for turn in messages %}<|im_start|>{{ turn.role }}\n{% if turn.role == 'assistant' %}"
    "{% generation %}{{ turn.content }}<|im_end|>{% endgeneration %}{% else %}{{ turn.content }}<|im_end|>{% endif %}\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def qwen_template() -> str:
    """Qwen3's own, whose calls of tools TRL can read."""
    import trl

    return (Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja").read_text()


def tiny_model(
    folder: Path, answers: Sequence[str], *, template: str | None = TEMPLATE, seed: int = 0, hidden: int = 64
) -> Path:  # fmt: skip
    """Saves a Qwen3 of about 200,000 weights with a byte tokenizer; each of `answers` is a token of its own."""
    import torch
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    alphabet = {byte: number for number, byte in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokens = Tokenizer(models.BPE(vocab=alphabet, merges=[]))
    tokens.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokens.decoder = decoders.ByteLevel()
    made: Any = PreTrainedTokenizerFast(
        tokenizer_object=tokens, eos_token="<|im_end|>", pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>"],
    )  # fmt: skip
    made.add_tokens([AddedToken(answer, normalized=False) for answer in answers])
    if template:
        made.chat_template = template
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(made), hidden_size=hidden, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, max_position_embeddings=8192, tie_word_embeddings=False,
        eos_token_id=made.eos_token_id, pad_token_id=made.pad_token_id, bos_token_id=None,
    )  # fmt: skip
    Qwen3ForCausalLM(config).save_pretrained(folder)
    made.save_pretrained(folder)
    return folder
