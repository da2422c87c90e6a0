"""One episode at a time in plain Python: an agent gets a task, works on a program's files with tools, and submits them.

    episode = ProgramEpisode(read_tasks(Path("examples")), RewardClient("http://127.0.0.1:8711", "…"))
    print(episode.reset("transformer_block"))
    episode.write("model_new.py", text); print(episode.check()); episode.submit(); episode.reward

What is judged is judged by the reward service, and what it could not judge has no reward. Public methods are what TRL's
`environment_factory` takes: `reset`, `get_reward`, and else tools, with docstrings that a model is shown. Nothing is run here.
Where to look next: `training/openenv/server.py` (over OpenEnv), `training/reward_service/trainers.py` (who asks the service).
"""

from __future__ import annotations

import functools
import random
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Concatenate, ParamSpec

from stitchcuda.counts import counted
from stitchcuda.engineers.diagnosis import describe_build
from stitchcuda.engineers.markdown_templates import render_markdown
from stitchcuda.errors import BadInput, StitchError
from stitchcuda.nodes.documentation import search_for_coder
from stitchcuda.rag.playbook_pages import skeletons
from stitchcuda.state import Target
from stitchcuda.tools.build.nvcc import build
from stitchcuda.tools.build.simulated_build import compile_simulated
from stitchcuda.tools.device.device import device_facts
from stitchcuda.training.reward_service.jobs import FILE_NAME, place
from stitchcuda.training.reward_service.records import HALVES
from stitchcuda.training.reward_service.trainers import AsksRewards, ask_for_reward
from stitchcuda.verify.api import builds_folder

STEPS, CHECKS = 40, 4                      # of one episode
_MOST_CHARACTERS = 2**20                   # of all files: at up to 12 bytes each in JSON they fit into a request to the service
_MOST_SAID = 16_000                        # characters of one answer; the longest example of the documentation has 14,600
_TEMPLATE = Path(__file__).parents[1] / "prompts" / "episode.md.j2"
_P = ParamSpec("_P")


def _tool(method: Callable[Concatenate[ProgramEpisode, _P], str]) -> Callable[Concatenate[ProgramEpisode, _P], str]:
    """Counts a call, and submits the files when it was the last one."""

    @functools.wraps(method)
    def call(self: ProgramEpisode, /, *arguments: _P.args, **named: _P.kwargs) -> str:
        if self.done:
            raise ValueError("the episode is over: reset begins another")
        self.steps_left -= 1
        said = method(self, *arguments, **named)
        if len(said) > _MOST_SAID:
            said = f"{said[: _MOST_SAID // 2]}\n… (cut here)\n{said[-_MOST_SAID // 2 :]}"
        if self.done or self.steps_left > 0:
            return said
        return f"{said}\n\nThat was the last call; the files are submitted as they are.\n{self._end()}"

    return call


