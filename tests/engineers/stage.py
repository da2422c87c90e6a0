"""A whole session with a chat model and tools that go by words: what a draft is stands in a comment of its kernel.

The graph, the nodes, the store and the checkpoints are the real ones, and so are the client and its HTTP. `Model` is what the
server answers by: a plan from what the planner is shown, and for each task one draft after another, as long as the coder is
shown what became of the one before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stitchcuda.sessions.session import Session
from stitchcuda.state import BuildResult, CheckResult, DeviceFacts, TimingResult
from tests.engineers.metered_chats import REVIEW, block
from tests.engineers.protocol_server import Failure, Request
from tests.engineers.protocols import Reply
from tests.graph.tiny import SIM, TinyHands, tiny_session

GPU = SIM.model_copy(update={"target": "cuda", "measured": True})
Drafts = Mapping[str, Sequence[str]]
"""By a task's name: what each draft is, such as "build error", "wrong" or "saves 0.2"."""


class WordHands(TinyHands):
    """TinyHands that find their words in comments, such as `// aa saves 0.2`."""

    def __init__(self, device: DeviceFacts = GPU) -> None:
        super().__init__(device, timed=device.target == "cuda")

    def build(self, program: Path) -> BuildResult:
        return super().build(_read(program))

    def check(self, program: Path, seeds: int) -> CheckResult:
        return super().check(_read(program), seeds)

    def verify(self, program: Path, seeds: int) -> CheckResult:
        return super().verify(_read(program), seeds)

    def time(self, program: Path, previous: Path, *, twice: bool = False) -> TimingResult | None:
        return super().time(_read(program), _read(previous), twice=twice)


class Model:
    """Answers by what a prompt shows. `plans` in turn, each a list of (task, predicted ms)."""

    def __init__(self, plans: Sequence[Sequence[tuple[str, float]]], drafts: Drafts) -> None:
        self.plans, self.drafts = plans, drafts

    def __call__(self, request: Request) -> str | Reply | Failure:
        prompt = request.turns[0]
        if request.role == "planner":
            return self.plan(prompt)
        return json.dumps(REVIEW) if request.role == "verifier" else self.draft(prompt)

    def plan(self, prompt: str) -> str:
        """The first one none of whose tasks is taken; none when all are."""
        taken = re.findall(r"[\w-]+", prompt.split("taken: ")[1].split("\n")[0]) if "taken: " in prompt else []
        found = next((plan for plan in self.plans if not {name for name, _ in plan} & set(taken)), ())
        region = re.findall(r"^### (\w+): .*\[fusible\]", prompt, re.MULTILINE)
        words = {"why": "it is slow", "strategy": "as fast as can be"}
        tasks = [
            words | {"name": name, "regions": region[:1] if at == 0 else [], "title": f"task {name}", "predicted_ms": predicted}
            for at, (name, predicted) in enumerate(found)
        ]
        return json.dumps({"summary": f"{len(tasks)} tasks.", "host": "", "tasks": tasks})

    def draft(self, prompt: str) -> str | Reply:
        task = re.findall(r"^## Task ([\w-]+):", prompt, re.MULTILINE)[-1]
        drafts = self.drafts[task]
        word = drafts[min(self.tried(prompt), len(drafts) - 1)]
        return block(f"// {task} {word}", f"kernels/{task}.cu", note=f"Wrote {task}.")

    def tried(self, prompt: str) -> int:
        """How many drafts of the task it is told of; that the last one's diagnosis is shown is checked here."""
        count = len(re.findall(r"^- #\d+: ", prompt, re.MULTILINE))
        if "build error" in prompt:
            assert "error: expected a ';'" in prompt
        if re.search(r"^// [\w-]+ wrong$", prompt, re.MULTILINE):
            assert "y is off by 0.25" in prompt
        return count


def played(folder: Path, url: str, *, tools: WordHands | None = None, **settings: Any) -> Session:
    """A session that has run to its end; with `tools` of a device to be timed on unless told otherwise."""
    tools = tools or WordHands()
    settings = {"model": "openai:local", "base_url": url, "from_scratch": True} | settings
    return tiny_session(folder, "tiny", **settings).run(device=tools.facts.target, tools=tools)


def _read(program: Path) -> Path:
    """The folder, with the words of its kernels where TinyHands look for them."""
    kernels = "\n".join(path.read_text() for path in sorted(program.glob("kernels/*.cu")))
    (program / "drafts.txt").write_text("".join(f"{line}\n" for line in re.findall(r"^// (.*)$", kernels, re.MULTILINE)))
    return program
