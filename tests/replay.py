"""Replays a recorded session of a chat model: real graph, nodes, engineers and store; replies and evidence as they were.

A recording (`scripts/record_session.py`) holds what models said, by role, attempt and turn, and what the tools found, by
program. Prompts may have been worded differently since: a reply belongs to its place in the session, not to the words that
asked for it. The built-in engineer may print its programs differently since: evidence belongs to the attempt at its place in
the ledger, and where a reply names a kernel that is printed under another name now, it is given the new one. Where a recording
ends, the session is parked.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stitchcuda.engineers.budget import Budget
from stitchcuda.engineers.builtin import BuiltinEngineer
from stitchcuda.engineers.chat import ChatAnswer, ChatRequest
from stitchcuda.engineers.chat_engineer import ChatEngineer
from stitchcuda.engineers.metered_chat import MeteredChat, Transcript
from stitchcuda.engineers.selection import Engineers
from stitchcuda.errors import DevicePending, ReplyPending
from stitchcuda.state import (
    Baseline,
    BuildResult,
    CheckResult,
    DeviceFacts,
    Evidence,
    ProfileResult,
    SanitizerResult,
    Settings,
    TimingResult,
)
from stitchcuda.store import SessionRecord, Workspace
from stitchcuda.tools.profile.profiling import CountedKernels
from stitchcuda.tools.profile.system_profile import SystemProfile
from stitchcuda.verify.messages.judge_requests import ReferenceFacts
from stitchcuda.verify.reference.baseline_times import BaselineTimes


class Recording:
    """One recorded session."""

    def __init__(self, path: Path) -> None:
        self.data: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
        self.data["session"]["settings"].setdefault("effort", "low")  # recorded before there was another
        self.record = SessionRecord.model_validate(self.data["session"])
        self.baseline = Baseline.model_validate(self.data["baseline"])
        self._evidence: dict[str, Evidence] = {}  # by the name of a program's folder
        self._newest = ""                         # model_new.py of the program that was looked at last
        self._renamed: dict[str, str] = {}        # printed kernels: their names and digests then and now

    @property
    def ledger(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.data["ledger"]
        return found

    def reopened(self, home: Workspace) -> SessionRecord:
        """The session as it was asked for, in another workspace; it has not run yet."""
        reference = home.store.put(self.data["reference"].encode())
        home.store.put(self.data["capture"].encode())
        for text in self.data["artefacts"].values():
            home.store.put(text.encode())
        return home.create(self.record.model_copy(update={"reference": reference, "source": reference}))

    def evidence(self, program: Path) -> Evidence | None:
        """What the tools said of the program in this folder. One that was not seen before is that of the ledger's next attempt;
        None when there is none."""
        if program.name not in self._evidence:
            number = len(self._evidence)
            if number == len(self.ledger):
                return None
            attempt = self.ledger[number]
            self._evidence[program.name] = Evidence.model_validate(self.data["evidence"][attempt["program"]])
            if attempt["engineer"] == "builtin":
                self._rename(self.data["programs"][attempt["program"]], program)
            self._newest = (program / "model_new.py").read_text()
        return self._evidence[program.name]

    def knows(self, program: Path) -> bool:
        return program.name in self._evidence

    def in_words_of_now(self, reply: str, asked: str = "") -> str:
        """A model's reply with the names that the printed kernels have now, and in what it searches for the digests that the
        request or the newest program shows: they were not filled in when it was recorded."""
        for then, now in self._renamed.items():
            reply = re.sub(rf"\b{then}(?=\b|_(?:kernel|launch|binding)\b)", now, reply)
        digests = _digests(self._newest) | _digests(asked)

        def row(match: re.Match[str]) -> str:
            return f'{match[1]}{digests.get(match[2], match[3])}"'

        def search(match: re.Match[str]) -> str:
            return re.sub(r'(\("(\w+)", "\w+", ")([0-9a-f]+)"', row, match[0])

        return re.sub(r"^<<<<<<< SEARCH$.*?^=======$", search, reply, flags=re.DOTALL | re.MULTILINE)

    def _rename(self, files: Sequence[str], program: Path) -> None:
        """Notes which kernels of a printed program had other names when it was recorded: they end with their region's id."""
        now = {path.stem.rpartition("_")[2]: path.stem for path in program.glob("kernels/*.cu")}
        then = {name.rpartition("_")[2]: name for path in files if (name := Path(path).stem) and path.endswith(".cu")}
        assert now.keys() == then.keys(), "a printed program has kernels for the regions that it had"
        self._renamed = {then[region]: now[region] for region in then}


