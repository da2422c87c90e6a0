"""The tools that an agent has in a session: status, check, bench, profile, docs, submit and finish.

One object stands between two sides. The session's graph waits in `next_draft` for a draft. An agent calls the tools, from any
threads: `submit` hands a draft in, and returns once it was judged as an attempt. Each tool is given the program's files, so
what is judged is what was sent: nothing is read from the agent's folder. A tool never raises: it answers with text.

Where to look next: `engineers/agents/agent_engineer.py` (the graph's side), `engineers/agents/workbench_server.py` and
`engineers/agents/react_tools.py` (agents' sides).
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from stitchcuda.compiler.printing.manifest import manifest_with_task, with_digests
from stitchcuda.counts import counted
from stitchcuda.engineers import Assignment, Brief, Draft, Files, Looked
from stitchcuda.engineers.diagnosis import describe_evidence, describe_strictness, strict_reasons
from stitchcuda.errors import StitchError
from stitchcuda.sandbox.foreign_text import plain
from stitchcuda.state import Attempt, CheckResult

log = logging.getLogger(__name__)

Code = Literal[0, 1, 2]
"""As exit codes: 0 accepted, or what was asked for; 1 refused; 2 it cannot be done."""

FILE_NAME = re.compile(r"model_new\.py|kernels(/[A-Za-z0-9_][A-Za-z0-9_.-]{0,79}){1,4}")
MOST_CHARACTERS = 1_000_000                # of a draft's files together
_SHOWN = 160                               # characters of a note in a list
NOTE = 2_000                               # characters of a note that are kept
ENDED_BY_AGENT = "the agent ended the session"
KNOWN = "(These are the files of the last submission: they were not judged again.)"
_POLL_S = 0.25

RecordCall = Callable[[dict[str, Any]], None]
"""Is given each call: `tool`, `arguments` (files as sizes), `code`, `text`, `seconds`."""


@dataclass(frozen=True)
class ToolAnswer:
    """What a tool says. `ended`: the session goes on without the agent, which should stop."""

    code: Code
    text: str
    ended: bool = False


class AgentTools:
    """See the head of the file. All methods may be called by several threads at once; one draft is judged at a time."""

    def __init__(self, record: RecordCall = lambda call: None) -> None:
        self._record = record
        self._changed = threading.Condition()
        self._assignment: Assignment | None = None  # open for a draft; None while one is judged
        self._round = 0                    # how many assignments there were
        self._draft: Draft | None = None   # handed in, not yet taken by the graph
        self._ended: ToolAnswer | None = None  # what came of the session; no more drafts are taken
        self._judged: Assignment | None = None  # the one whose draft is being judged
        self._submitted = ""               # digest of the files that were handed in last, by this process
        self.last_call = time.monotonic()  # when a tool was last called, or answered

    # The graph's side

    def next_draft(self, assignment: Assignment, gone: Callable[[], str]) -> Draft:
        """Opens an assignment, and waits for a draft. `gone` is asked now and then why the agent works no more; "" while it
        does. An agent that is gone, or says that it is done, leaves a draft without files."""
        with self._changed:
            self._assignment, self._draft = assignment, None
            self._round += 1
            self._changed.notify_all()
            while self._draft is None:
                self._changed.wait(_POLL_S)
                if self._draft is None and (why := gone()):
                    self._draft = Draft(files={}, exhausted=why)
            draft, self._draft = self._draft, None
            self._judged, self._assignment = assignment, None
            return draft

    def end(self, text: str, code: Code) -> None:
        """Ends the session's side: a call that waits for a verdict is answered with this, later ones that it has ended."""
        with self._changed:
            self._assignment = None
            self._ended = ToolAnswer(code, text, ended=True)
            self._changed.notify_all()

    def result(self) -> str:
        """Returns what came of the session; "" while it goes on, and where it was interrupted."""
        with self._changed:
            return self._ended.text if self._ended is not None and self._ended.code != 2 else ""

    # The agent's side

    def status(self) -> ToolAnswer:
        """What the session has so far: attempts, the best program, what is left to use. It waits for no verdict."""
        with self._changed:
            ended, given, judged = self._ended, self._assignment, self._judged
        if ended is not None:
            return self._told("status", {}, {}, ToolAnswer(0, ended.text, ended=True), 0.0)
        if given is None and judged is not None:
            text = f"A program is being judged now. Before it: {describe_status(judged)}"
            return self._told("status", {}, {}, ToolAnswer(0, text), 0.0)
        return self._call("status", {}, lambda given: ToolAnswer(0, describe_status(given)))

    def check(self, files: Files) -> ToolAnswer:
        """Judges a program on secret inputs, as a draft is judged. It is no attempt."""
        return self._look("check", {}, files, lambda given, whole: _look_of(given).check(whole))

    def bench(self, files: Files, kernel: str = "") -> ToolAnswer:
        """Times a call of a program, or kernels whose names contain `kernel`; on the simulator, counts what a call moves."""
        return self._look("bench", {"kernel": kernel}, files, lambda given, whole: _look_of(given).bench(kernel, whole))

    def profile(self, kernel: str = "") -> ToolAnswer:
        """Shows lines of the profiles of the session's program and the last draft that contain `kernel`."""

        def lines(given: Assignment) -> ToolAnswer:
            if "profile" not in _look_of(given).tools:
                return ToolAnswer(2, "There is no profile: nothing is profiled on the simulator, nor before a program is kept.")
            return ToolAnswer(0, _look_of(given).profile(kernel))

        return self._call("profile", {"kernel": kernel}, lines)

    def docs(self, query: str) -> ToolAnswer:
        """Searches the documentation for a name, skeleton:NAME, or words."""

        def search(given: Assignment) -> ToolAnswer:
            found = _look_of(given).docs(query)
            return ToolAnswer(0 if found.ok else 1, found.text)

        return self._call("docs", {"query": query}, search)

    def submit(self, files: Files, note: str = "") -> ToolAnswer:
        """Hands a program in as the session's next attempt, and waits until it was judged. The files that were handed in last
        are not judged twice, also if another process took them: a call that was cut off can be made again."""
        if wrong := refuse_words(note=note) or refuse_files(files):
            return self._told("submit", {"note": note}, files, ToolAnswer(2, wrong), 0.0)
        started = self.last_call = time.monotonic()

        def hand_in(given: Assignment) -> Draft:
            return Draft(files=whole_program(given, files), note=_note(note))

        answer = self._exchange(hand_in, files)
        return self._told("submit", {"note": note}, files, answer, time.monotonic() - started)

    def finish(self, note: str = "") -> ToolAnswer:
        """Says that nothing more is to come: the session's program gets its last check. Waits for that."""
        if wrong := refuse_words(note=note):
            return self._told("finish", {"note": note}, {}, ToolAnswer(2, wrong), 0.0)
        started = self.last_call = time.monotonic()
        why = ENDED_BY_AGENT + (f": {_note(note)}" if note.strip() else "")
        answer = self._exchange(lambda given: Draft(files={}, exhausted=why))
        return self._told("finish", {"note": note}, {}, answer, time.monotonic() - started)

    def _exchange(self, hand_in: Callable[[Assignment], Draft], files: Files | None = None) -> ToolAnswer:
        """Waits for an open assignment, hands a draft in, and waits for the next assignment or the session's end. Where `files`
        are those of the last attempt, its verdict is returned again."""
        digest = _digest(json.dumps(files, sort_keys=True)) if files else ""
        with self._changed:
            again = bool(digest) and digest == self._submitted
            self._changed.wait_for(lambda: self._ended or (self._assignment is not None and self._draft is None))
            if self._assignment is None:
                return self._ended if again and self._ended else _too_late(self._ended)
            if files and was_submitted_last(self._assignment, files):
                known = describe_verdict(self._assignment)
                return ToolAnswer(known.code, f"{known.text}\n{KNOWN}")
            self._submitted = digest or self._submitted
            made = self._round
            self._draft = hand_in(self._assignment)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._ended or self._round > made)
            return describe_verdict(self._assignment) if self._assignment else self._ended or _too_late(None)

    def _look(
        self, tool: str, arguments: dict[str, Any], files: Files, look: Callable[[Assignment, Files], Looked]
    ) -> ToolAnswer:
        if wrong := refuse_files(files):
            return self._told(tool, arguments, files, ToolAnswer(2, wrong), 0.0)  # words are looked at in `_call`

        def looked(given: Assignment) -> ToolAnswer:
            found = look(given, whole_program(given, files))
            return ToolAnswer(0 if found.ok else 1, found.text)

        return self._call(tool, arguments, looked, files)

    def _call(
        self, tool: str, arguments: dict[str, Any], carry_out: Callable[[Assignment], ToolAnswer], files: Files | None = None
    ) -> ToolAnswer:
        """Carries a tool out with the open assignment; waits for one while a draft is judged."""
        if wrong := refuse_words(**arguments):
            return self._told(tool, arguments, files or {}, ToolAnswer(2, wrong), 0.0)
        started = self.last_call = time.monotonic()
        with self._changed:
            self._changed.wait_for(lambda: self._ended or self._assignment is not None)
            given, ended = self._assignment, self._ended
        if given is None:
            answer = _too_late(ended)
        else:
            try:
                answer = carry_out(given)
            except (StitchError, OSError) as error:
                answer = ToolAnswer(2, f"It cannot be done: {error}")
        return self._told(tool, arguments, files or {}, answer, time.monotonic() - started)

    def _told(self, tool: str, arguments: dict[str, Any], files: Files, answer: ToolAnswer, seconds: float) -> ToolAnswer:
        self.last_call = time.monotonic()
        answer = replace(answer, text=plain(answer.text))  # a program's output may be in it
        shown: dict[str, Any] = {name: plain(word) for name, word in arguments.items()}
        if files:
            shown["files"] = {plain(path): _digest(text) for path, text in files.items()}
        call = {"tool": tool, "arguments": shown, "code": answer.code, "text": answer.text, "seconds": round(seconds, 3)}
        try:
            self._record(call)
        except OSError as error:
            log.warning("a call of %s is not recorded: %s", tool, error)
        return answer