class ProgramEpisode:
    """See the head of the file. `reward` is None until the end, and after it where nothing was judged: see `judged`."""

    def __init__(
        self, tasks: Mapping[str, str], client: AsksRewards, *, schema: str = "accepted/1", target: Target = "sim",
        steps: int = STEPS, checks: int = CHECKS,
    ) -> None:  # fmt: skip
        """`tasks`: references by the names that the service knows them by. `target`: what `compile` compiles for."""
        self.tasks, self.schema, self.target, self.steps, self.checks = tasks, schema, target, steps, checks
        self._client = client
        self._clear("")
        self.done = True

    def reset(self, task: str | None = None, seed: int | None = None, **columns: object) -> str:
        """Begins an episode and returns what the agent is told. Without a name the task is drawn. Raises `BadInput`."""
        name = random.Random(seed).choice(sorted(self.tasks)) if task is None else task
        if name not in self.tasks:
            raise BadInput(f"there is no task {name[:80]!a}: there are {', '.join(sorted(self.tasks))[:400]}")
        self._clear(name)
        return task_prompt(self.tasks[name], self.target, self.steps, self.checks)

    @_tool
    def write(self, path: str, text: str) -> str:
        """
        Writes one file of the program, in place of what it held.

        Args:
            path: The file, such as model_new.py or kernels/norm.cu.
            text: The whole text of the file.
        """
        return self._put(path, text)

    @_tool
    def edit(self, path: str, old: str, new: str) -> str:
        """
        Replaces a passage in one file of the program.

        Args:
            path: The file.
            old: The passage, which has to stand in the file exactly once.
            new: What stands there then.
        """
        text = self.files.get(path)
        if text is None:
            return f"There is no {path[:80]!a}; there are: {', '.join(sorted(self.files)) or 'none'}."
        found = text.count(old) if old else 0
        return self._put(path, text.replace(old, new)) if found == 1 else f"Not edited: the passage stands there {found} times."

    @_tool
    def compile(self) -> str:
        """Compiles the program's CUDA and returns the compiler's errors, or what each kernel uses. Nothing is run."""
        try:
            with tempfile.TemporaryDirectory() as folder:
                program, cache = place(self.files, Path(folder) / "program"), builds_folder()
                if self.target == "sim":
                    return describe_build(compile_simulated(program, cache=cache))
                arch = device_facts(self.target).arch
                return describe_build(build(program, arch=arch, cache=cache, link=False, machine=True))
        except (StitchError, OSError) as error:
            return f"Not compiled: {error}"

    @_tool
    def check(self) -> str:
        """Has the program judged on secret inputs and returns whether it is right, and why not. Checks are limited."""
        if not self.checks_left:
            return "No check is left: submit, or go on without."
        answer = ask_for_reward(self._client, self.task, self.files, self.schema)
        self.checks_left -= answer["state"] != "infra_error"
        return _said(answer)

    @_tool
    def docs(self, query: str) -> str:
        """
        Looks up documentation of CUDA and its libraries, and examples.

        Args:
            query: A name such as cublasLtMatmul or skeleton:tiled_product, or words.
        """
        return search_for_coder(query, "").text

    @_tool
    def submit(self) -> str:
        """Ends the episode: the program is judged as it is."""
        return self._end()

    def get_reward(self) -> float | None:
        """Returns the reward, after submitting files that the agent did not submit. None: there is none."""
        if not self.done:
            self._end()
        return self.reward

    def _clear(self, task: str) -> None:
        self.task, self.files = task, dict[str, str]()
        self.steps_left, self.checks_left, self.done = self.steps, self.checks, False
        self.reward: float | None = None
        self.answer: dict[str, Any] = {}   # of the service to what was submitted

    @property
    def judged(self) -> bool | None:
        """Whether what was submitted has a reward. None: nothing was submitted yet."""
        return self.answer["reward"] is not None if self.done and self.answer else None

    def _put(self, path: str, text: str) -> str:
        files = self.files | {path: text}
        if sum(len(name) + len(held) for name, held in files.items()) > _MOST_CHARACTERS:
            return f"Not written: a program has at most {_MOST_CHARACTERS:,} characters."
        if not FILE_NAME.fullmatch(path) or "\0" in text or HALVES.search(text):
            return "Not written: names are relative, of letters, digits, dots and dashes, and files are text."
        self.files = files
        return f"{path} has {counted(len(text.splitlines()), 'line')}."

    def _end(self) -> str:
        self.answer = ask_for_reward(self._client, self.task, self.files, self.schema)
        self.reward, self.done = self.answer["reward"], True
        return _said(self.answer)


def task_prompt(reference: str, target: Target, steps: int, checks: int) -> str:
    """What an agent is told when an episode begins."""
    return render_markdown(
        _TEMPLATE, reference=reference.strip(), steps=steps, checks=checks, target=target, skeletons=sorted(skeletons())
    )


def _said(answer: Mapping[str, Any]) -> str:
    """What an agent is told of an answer of the service: whether the program is right, and not what it is worth."""
    heads = {"ok": "Accepted: the program is right.", "candidate_error": f"Not accepted ({answer['kind']})."}
    lines = [heads.get(answer["state"], "Not judged, for no fault of the program."), *(f"- {why}" for why in answer["reasons"])]
    if answer["reward"] is None:
        lines.append(f"There is no reward: {answer.get('no_score') or 'nothing is known of the program'}.")
    return "\n".join(lines)
