"""Replays a recorded session of a chat model: real graph, nodes, engineers and store; replies and evidence as they were.

A recording (`scripts/record_session.py`) holds what models said, by role, attempt and turn, and what the tools found, by
program. Prompts may have been worded differently since: a reply belongs to its place in the session, not to the words that
asked for it. Where a recording ends, the session is parked.
"""

from __future__ import annotations

import gzip
import json
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
from stitchcuda.verify.client import ReferenceFacts
from stitchcuda.verify.reference.baselines import BaselineTimes


class Recording:
    """One recorded session."""

    def __init__(self, path: Path) -> None:
        self.data: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
        self.record = SessionRecord.model_validate(self.data["session"])
        self.baseline = Baseline.model_validate(self.data["baseline"])
        self.evidence = {program[:16]: Evidence.model_validate(one) for program, one in self.data["evidence"].items()}

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


class RecordedReplies:
    """`Chat` that answers what was answered at the same place; beyond the recording it waits."""

    def __init__(self, recording: Recording) -> None:
        self.name = recording.record.settings.model
        self.notes: list[str] = []
        self.asked: list[ChatRequest] = []
        self._replies = {call["id"]: call["reply"] for call in recording.data["calls"] if call["reply"]}

    def answer(self, ask: ChatRequest, *, limit: int | None) -> ChatAnswer:
        self.asked.append(ask)
        place = f"{ask.role}-{ask.about}-{ask.ordinal}"
        if place not in self._replies:
            raise ReplyPending(place)
        return ChatAnswer.model_validate(self._replies[place])


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
        if program.name not in self._recording.evidence:  # the first program, which a session checks against itself
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
        if program.name not in self._recording.evidence:
            raise DevicePending("what was not recorded")
        return self._recording.evidence[program.name]


def engineers(recording: Recording, home: Workspace, name: str, settings: Settings) -> tuple[Engineers, RecordedReplies]:
    """The session's engineers with recorded replies in place of its models."""
    replies, transcript = RecordedReplies(recording), Transcript(home.store, name)
    budget = Budget(settings, transcript.usage)
    desk = MeteredChat(replies, transcript, budget)
    chat = ChatEngineer({"planner": (desk,), "coder": (desk,), "verifier": (desk,)})
    return Engineers(chat, BuiltinEngineer(), transcript, budget), replies
