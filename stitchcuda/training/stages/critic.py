"""A critic: transformers' token classifier with one label on a policy's weights, as verl has it too.

Imported when a stage runs: it needs transformers. All its weights are trained, in float32, on a GPU with bfloat16 products. Its
head begins at zero, so that a new critic's values are 0. It knows nothing of rewards.
Where to look next: `training/stages/value.py` (who trains one alone), `training/stages/ppo_trainer.py` (beside a policy).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForTokenClassification
from transformers.utils import logging as transformers_logging

from stitchcuda.errors import BadInput, Unavailable
from stitchcuda.training.stages.training import first_line

_SHAPE = ("model_type", "vocab_size", "hidden_size", "num_hidden_layers")


def require_critic(model: str, critic: str) -> None:
    """Raises `BadInput` if a folder holds no critic, or one of another shape than the policy's. No weights are read."""
    if not critic:
        return
    try:
        found, policy = AutoConfig.from_pretrained(critic), AutoConfig.from_pretrained(model)
    except (OSError, ValueError) as error:
        raise BadInput(f"the critic {critic} cannot be loaded: {first_line(error)}") from error
    if found.num_labels != 1 or not any(name.endswith("ForTokenClassification") for name in found.architectures or ()):
        raise BadInput(f"{critic} is no critic: give critic/ of a run of value or ppo, or leave critic out to begin a new one")
    for name in _SHAPE:
        wanted, given = (getattr(config.get_text_config(), name, None) for config in (policy, found))
        if given != wanted:
            raise BadInput(f"the critic {critic} does not fit {model}: its {name} is {given}, and the model's is {wanted}")


def load_critic(model: str, critic: str = "") -> Any:
    """The critic of a folder, or a new one on a policy's weights. Raises `BadInput`, `Unavailable`."""
    require_critic(model, critic)
    source = critic or model
    try:
        config = AutoConfig.from_pretrained(source, num_labels=1)
        config.classifier_dropout = 0.0    # transformers' default would be 0.1
        with _without_report():            # of a policy's head that is left out, and the critic's that is new
            made = AutoModelForTokenClassification.from_pretrained(source, config=config, dtype=torch.float32)
        made = made.to("cuda" if torch.cuda.is_available() else "cpu")
    except torch.OutOfMemoryError as error:
        raise Unavailable(f"a critic of {source} does not fit into this GPU's memory beside the policy") from error
    except (OSError, ValueError) as error:
        raise BadInput(f"no critic can be made of {source}: {first_line(error)}") from error
    if not critic:
        for parameter in made.score.parameters():
            torch.nn.init.zeros_(parameter)
    return made


def values_of(critic: Any, ids: Tensor, attention: Tensor, said: int, rows: int) -> Tensor:
    """Values before each of the last `said` tokens, in float32, without gradient; `rows` sequences in one forward pass."""
    with torch.no_grad():
        parts = zip(ids.split(rows), attention.split(rows), strict=True)
        return torch.cat([estimate(critic, *part, said) for part in parts])


def estimate(critic: Any, ids: Tensor, attention: Tensor, said: int) -> Tensor:
    """Values before each of the last `said` tokens, in float32. A token's value is what is known before it."""
    with _products():
        found: Tensor = critic(input_ids=ids, attention_mask=attention, use_cache=False).logits
    return found[:, -said - 1 : -1, 0].float()


@contextmanager
def _products() -> Iterator[None]:
    with torch.autocast("cuda", dtype=torch.bfloat16, enabled=torch.cuda.is_available()):
        yield


@contextmanager
def _without_report() -> Iterator[None]:
    before = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(before)


def save_training(path: Path, critic: Any, optimizer: Any) -> None:
    """Writes a critic and its optimizer for `load_training`."""
    torch.save({"critic": critic.state_dict(), "optimizer": optimizer.state_dict()}, path)


def load_training(path: Path, critic: Any, optimizer: Any) -> None:
    """Raises `BadInput` if there is none."""
    try:
        held = torch.load(path, map_location=critic.device, weights_only=True)
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror}): the save point has no critic") from error
    critic.load_state_dict(held["critic"])
    optimizer.load_state_dict(held["optimizer"])
