"""Rollouts of several turns through TRL's and verl's own classes, against the reward service on the simulator.

    pip install 'trl>=1.16' 'verl>=0.9.1' cachetools fastapi jmespath      # in an environment of their own, with this package
    python benchmarks/agent_rollouts.py --to benchmarks/results/agent_rollouts.md

The policy is a script: `repair` writes a wrong program, has it checked, repairs it, has it checked and submits; `silent`
writes a right program and ends without submitting it; `broken` works at a task whose reference breaks, so it has no reward.
For TRL the script stands in for generation of a `GRPOTrainer`, with a model of random weights, which takes one step; for verl
it is the server behind `ToolAgentLoop`, whose output goes to verl's reward manager. Exits 1 where something else came of it.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import importlib.metadata
import importlib.util
import json
import os
import sys
import tempfile
import time
import types
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
if importlib.util.find_spec("tests.verify") is None:  # verl's wheel holds a package `tests` too, which hides ours
    sys.modules["tests"] = types.ModuleType("tests")
    sys.modules["tests"].__path__ = [str(ROOT / "tests")]

from benchmarks.reward_service import TOKEN, Server, free_port  # noqa: E402
from stitchcuda.training.openenv.episode import ProgramEpisode  # noqa: E402
from stitchcuda.training.reward_service.client import RewardClient  # noqa: E402
from stitchcuda.training.reward_service.tasks import read_tasks  # noqa: E402
from stitchcuda.training.reward_service.trainers import EPISODE, episode_score  # noqa: E402
from stitchcuda.training.verl_files import write_verl_files  # noqa: E402
from tests.verify import programs  # noqa: E402

RIGHT, WRONG = "(value > 0.0f ? value : 0.0f) * gain", "value * gain"
TASKS = {"gate": programs.REFERENCE, "broken": programs.REFERENCE.replace("torch.relu(", "torch.no_such_function(")}
Call = tuple[str, dict[str, str]]


def _writes(kernel: str) -> list[Call]:
    files = {"model_new.py": programs.KERNEL_MODEL, "kernels/gate_binding.cc": programs.BINDING, "kernels/gate.cu": kernel}
    return [("write", {"path": path, "text": text}) for path, text in files.items()]


POLICIES: dict[str, list[Call]] = {
    "repair": [
        *_writes(programs.KERNEL.replace(RIGHT, WRONG)), ("check", {}),
        ("edit", {"path": "kernels/gate.cu", "old": WRONG, "new": RIGHT}), ("check", {}), ("submit", {}),
    ],
    "silent": _writes(programs.KERNEL),
    "broken": [*_writes(programs.KERNEL), ("submit", {})],
}  # fmt: skip
TASK = {"repair": "gate", "silent": "gate", "broken": "broken"}
EXPECTED = {"repair": 1.0, "silent": 1.0, "broken": None}  # rewards; None: there is none


@dataclass(frozen=True)
class Rollout:
    policy: str
    calls: int
    told: list[str]                        # of the tools, in order
    reward: float | None


def make_tasks(folder: Path) -> Path:
    folder.mkdir()
    for name, text in TASKS.items():
        (folder / f"{name}.py").write_text(text)
    return folder


def next_turn(text: str) -> str:
    """What the policy that a conversation names says next: a call of a tool, or that it is done."""
    policy = POLICIES[next(name for name in POLICIES if f"Policy: {name}." in text)]
    turn = text.count("<|im_start|>assistant\n") - 1
    if turn >= len(policy):
        return "Done.<|im_end|>"
    name, arguments = policy[turn]
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call><|im_end|>"


def told(text: str) -> list[str]:
    """What the tools said in a conversation."""
    return [part.partition("\n</tool_response>")[0] for part in text.split("<tool_response>\n")[1:]]


def byte_tokenizer() -> Any:
    """One token a byte, with Qwen3's chat template as TRL ships it: nothing has to be downloaded."""
    import trl
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = {byte: number for number, byte in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokens = Tokenizer(models.BPE(vocab=alphabet, merges=[]))
    tokens.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokens.decoder = decoders.ByteLevel()
    made = PreTrainedTokenizerFast(
        tokenizer_object=tokens, eos_token="<|im_end|>", pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>"],
    )  # fmt: skip
    made.chat_template = (Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja").read_text()
    return made


def through_trl(url: str, folder: Path, tasks: Path) -> tuple[list[Rollout], str]:
    """One step of TRL's GRPOTrainer over `ProgramEpisode`, two completions of each policy."""
    from datasets import Dataset
    from transformers import Qwen3Config, Qwen3ForCausalLM
    from trl import GRPOConfig, GRPOTrainer

    known, client = read_tasks(tasks), RewardClient(url, TOKEN)
    tokenizer = byte_tokenizer()
    config = Qwen3Config(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=1,
        num_key_value_heads=1, head_dim=16, max_position_embeddings=32768,
    )  # fmt: skip
    seen: list[dict[str, Any]] = []

    class ScriptedTrainer(GRPOTrainer):
        def _generate_single_turn(self, prompt_ids: list[list[int]], *_: Any, **__: Any) -> tuple[list[list[int]], None]:
            texts = (next_turn(tokenizer.decode(ids)) for ids in prompt_ids)
            return [tokenizer(text)["input_ids"] for text in texts], None

        def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Any:
            rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
            for row, completion, reward in zip(inputs, completions, rewards[:, 0].tolist(), strict=True):
                seen.append({"policy": row["policy"], "messages": completion, "reward": None if reward != reward else reward})
            return rewards

    rows = [{"prompt": [{"role": "user", "content": f"Policy: {name}.\n\n"}], "task": TASK[name], "policy": name}
            for name in POLICIES]  # fmt: skip
    trainer = ScriptedTrainer(
        model=Qwen3ForCausalLM(config), processing_class=tokenizer, train_dataset=Dataset.from_list(rows),
        environment_factory=lambda: ProgramEpisode(known, client, target="sim"),
        args=GRPOConfig(
            output_dir=str(folder), max_steps=1, num_generations=2, per_device_train_batch_size=1,
            gradient_accumulation_steps=2 * len(rows), max_completion_length=20_000, use_cpu=True, bf16=False,
            report_to="none", save_strategy="no", logging_steps=1, disable_tqdm=True, gradient_checkpointing=False,
        ),
    )  # fmt: skip
    trainer.train()
    rollouts = [
        Rollout(row["policy"], sum(len(message.get("tool_calls") or ()) for message in row["messages"]),
                [message["content"] for message in row["messages"] if message["role"] == "tool"], row["reward"])
        for row in seen
    ]  # fmt: skip
    logged = trainer.state.log_history[0]
    return rollouts, f"reward {logged['reward']:.2f}, calls of tools a completion {logged['tools/call_frequency']:.2f}"


class ScriptedServer:
    """What verl's agent loop asks for tokens."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    async def generate(self, request_id: str, *, prompt_ids: list[int], **_: Any) -> Any:
        from verl.workers.rollout.replica import TokenOutput

        return TokenOutput(token_ids=self.tokenizer(next_turn(self.tokenizer.decode(prompt_ids)))["input_ids"])


def through_verl(url: str, folder: Path, tasks: Path) -> tuple[list[Rollout], str]:
    """All policies at once in verl's ToolAgentLoop, with rows and tools read by verl's own readers."""
    from omegaconf import OmegaConf
    from verl.experimental.agent_loop.agent_loop import DictConfigWrap, ToolListWrap
    from verl.experimental.agent_loop.tool_agent_loop import ToolAgentLoop
    from verl.tools.tool_registry import load_all_tools
    from verl.utils.dataset.rl_dataset import RLHFDataset

    write_verl_files(folder / "files", tasks, url=url)
    os.environ["STITCHCUDA_REWARD_TOKEN"] = TOKEN
    tokenizer = byte_tokenizer()
    config = OmegaConf.create({
        "data": {"max_prompt_length": 16384, "cache_dir": str(folder / "cache")},
        "actor_rollout_ref": {"rollout": {
            "prompt_length": 16384, "response_length": 32768, "full_determinism": False,
            "multi_turn": {"max_user_turns": None, "max_assistant_turns": 41, "max_parallel_calls": 1, "format": "hermes",
                           "max_tool_response_length": 20_000, "tool_response_truncate_side": "middle"},
        }},
    })  # fmt: skip
    data = RLHFDataset([str(folder / "files" / "rows.jsonl")], tokenizer, config.data)
    rows = {row["extra_info"]["task"]: row for row in (data[number] for number in range(len(data)))}
    tools = load_all_tools(str(folder / "files" / "tools.yaml"), None)

    async def rollout_under(policy: str) -> Rollout:
        row = rows[TASK[policy]]
        prompt = [{**message, "content": f"Policy: {policy}.\n\n{message['content']}"} for message in row["raw_prompt"]]
        loop = ToolAgentLoop(
            DictConfigWrap(config), ScriptedServer(tokenizer), tokenizer, None, RLHFDataset, DictConfigWrap(config.data),
            hf_model_type="qwen3", tools=ToolListWrap(tools),
        )  # fmt: skip
        output = await loop.run({}, **{**row, "raw_prompt": prompt})
        said = told(tokenizer.decode(output.response_ids))
        return Rollout(policy, len(said), said, await _verl_reward(output, row, tokenizer, url))

    async def every() -> list[Rollout]:
        return list(await asyncio.gather(*map(rollout_under, POLICIES)))

    return asyncio.run(every()), f"tools {', '.join(tool.name for tool in tools)}"


async def _verl_reward(output: Any, row: dict[str, Any], tokenizer: Any, url: str) -> float | None:
    """As `AgentLoopWorker._compute_score` asks for it; None where `episode_score` raised, which leaves the trajectory out."""
    import numpy as np
    import torch
    from omegaconf import OmegaConf
    from tensordict import TensorDict
    from verl import DataProto
    from verl.experimental.reward_loop.reward_manager.naive import NaiveRewardManager

    from stitchcuda.errors import Unavailable

    length = len(output.prompt_ids) + len(output.response_ids)
    tokens = {"responses": torch.tensor([output.response_ids]), "attention_mask": torch.ones(1, length, dtype=torch.int64)}
    columns = {name: np.array([row[name]]) for name in ("data_source", "reward_model", "extra_info")}
    columns["tool_extra_fields"] = np.array([output.extra_fields], dtype=object)
    columns["__num_turns__"] = np.array([output.num_turns])
    manager = NaiveRewardManager(OmegaConf.create({}), tokenizer, functools.partial(episode_score, url=url))
    assert EPISODE in output.extra_fields, "the tools left no record of the episode"
    try:
        scored = await manager.run_single(DataProto(TensorDict(tokens, batch_size=1), columns))
    except Unavailable:
        return None
    return float(scored["reward_score"])


def wrong_in(rollouts: list[Rollout]) -> list[str]:
    """What differs from what the script has to come to."""
    found = []
    for rollout in rollouts:
        if rollout.reward != EXPECTED[rollout.policy]:
            found.append(f"{rollout.policy}: the reward is {rollout.reward}")
        if rollout.calls != len(POLICIES[rollout.policy]) or len(rollout.told) != rollout.calls:
            found.append(f"{rollout.policy}: {rollout.calls} calls of tools")
        if rollout.policy == "repair" and not (
            rollout.told[3].startswith("Not accepted (wrong)") and rollout.told[5].startswith("Accepted")
        ):
            found.append(f"repair: the checks said {rollout.told[3]!r}, {rollout.told[5]!r}")
    return found


THROUGH: dict[str, Callable[[str, Path, Path], tuple[list[Rollout], str]]] = {"trl": through_trl, "verl": through_verl}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--trainers", nargs="+", choices=sorted(THROUGH), default=sorted(THROUGH))
    parser.add_argument("--to", type=Path, help="file for the table")
    given = parser.parse_args()
    lines = ["# Rollouts with tools in the trainers' own classes", "",
             f"`python benchmarks/agent_rollouts.py`, {date.today()}, reward service on the simulator, scripted policies, CPU.",
             "What one trainer asked the service, the next does not wait for. That verl's trainer leaves a trajectory out",
             "whose reward function raises was read in its source and not run: it needs GPUs.", "",
             "| trainer | policy | calls | checks and submission said | reward |", "|---|---|---|---|---|"]  # fmt: skip
    notes, wrong = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tasks = make_tasks(folder / "tasks")
        server = Server(folder, tasks, "sim", free_port())
        server.start()
        try:
            for trainer in given.trainers:
                begin = time.monotonic()
                (folder / trainer).mkdir()
                rollouts, note = THROUGH[trainer](f"http://127.0.0.1:{server.port}", folder / trainer, tasks)
                wrong += [f"{trainer}: {what}" for what in wrong_in(rollouts)]
                versions = [f"{part} {importlib.metadata.version(part)}" for part in (trainer, "transformers", "torch")]
                notes.append(f"{', '.join(versions)}: {time.monotonic() - begin:.0f} s; {note}.")
                for rollout in rollouts:
                    heads = [said.partition("\n")[0] for said in rollout.told if "ccepted" in said or "Not judged" in said]
                    reward = "none: left out" if rollout.reward is None else f"{rollout.reward:.1f}"
                    lines.append(f"| {trainer} | {rollout.policy} | {rollout.calls} | {'; '.join(heads) or '–'} | {reward} |")
        finally:
            server.stop()
    text = "\n".join([*lines, "", *notes, *(f"Wrong: {what}" for what in wrong)]) + "\n"
    print(text)
    if given.to:
        given.to.write_text(text)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
