"""Optimises modules of transformers, torchvision and timm on the simulator: `python benchmarks/real_modules.py OUT [NAME …]`.

The code is theirs, the weights are random, the sizes small; the three packages are installed beside the project, which does not
need them. Each module goes through `stitchcuda.optimize` in a session of its own below the folder OUT. Where `WRONG` says how,
the accepted program is then made wrong (an input ignored, a mask, a position) and judged again: it must be refused.
"""

from __future__ import annotations

import argparse
import importlib
import re
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import torch
from torch import Tensor, nn

import stitchcuda
from stitchcuda.errors import StitchError

MINUTES = 8.0                              # of one session
_SMALL = {"vocab_size": 128, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
_PATCHES = {"image_size": 32, "patch_size": 8}

Make = Callable[[], nn.Module]
Inputs = Callable[[], Any]


def _ids(classes: int = 128) -> Tensor:
    return torch.randint(classes, (2, 16))


def _image() -> tuple[Tensor]:
    return (torch.randn(2, 3, 64, 64),)


def _made(package: str, name: str, *arguments: Any, **options: Any) -> Make:
    """Returns a function that imports a class or function of a package and calls it."""
    def make() -> nn.Module:
        made: nn.Module = getattr(importlib.import_module(package), name)(*arguments, **options)
        return made

    return make


def _language(name: str, config: str, **options: Any) -> Make:
    """A model of transformers by its class and its configuration's."""
    def make() -> nn.Module:
        given = getattr(importlib.import_module("transformers"), config)(**options)
        return _made("transformers", name, given)()

    return make


def _mask() -> Tensor:
    return torch.ones(2, 16, dtype=torch.long)


_GROUPED = _SMALL | {"num_key_value_heads": 2, "use_cache": False}
_T5 = {"vocab_size": 128, "d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 2, "num_heads": 4}
_DISTIL = {"vocab_size": 128, "dim": 64, "hidden_dim": 96, "n_layers": 2, "n_heads": 4}
_MAMBA = {"vocab_size": 128, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8, "use_cache": False}
_VISION = {key: value for key, value in _SMALL.items() if key != "vocab_size"} | _PATCHES
MODULES: dict[str, tuple[Make, Inputs]] = {
    "llama": (_language("LlamaModel", "LlamaConfig", **_GROUPED), lambda: {"input_ids": _ids()}),
    "llama with a cache": (
        _language("LlamaModel", "LlamaConfig", **_SMALL, num_key_value_heads=2),
        lambda: {"input_ids": _ids(), "attention_mask": _mask()},
    ),
    "mistral": (_language("MistralForCausalLM", "MistralConfig", **_GROUPED), lambda: {"input_ids": _ids()}),
    "qwen2": (
        _language("Qwen2ForCausalLM", "Qwen2Config", **_GROUPED),
        lambda: {"input_ids": _ids(), "attention_mask": _mask()},
    ),
    "gemma2": (_language("Gemma2Model", "Gemma2Config", **_GROUPED, head_dim=16), lambda: {"input_ids": _ids()}),
    "mixtral": (
        _language("MixtralModel", "MixtralConfig", **_GROUPED, num_local_experts=4), lambda: {"input_ids": _ids()}
    ),
    "bert": (
        _language("BertModel", "BertConfig", **_SMALL),
        lambda: {"input_ids": _ids(), "attention_mask": _mask(), "token_type_ids": torch.zeros(2, 16, dtype=torch.long)},
    ),
    "bert with a loss": (
        _language("BertForSequenceClassification", "BertConfig", **_SMALL, num_labels=5),
        lambda: {"input_ids": _ids(), "labels": torch.tensor([1, 4])},
    ),
    "gpt2": (
        _language("GPT2Model", "GPT2Config", vocab_size=128, n_embd=64, n_layer=2, n_head=4, use_cache=False),
        lambda: {"input_ids": _ids()},
    ),
    "distilbert": (_language("DistilBertModel", "DistilBertConfig", **_DISTIL), lambda: {"input_ids": _ids()}),
    "t5 encoder": (_language("T5EncoderModel", "T5Config", **_T5), lambda: {"input_ids": _ids()}),
    "vit": (_language("ViTModel", "ViTConfig", **_VISION), lambda: {"pixel_values": torch.rand(2, 3, 32, 32)}),
    "clip vision": (
        _language("CLIPVisionModel", "CLIPVisionConfig", **_VISION), lambda: {"pixel_values": torch.randn(2, 3, 32, 32)}
    ),
    "mamba": (_language("MambaModel", "MambaConfig", **_MAMBA), lambda: {"input_ids": _ids()}),
    **{name: (_made("torchvision.models", name), _image) for name in (
        "resnet18", "mobilenet_v3_small", "efficientnet_b0", "convnext_tiny", "swin_t", "shufflenet_v2_x0_5",
    )},
    "timm vit_tiny": (_made("timm", "create_model", "vit_tiny_patch16_224", img_size=64, depth=2), _image),
    "timm mixer_s32": (_made("timm", "create_model", "mixer_s32_224", img_size=64), _image),
    "timm resnet10t": (_made("timm", "create_model", "resnet10t"), _image),
}  # fmt: skip

# By module: what is wrong, and the edit (pattern, replacement) of the accepted program that makes it so.
WRONG: dict[str, tuple[str, str, str]] = {
    "gpt2": ("positions ignored", r"wpe = (F\.embedding\(.*\))$", r"wpe = \1 * 0"),
    "t5 encoder": ("bias of positions ignored", r"(relative_attention_bias = F\.embedding\(.*\))$", r"\1 * 0"),
    "mistral": ("rotation of positions ignored", r"sin = torch\.sin\((\w+)\)$", r"sin = torch.sin(\1) * 0"),
    "qwen2": ("mask ignored", r"= (torch\.ops\.aten\.to\.device\(attention_mask,.*\))$", r"= torch.ones_like(\1)"),
    "distilbert": ("second half of the ids ignored", r"(= F\.embedding\()input_ids,", r"\1input_ids[:, :8].repeat(1, 2),"),
    "mixtral": ("weights of experts ignored", r"quotient = (\w+) / (\w+)$", r"quotient = torch.ones_like(\1) / 2"),
}


def optimise(name: str, out: Path) -> str:
    """Returns what became of a module, in words."""
    make, inputs = MODULES[name]
    torch.manual_seed(0)
    started = time.monotonic()
    try:
        session = stitchcuda.optimize(
            make().eval(), inputs(), device="sim", workspace=out / name.replace(" ", "_"), max_minutes=MINUTES, progress=False
        )
    except StitchError as problem:
        return f"{time.monotonic() - started:.0f} s: {problem}"
    outcome = session.outcome()
    word = "accepted" if outcome.accepted else f"not accepted ({outcome.status}, {outcome.stop_reason})"
    said = f"{time.monotonic() - started:.0f} s: {word}, {outcome.tasks_done} of {outcome.tasks_total} tasks"
    return f"{said}; {_judge_wrong(name, session.folder)}" if outcome.accepted and name in WRONG else said


def _judge_wrong(name: str, session: Path) -> str:
    """Makes the session's program wrong and returns the verdict on it, in words."""
    what, pattern, replacement = WRONG[name]
    wrong = session / "wrong"
    shutil.rmtree(wrong, ignore_errors=True)
    shutil.copytree(session / "program", wrong)
    source = wrong / "model_new.py"
    text, edits = re.subn(pattern, replacement, source.read_text(), flags=re.MULTILINE)
    if not edits:
        return f"{what}: THE EDIT DOES NOT FIT"
    source.write_text(text)
    verdict = stitchcuda.verify(wrong, next(session.glob("*.pkl")), target="sim")
    return f"{what}: {'ACCEPTED' if verdict.accepted else 'refused'} ({'; '.join(verdict.reasons)[:90]})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of: {', '.join(MODULES)} (default: all)")
    asked = parser.parse_args()
    if unknown := [name for name in asked.names if name not in MODULES]:
        parser.error(f"no module {unknown[0]!r}: choose from {', '.join(MODULES)}")
    for name in asked.names or MODULES:
        print(f"| {name} | {optimise(name, asked.out)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