def whole_program(assignment: Assignment, files: Mapping[str, str | bytes]) -> Files:
    """Returns the program that an agent's files make, with what the session keeps itself: digests of sources, program.json, and
    constants if they are used."""
    model = str(files["model_new.py"])
    kept = {path: held for path, held in assignment.program.items() if isinstance(held, bytes) and path in model}
    program: Files = {**kept, **files, "model_new.py": with_digests(model, files)}
    manifest = assignment.program.get("program.json")
    before = program if manifest is None else program | {"program.json": manifest}
    program["program.json"] = manifest_with_task(before, assignment.program, assignment.task.id, "an agent's")
    return program


def refuse_files(files: Mapping[str, str | bytes]) -> str:
    """Returns why a draft's files cannot be taken, in one sentence; "" if they can."""
    if "model_new.py" not in files:
        return "There is no model_new.py: a program is model_new.py and C++ and CUDA below kernels/."
    if strange := next((path for path in files if not FILE_NAME.fullmatch(path) or ".." in path), None):
        return f"{strange[:120]!a} is no file of a program: it is model_new.py and C++ and CUDA below kernels/."
    if not all(isinstance(text, str) and "\0" not in text and _is_utf8(text) for text in files.values()):
        return "A program's files are text (UTF-8)."
    size = sum(len(text) for text in files.values())
    if size > MOST_CHARACTERS:
        return f"The files have {size:,} characters: a program has at most {MOST_CHARACTERS:,}."
    return ""


