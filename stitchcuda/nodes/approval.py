"""Builds the questions put to a person about a plan or a draft, and reads the answers.

A question is plain JSON, since it is stored with a checkpoint and shown by any client: `approve` ("plan" or "code"),
`waiting_for` (a sentence), what it is about, and `answers` (the allowed forms). An answer that cannot be used is refused in one
sentence, and the same question is asked again. A person may drop and reorder a plan's tasks, and reword strategies if the
engineer reads them; the figures stay the engineer's. `program.json` cannot be edited.

Where to look next: `graph/approval.py` (interrupts the graph, finds the answer), `nodes/planner.py` and `nodes/coder.py` (ask).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import Any, TypeVar

from stitchcuda.counts import counted
from stitchcuda.engineers import Files
from stitchcuda.engineers.draft_files import program_path
from stitchcuda.engineers.reply import Malformed
from stitchcuda.nodes.context import Context
from stitchcuda.state import Plan, Task, Work

T = TypeVar("T")
Question = dict[str, Any]
ACCEPT = "accept"
SHOWN = ("id", "title", "predicted_ms", "why", "strategy")
COMMENT = 2000                             # the most characters of a comment that the engineer is shown
_REWORDED = ", or as an object with id and another strategy"
KEPT_FILES = ("program.json",)             # the manifest: written by StitchCUDA, read back by it


class AnswerRefused(Exception):
    """An answer cannot be used; the message says why in one sentence."""


def ask_about_plan(plan: Plan, context: Context, *, engineer: str, listens: bool) -> Plan | str:
    """Asks a person about a plan. Returns the plan as accepted or edited, or a comment by which to make another one. `listens`:
    the engineer reads strategies and comments, so a person may write them."""
    # Without the engineer, as plans of the version before were: an answer to a question of that version counts.
    asked = context.workspace.store.put(plan.model_dump_json(exclude={"engineer"}).encode())
    question = plan_question(plan, asked, engineer=engineer, listens=listens)
    return _ask_until_usable(question, context, lambda answer: read_plan_answer(answer, plan, listens=listens))


def ask_about_draft(work: Work, before: Files, context: Context) -> Files | None:
    """Asks a person about a draft. Returns its files as edited; None if it was accepted. `before`: files it started from."""
    assert work.program is not None
    files = context.files(work.program)
    return _ask_until_usable(code_question(work, before, files), context, lambda answer: read_code_answer(answer, files))


def _ask_until_usable(question: Question, context: Context, read: Callable[[Any], T]) -> T:
    """Asks until `read` accepts the answer, and returns what it read. A repeated question says why the last was refused."""
    asked = question
    while True:
        try:
            return read(context.ask(asked))
        except AnswerRefused as error:
            again = f"{question['waiting_for']}; the last answer was refused: {error}"
            asked = question | {"waiting_for": again, "refused": str(error)}


def plan_question(plan: Plan, digest: str, *, engineer: str, listens: bool) -> Question:
    """Returns the question about a plan, which is stored under `digest`."""
    count = counted(len(plan.tasks), "task")
    return {
        "approve": "plan",
        "waiting_for": f"your word on plan {plan.version} ({count}, by {engineer})",
        "version": plan.version,
        "plan": digest,
        "engineer": engineer,
        "summary": plan.summary,
        "tasks": [_task_fields(task) for task in plan.tasks],
        "answers": [
            f'"{ACCEPT}": it is followed as it is',
            '{"tasks": [...]}: the tasks that stay, in the order wanted, each by its id' + listens * _REWORDED,
            *(['{"comment": "..."}: another plan is made, with this for the engineer to read'] if listens else []),
        ],
        "refused": "",
    }


def code_question(work: Work, before: Files, files: Files) -> Question:
    """Returns the question about a draft with these files, which started from the files `before`."""
    texts = {path: text for path, text in files.items() if isinstance(text, str)}
    changed = {path: text for path, text in texts.items() if before.get(path) != text}
    which = f"{work.task.id} #{work.ordinal}"
    which += f", candidate {work.candidate + 1} of {work.candidates}" if work.candidates > 1 else ""
    return {
        "approve": "code",
        "waiting_for": f"your word on the draft of {which} ({work.task.title})",
        "attempt": work.id,
        "task": _task_fields(work.task),
        "ordinal": work.ordinal,
        "candidate": work.candidate,
        "engineer": work.engineer,
        "note": work.note,
        "program": work.program,
        "files": changed,
        "unchanged": sorted(texts.keys() - changed.keys()),
        "removed": sorted(before.keys() - files.keys()),
        "answers": [
            f'"{ACCEPT}": it is built as it is',
            '{"files": {"kernels/NAME.cu": "whole text", "OTHER": null}}: built with these files instead; null removes one',
        ],
        "refused": "",
    }


def read_plan_answer(answer: Any, plan: Plan, *, listens: bool) -> Plan | str:
    """Returns the plan as answered, or a comment. Raises `AnswerRefused`."""
    if _is_accept(answer):
        return plan
    forms = f'"{ACCEPT}", {{"tasks": [...]}}' + (' or {"comment": "..."}' if listens else "")
    if not isinstance(answer, Mapping) or len(answer) != 1 or not answer.keys() <= {"tasks", "comment"}:
        raise AnswerRefused(f"{_short(answer)} is no answer to a plan: give {forms}")
    if "comment" in answer:
        comment = answer["comment"]
        if not listens:
            raise AnswerRefused("the built-in engineer reads no comments: accept its plan, or edit its tasks")
        if not isinstance(comment, str) or not comment.strip():
            raise AnswerRefused("a comment is a text: say what another plan should do")
        return " ".join(comment.split())[:COMMENT]
    tasks = answer["tasks"]
    if not isinstance(tasks, list | tuple) or not tasks:
        raise AnswerRefused("tasks is a list of those that stay, at least one: give their ids in the order wanted")
    known = {task.id: task for task in plan.tasks}
    kept = [_edited_task(entry, known, listens) for entry in tasks]
    if len({task.id for task in kept}) < len(kept):
        raise AnswerRefused("a task is there twice: name each once")
    return plan.model_copy(update={"tasks": tuple(kept)})


def read_code_answer(answer: Any, files: Files) -> Files | None:
    """Returns the draft's files with those of the answer; None if it was accepted. Raises `AnswerRefused`."""
    if _is_accept(answer):
        return None
    if not isinstance(answer, Mapping) or answer.keys() != {"files"}:
        raise AnswerRefused(f'{_short(answer)} is no answer to a draft: give "{ACCEPT}" or {{"files": {{PATH: TEXT}}}}')
    given = answer["files"]
    if not isinstance(given, Mapping) or not given:
        raise AnswerRefused("files is an object of paths and texts: give at least one file that is to be different")
    result = dict(files)
    for name, text in given.items():
        path = _path(name)
        if path in KEPT_FILES and text != files.get(path):
            raise AnswerRefused(f"{path} states what the program was checked for, the engineer writes it: leave it out")
        if text is None:
            if result.pop(path, None) is None:
                raise AnswerRefused(f"{path} cannot be removed: there is no such file")
        elif not isinstance(text, str) or not _encodes(text):
            raise AnswerRefused(f"{path} is no text: give the whole file as a string, or null to remove it")
        else:
            result[path] = text
    if "model_new.py" not in result:
        raise AnswerRefused("model_new.py cannot be removed: the program is imported from it")
    inside = next((path for path in result for parent in PurePosixPath(path).parents if str(parent) in result), None)
    if inside:
        raise AnswerRefused(f"{inside} lies below what is a file itself: give it another name")
    return None if result == files else result