def _digests(model: str) -> dict[str, str]:
    """The digest of each kernel's sources, as the table in a printed program has it."""
    return dict(re.findall(r'\("(\w+)", "\w+", "([0-9a-f]+)"\)', model))


class RecordedReplies:
    """`Chat` that answers what was answered at the same place; beyond the recording it waits."""

    def __init__(self, recording: Recording) -> None:
        self.name = recording.record.settings.model
        self.notes: list[str] = []
        self.asked: list[ChatRequest] = []
        self._recording = recording
        self._replies = {call["id"]: call["reply"] for call in recording.data["calls"] if call["reply"]}

    def answer(self, ask: ChatRequest, *, limit: int | None) -> ChatAnswer:
        self.asked.append(ask)
        place = f"{ask.role}-{ask.about}-{ask.ordinal}"
        if place not in self._replies:
            raise ReplyPending(place)
        answer = ChatAnswer.model_validate(self._replies[place])
        text = self._recording.in_words_of_now(answer.text, "\n".join(message.text for message in ask.messages))
        if ask.role == "verifier":         # it was recorded when nobody followed a review's route
            text = re.sub(r'("route"\s*:\s*)"(?:replan|done)"', r'\1"next_task"', text)
        return answer.model_copy(update={"text": text})


class RecordedHands:
    """`Hands` that find what was found for the same program; for one that was never looked at a session waits."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        final = recording.data["final"]
        self._final = Evidence.model_validate(final) if final else None

    def device(self) -> DeviceFacts:
        return self._recording.baseline.device

    def study(self) -> ReferenceFacts:
        return ReferenceFacts(capture=self._recording.data["capture"], eager_ms=self._recording.baseline.eager_ms)

    def build(self, program: Path) -> BuildResult:
        return self._evidence(program).build

    def build_many(self, programs: Sequence[Path]) -> list[BuildResult]:
        return [self.build(program) for program in programs]

    def compile(self, program: Path) -> BuildResult:
        return BuildResult(ok=True, skipped="what the compiler told a coder is in the recording")

    def check(self, program: Path, seeds: int) -> CheckResult:
        if not self._recording.knows(program):  # the first program, which a session checks against itself
            return CheckResult(ok=True, tier="timed")
        found = self._evidence(program).check
        assert found is not None
        return found

    def check_many(self, programs: Sequence[Path], seeds: int) -> list[CheckResult]:
        return [self.check(program, seeds) for program in programs]

    def verify(self, program: Path, seeds: int) -> CheckResult:
        if self._final is None:
            raise DevicePending("what was not recorded")
        assert self._final.check is not None
        return self._final.check

    def time(self, program: Path, previous: Path, *, twice: bool = False) -> TimingResult | None:
        return self._final.timing if twice and self._final else self._evidence(program).timing

    def profile_system(self, program: Path | None) -> tuple[ProfileResult, SystemProfile | None]:
        found = self._recording.baseline.system if program is None else self._evidence(program).system
        return found or ProfileResult(tool="nsys", skipped="not recorded"), None

    def profile_kernels(self, program: Path, system: SystemProfile | None) -> tuple[ProfileResult, CountedKernels | None]:
        return self._evidence(program).kernels or ProfileResult(tool="ncu", skipped="not recorded"), None

    def sanitize(self, program: Path) -> SanitizerResult:
        return self._final.sanitizer if self._final and self._final.sanitizer else SanitizerResult()

    def baselines(self) -> BaselineTimes:
        return BaselineTimes.model_validate(self._recording.data["baselines"])

    def close(self) -> None:
        return

    def _evidence(self, program: Path) -> Evidence:
        found = self._recording.evidence(program)
        if found is None:
            raise DevicePending("what was not recorded")
        return found


def engineers(recording: Recording, home: Workspace, name: str, settings: Settings) -> tuple[Engineers, RecordedReplies]:
    """The session's engineers with recorded replies in place of its models."""
    replies, transcript = RecordedReplies(recording), Transcript(home.store, name)
    budget = Budget(settings, transcript.usage)
    desk = MeteredChat(replies, transcript, budget)
    chat = ChatEngineer({"planner": (desk,), "coder": (desk,), "verifier": (desk,)})
    return Engineers(chat, BuiltinEngineer(), transcript, budget), replies