def refuse_words(**words: str) -> str:
    """Returns why the words of a call cannot be taken, in one sentence; "" if they can."""
    wrong = next((name for name, word in words.items() if not _is_utf8(word)), None)
    return f"The {wrong} is no text in UTF-8: write it in UTF-8." if wrong else ""


def was_submitted_last(assignment: Assignment, files: Mapping[str, str | bytes]) -> bool:
    """Returns whether these files are those of the last attempt, by the ledger."""
    if assignment.submitted is None:
        return False
    judged = {path: held for path, held in assignment.submitted.items() if FILE_NAME.fullmatch(path)}
    return judged == {**files, "model_new.py": with_digests(str(files["model_new.py"]), files)}


def describe_verdict(assignment: Assignment) -> ToolAnswer:
    """Returns what became of the attempt before `assignment`: kept, correct but not kept, or refused, with the evidence."""
    if not assignment.brief.history:
        return ToolAnswer(1, "It was not judged.")
    attempt = assignment.brief.history[-1]
    evidence = assignment.evidences[-1] if assignment.evidences else None
    lines = [_verdict(attempt, _unmet(assignment, evidence.check if evidence else None))]
    if evidence is not None:
        skipped = {name: None for name in ("system", "kernels") if getattr(evidence, name) and getattr(evidence, name).skipped}
        strictness = describe_strictness(assignment.brief.settings, evidence.check) if evidence.check else ""
        lines.append(describe_evidence(evidence.model_copy(update=skipped), limits=False) + strictness)
    lines.append(describe_status(assignment))
    return ToolAnswer(0 if attempt.kept else 1, "\n".join(lines))