def _is_accept(answer: Any) -> bool:
    return answer == ACCEPT or (isinstance(answer, Mapping) and dict(answer) == {ACCEPT: True})


def _task_fields(task: Task) -> dict[str, Any]:
    return task.model_dump(mode="json", include=set(SHOWN))


def _edited_task(entry: Any, known: Mapping[str, Task], listens: bool) -> Task:
    """Returns the task that an entry (an id, or an object with id and strategy) names, with its strategy."""
    fields = {"id": entry} if isinstance(entry, str) else entry
    if not isinstance(fields, Mapping) or not isinstance(fields.get("id"), str):
        raise AnswerRefused(f"{_short(entry)} is no task: give its id, or an object with id and strategy")
    task = known.get(fields["id"])
    if task is None:
        raise AnswerRefused(f"there is no task {fields['id']!r} in this plan: it has {', '.join(known)}")
    shown = _task_fields(task)
    for key in fields:
        if key != "strategy" and fields[key] != shown.get(key, ...):
            what = _short(key).strip("'")
            text = f"{what} of task {task.id!r} is not for you to change: reword its strategy, move it or leave it out"
            raise AnswerRefused(text)
    strategy = fields.get("strategy", task.strategy)
    if not isinstance(strategy, str) or not _encodes(strategy):
        raise AnswerRefused(f"the strategy of task {task.id!r} is no text")
    if strategy != task.strategy and not listens:
        raise AnswerRefused(f"the built-in engineer reads no strategies: leave {task.id!r} as it is, or move or drop it")
    return task.model_copy(update={"strategy": strategy})


def _path(name: Any) -> str:
    try:
        return program_path(name if isinstance(name, str) else "")
    except Malformed as error:
        raise AnswerRefused(f"{error}: give paths such as model_new.py or kernels/NAME.cu") from error


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:             # a lone surrogate, which JSON allows
        return False
    return True


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"