def describe_submissions(assignment: Assignment) -> list[str]:
    """Returns a line for each attempt of the session: what it was, what became of it, what a call of it moves or takes."""
    lines = []
    for number, (attempt, evidence) in enumerate(zip(assignment.brief.history, assignment.evidences, strict=False), 1):
        what = attempt.note or attempt.task
        result = "kept" if attempt.kept else "right, not kept" if attempt.correct else "refused"
        lines.append(f"{number}. {what[:_SHOWN]}: {'; '.join(filter(None, [result, _figures(attempt, evidence.check)]))}")
    return lines


def _figures(attempt: Attempt, check: CheckResult | None) -> str:
    if check is None or not check.ok:
        return ""
    if attempt.program_ms is not None:
        return f"{attempt.program_ms:.4g} ms a call, {attempt.speedup or 0:.2f}x over eager"
    own = f"{counted(check.launches, 'own launch')} with {check.own_bytes:,} bytes of tensors"
    return f"{own}, {check.elsewhere:,} bytes in torch and libraries"


def describe_status(assignment: Assignment) -> str:
    """Returns how the session stands: the best program, and how many attempts are left."""
    brief = assignment.brief
    mine = own_attempts(brief)
    left = attempts_left(brief)
    if brief.speedup is not None:
        best = f"{brief.speedup:.2f}x over eager, {brief.program_ms:.4g} ms a call"
    else:
        best = "right; nothing was timed" if brief.kept else "the reference, without own kernels"
    present = ""
    if brief.present:
        present = f", predicted {brief.present.ms:.4g} ms a call (eager: predicted {brief.baseline.predicted_ms:.4g} ms)"
    return f"The session's program: {best}{present}. Attempts: {mine} made, {left} left."


def own_attempts(brief: Brief) -> int:
    """Returns how many attempts the session made since the built-in engineer's."""
    return sum(not attempt.beside and attempt.engineer != "builtin" for attempt in brief.history)


def attempts_left(brief: Brief) -> int:
    return max(brief.settings.max_attempts - own_attempts(brief), 0)


def _verdict(attempt: Attempt, unmet: str) -> str:
    why = (attempt.diagnosis or attempt.route_reason).rstrip(".")
    refused = f" The last check will refuse it as it is: {unmet.rstrip('.')}." if unmet else ""
    if not attempt.kept:
        return f"{'CORRECT, BUT NOT KEPT' if attempt.correct else 'REFUSED'}: {why}.{refused}"
    untimed = "" if attempt.saving_ms is not None else "; nothing is timed here, so one that is no faster is kept too"
    kept = f"it is right, and the session's program now{untimed} ({attempt.route_reason})"
    return f"KEPT, BUT NOT ACCEPTED AS IT IS: {kept}.{refused}" if unmet else f"KEPT: {kept}."


def _unmet(assignment: Assignment, check: CheckResult | None) -> str:
    """Returns why the last check will refuse the last attempt's program by its policy; "" if that is not certain."""
    if check is None or not check.ok:
        return ""
    if reasons := strict_reasons(assignment.brief.settings, check):
        return "; ".join(reasons)
    manifest = json.loads((assignment.submitted or {}).get("program.json", "{}"))
    if check.launches or check.own_share or manifest.get("host"):
        return ""
    return f"policy {assignment.brief.settings.policy}: no kernel of its own runs, and it declares no host-side task"


def _note(note: str) -> str:
    return " ".join(plain(note).split())[:NOTE]


def _too_late(ended: ToolAnswer | None) -> ToolAnswer:
    return ToolAnswer(2, ended.text if ended else "The session has ended.", ended=True)


def _look_of(assignment: Assignment) -> Any:
    if assignment.look is None:
        raise StitchError("this session has no tools")
    return assignment.look


def _digest(text: str | bytes) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace") if isinstance(text, str) else text).hexdigest()


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True

