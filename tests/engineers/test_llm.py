"""A chat model as planner, coder and verifier, against a real HTTP server that answers from what the request contains."""

from __future__ import annotations

import dataclasses
import functools
import json
import logging
import re
from pathlib import Path

import pytest

from stitchcuda.compiler.printing.manifest import source_digest
from stitchcuda.engineers import Draft, Files, Looked
from stitchcuda.engineers.chat_engineer import SENTENCE, STRATEGY, _read_file
from stitchcuda.errors import Unusable
from stitchcuda.state import Role
from tests.engineers.briefs import NOT_BUILT, PROGRAM, RIGHT, WRONG, assignment, brief
from tests.engineers.metered_chats import PLAN, REVIEW, TASK, block, by_role, hired, paid_once
from tests.engineers.protocol_server import Request, serve


class Seeing:
    """Implements `engineers.Look`."""

    tools = ("compile", "check", "bench", "profile", "docs")
    gpu_s = 0.0

    def __init__(self) -> None:
        self.compiled: list[Files] = []

    def compile(self, files: Files) -> Looked:
        self.compiled.append(files)
        return Looked(True, "Build: ok.")

    def check(self, files: Files) -> Looked:
        return Looked(True, f"Check: {files['kernels/r01.cu']!s}")

    def bench(self, kernel: str, files: Files) -> Looked:
        return Looked(True, f"{kernel or 'a call'} of {len(files)} files: 3 µs")

    def profile(self, kernel: str) -> str:
        return f"{kernel}: 31 % of the bandwidth"

    def docs(self, query: str) -> Looked:
        return Looked(True, f"{query} waits for the group")


def test_plans_writes_and_reviews(tmp_path: Path) -> None:
    progress: list[Role] = []
    with serve(by_role) as server:
        tools = hired(tmp_path, server, progress=lambda role, chunks: progress.append(role))
        engineer = tools.engineer
        plan = engineer.plan(brief())
        written = engineer.write(assignment())
        review = engineer.review(assignment(), written, RIGHT)
    assert (plan.version, plan.summary, plan.host) == (1, "Fuse the one region.", "one graph")
    assert plan.evidence == ("c" * 64, "d" * 64)
    (task,) = plan.tasks
    assert (task.id, task.kind, task.regions, task.predicted_ms) == ("gelu-norm", "region", ("r01",), 0.004)
    assert written.files["kernels/r01.cu"] == "// does not build\n"
    assert written.files["model_new.py"] == PROGRAM["model_new.py"], "what it does not mention stays"
    assert json.loads(written.files["program.json"])["tasks"] == ["r01"], "the manifest is kept for the coder"
    assert (written.note, written.engineer) == ("One block a row.", "openai:local")
    assert (review.route, review.suggestion) == ("next_task", "none")
    assert [request.schema for request in server.requests] == ["PlanReply", "", "ReviewReply"]
    assert all(request.body["model"] == "local" for request in server.requests)
    assert list(dict.fromkeys(progress)) == ["planner", "coder", "verifier"]
    paid_once(tools, server)
    assert tools.transcript is not None
    assert tools.transcript.usage().usd is None, "no price is known"


def test_digests_in_the_table_of_kernels_are_those_of_the_sources(tmp_path: Path) -> None:
    """A user's build cache does not look at the text of sources: with an old digest it may hand out an old library."""
    row = '    ("r01", "r01", "{}"),\n'
    table = "KERNELS = (  # files, function, digest of the sources\n{}" + row.format("0badf00d") + ")\n"
    before = PROGRAM | {"model_new.py": table.format(""), "kernels/r01.cu": "old", "kernels/r01_binding.cc": "b"}
    files = {
        "model_new.py": table.format(row.replace("r01", "r02").format("")),
        "kernels/r01.cu": '#include "one.cuh"', "kernels/one.cuh": "{}", "kernels/r02.cu": "new", "kernels/r02_binding.cc": "c",
    }  # fmt: skip

    models = []
    for number, header in enumerate(("int a;", "int b;", "int b;")):
        reply = "".join(block(text.replace("{}", header), path) for path, text in files.items())
        with serve(functools.partial(lambda reply, request: reply, reply)) as server:
            tools = hired(tmp_path / str(number), server)
            models.append(str(tools.engineer.write(assignment(program=before, about="a0")).files["model_new.py"]))
            text = server.requests[0].prompt
        assert "Write any digest into the table `KERNELS`" in text
    first, second, third = (re.findall(r'"(r0\d)", "r0\d", "([0-9a-f]{8})"', model) for model in models)
    assert [name for name, _ in first] == ["r02", "r01"]
    assert ("r02", source_digest("new\n", "c\n")[:8]) in first, "as the built-in engineer writes it"
    assert first[1] != second[1] == third[1], "a header is one of the sources"


def test_the_diagnosis_reaches_the_coder(tmp_path: Path) -> None:
    with serve(by_role) as server:
        engineer = hired(tmp_path, server).engineer
        first = engineer.write(assignment(about="a0"))
        second = engineer.write(assignment(last=first, evidence=NOT_BUILT, ordinal=1, about="a1"))
        third = engineer.write(assignment(last=second, evidence=WRONG, ordinal=2, about="a2"))
    kernels = [written.files["kernels/r01.cu"] for written in (first, second, third)]
    assert kernels == ["// does not build\n", "// built now\n", "// right now\n"]


def test_host_tasks_and_earlier_plans(tmp_path: Path) -> None:
    host = PLAN | {"tasks": [TASK | {"name": "graph-replay", "regions": []}]}
    with serve(lambda request: json.dumps(host)) as server:
        engineer = hired(tmp_path, server).engineer
        plan = engineer.plan(brief(plans=(engineer.plan(brief()),)))
    assert (plan.version, plan.tasks[0].id, plan.tasks[0].kind, plan.tasks[0].regions) == (2, "graph-replay", "host", ())


def test_a_server_without_json_schema_is_asked_in_plain_text(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def fenced(request: Request) -> str:
        assert request.role != "planner" or "JSON schema" in request.prompt
        return by_role(request) if request.role == "coder" else f"Here it is:\n```json\n{by_role(request)}\n```\n"

    with serve(fenced, structured=False) as server:
        tools = hired(tmp_path, server)
        plan = tools.engineer.plan(brief())
        tools.engineer.review(assignment(), tools.engineer.write(assignment()), RIGHT)
    assert plan.tasks[0].id == "gelu-norm"
    assert "does not offer json_schema" in plan.summary, "the fallback is recorded with the plan"
    assert "does not offer json_schema" in caplog.text, "and announced"
    assert [request.schema for request in server.requests] == ["PlanReply", "", "", ""], "not tried again in vain"
    paid_once(tools, server)


def test_a_coder_may_look_first(tmp_path: Path) -> None:
    reads = "read kernels/old.cu\nread kernels/old.cu 2-3\nread kernels/old.cu 9-\nread nowhere.cu"
    wishes = f"compile\ncheck\nbench\nbench norm\n{reads}\nprofile norm\ndocs cp.async.wait_group\nrun it"
    found = ("1\n2\n3\n4\n```", "```\n2\n3\n```", "It has 4 lines", "no text file 'nowhere.cu'")

    def looking(request: Request) -> str:
        if len(request.turns) == 1:
            return f"{block('// a try')}```look\n{wishes}\n```\n"
        shown = request.turns[-1]
        results = ("### check (1 of 3)\nCheck: // a try", "a call of 4 files: 3 µs", "### bench norm (2 of 3)")
        for seen in (*found, *results, "Build: ok.", "norm: 31 %", "waits for the group", "no tool 'run'"):
            assert seen in shown, seen
        assert "3 more times" in shown
        return block("// written")

    look = Seeing()
    task = assignment(look=look, program=PROGRAM | {"kernels/old.cu": "1\n2\n3\n4\n"}, about="a" * 16)
    with serve(looking) as server:
        tools = hired(tmp_path, server)
        assert tools.engineer.write(task).files["kernels/r01.cu"] == "// written\n"
        assert look.compiled[0]["kernels/r01.cu"] == "// a try\n", "with the files that stand beside the wish"
        hired(tmp_path, server).engineer.write(task)
    assert (len(server.requests), len(look.compiled)) == (2, 1), "answers and looks are found again"
    paid_once(tools, server)


def test_a_file_is_read_however_it_is_named() -> None:
    files: dict[str, str | bytes] = {"kernels/a.cu": "1\n2\n3\n", "kernels/my k.cu": "x\n", "empty.cu": ""}
    ways = ("kernels/a.cu", "`kernels/a.cu`", "./kernels/a.cu", "'kernels/a.cu'", '"kernels/a.cu"')
    assert {_read_file(way, files) for way in ways} == {("read kernels/a.cu", "```\n1\n2\n3\n```")}
    ways = ("kernels/a.cu 2-3", "`kernels/a.cu` 2-3", "kernels/a.cu:2-3", "kernels/a.cu\t2 - 3", "`kernels/a.cu 2-`")
    assert {_read_file(way, files)[1] for way in ways} == {"```\n2\n3\n```"}
    assert _read_file("kernels/my k.cu", files)[1] == "```\nx\n```"
    for way in ("kernels/a.cu 3-2", "kernels/a.cu 9-", "empty.cu 1-"):
        assert " lines: `read " in _read_file(way, files)[1]
    for way in ("", "`", "nowhere.cu", "kernels/a.cu from 2 to 3", "x" * 10_000, "### look: read kernels/a.cu"):
        head, text = _read_file(way, files)
        assert (head, text.startswith("There is no text file")) == ("read", True)
        assert len(text) <= SENTENCE


def test_looks_come_to_an_end(tmp_path: Path) -> None:
    with serve(lambda request: "```look\ncompile\n```") as server:
        tools = hired(tmp_path, server)
        with pytest.raises(Unusable, match="it looked 4 times, and no look is left"):
            tools.engineer.write(assignment(look=Seeing()))
    assert "Hand in your draft now" in server.requests[-1].turns[-1]
    paid_once(tools, server)


def test_what_was_answered_is_not_asked_again(tmp_path: Path) -> None:
    """A node that runs again comes to the same calls, though the counting of tokens has learnt from replies in between."""
    long = "\n".join(f"// line {number} of a reference that does not fit" for number in range(2000))
    planned = dataclasses.replace(brief(), reference=long)
    wrong = brief(reference=long)
    with serve(by_role, bytes_per_token=3.2) as server:
        for _ in range(2):
            tools = hired(tmp_path, server)
            draft = tools.engineer.write(assignment(wrong, about="b" * 16))
            tools.engineer.review(assignment(wrong, about="b" * 16), draft, WRONG)
            tools.engineer.plan(planned)
        assert len(server.requests) == 3
        tools = hired(tmp_path, server)
        tools.engineer.plan(planned)  # in another order: after a crash only the last node runs again
        tools.engineer.write(assignment(wrong, about="b" * 16))
        assert len(server.requests) == 3
    paid_once(tools, server)


def test_candidates_take_turns_with_the_coders_models(tmp_path: Path) -> None:
    with serve(by_role) as server:
        tools = hired(tmp_path, server, roles={"coder": ("openai:one", "openai:two"), "verifier": ("openai:reader",)})
        given = [assignment(candidate=number, candidates=3, about=f"{number}" * 16) for number in range(3)]
        drafts = [tools.engineer.write(assigned) for assigned in given]
        tools.engineer.review(assignment(), drafts[0], RIGHT)
        tools.engineer.plan(brief())
    assert [draft.engineer for draft in drafts] == ["openai:one", "openai:two", "openai:one"]
    assert [request.body["model"] for request in server.requests] == ["one", "two", "one", "reader", "local"]
    assert ["Yours is number 2" in request.prompt for request in server.requests[:3]] == [False, True, False]


@pytest.mark.parametrize(
    ("reply", "files"),
    [
        (block("// new"), {"kernels/r01.cu": "// new\n", "kernels/mine.cu": "// mine\n"}),
        (f"base: program\n{block('// new')}", {"kernels/r01.cu": "// new\n"}),
        (block("", "kernels/mine.cu") + block("// new"), {"kernels/r01.cu": "// new\n"}),
    ],
    ids=["from the last draft", "from the program", "a file removed"],
)
def test_what_a_draft_starts_from(tmp_path: Path, reply: str, files: Files) -> None:
    with serve(lambda request: reply) as server:
        engineer = hired(tmp_path, server).engineer
        last = dataclasses.replace(engineer.write(assignment()), files=PROGRAM | {"kernels/mine.cu": "// mine\n"})
        written = engineer.write(assignment(last=last, evidence=WRONG, ordinal=1))
    kernels = {path: text for path, text in written.files.items() if path.startswith("kernels/")}
    assert kernels == files


def test_an_exhausted_coder_says_why(tmp_path: Path) -> None:
    with serve(lambda request: "exhausted: it is at the roofline") as server:
        written = hired(tmp_path, server).engineer.write(assignment())
    assert (written.files, written.exhausted) == ({}, "it is at the roofline")


def test_a_draft_that_changes_nothing_is_refused(tmp_path: Path) -> None:
    same = block(str(PROGRAM["model_new.py"]).rstrip(), "model_new.py")
    with serve(lambda request: same) as server, pytest.raises(Unusable, match="same as in the program now"):
        hired(tmp_path, server).engineer.write(assignment())


def test_what_is_said_beside_the_code_is_kept_short(tmp_path: Path) -> None:
    """Later prompts repeat it; the transcript has it whole."""
    long = "words upon words " * 500

    def talkative(request: Request) -> str:
        if request.role == "planner":
            return json.dumps({"summary": long, "host": long, "tasks": [TASK | {"why": long, "strategy": long, "title": long}]})
        if request.role == "verifier":
            return json.dumps(REVIEW | {"bottleneck": long, "suggestion": long, "citations": [long] * 50})
        return block("// code", note=long) if len(request.turns) == 1 else "nothing"

    with serve(talkative) as server:
        tools = hired(tmp_path, server)
        plan = tools.engineer.plan(brief())
        draft = tools.engineer.write(assignment())
        review = tools.engineer.review(assignment(), draft, RIGHT)
    (task,) = plan.tasks
    said = [plan.summary, plan.host, task.title, task.why, task.strategy, draft.note, review.suggestion]
    assert all(text.startswith("words") and text.endswith("…") and len(text) <= STRATEGY for text in said)
    assert sum(map(len, review.citations)) < 5000
    paid_once(tools, server)


def test_plans_are_checked(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Names, regions and predictions that cannot be get one repair, which sees why."""
    caplog.set_level(logging.INFO)
    good = json.dumps(PLAN)
    bad = {
        good.replace('"gelu-norm"', '"Gelu Norm"'): "the name 'Gelu Norm' is none",
        json.dumps(PLAN | {"tasks": [TASK, TASK]}): "planned twice",
        good.replace('"r01"', '"r99"'): "names a region that does not exist: r99",
        good.replace("0.004", "4000"): "the whole program takes 0.02 ms",
        good.replace("0.004", "-1"): "predicted_ms of 'gelu-norm' is -1",
        good.replace('"gelu-norm"', '"done-before"'): "was finished before",
    }
    for number, (text, complaint) in enumerate(bad.items()):

        def answer(request: Request, text: str = text, complaint: str = complaint) -> str:
            return good if len(request.turns) == 3 and complaint in request.turns[2] and request.turns[1] == text else text

        with serve(answer) as server:
            tools = hired(tmp_path / str(number), server)
            assert tools.engineer.plan(brief(finished=("done-before",))).tasks[0].id == "gelu-norm", complaint
            paid_once(tools, server)


def test_a_reviewer_may_read_files_twice_and_settles_by_number(tmp_path: Path) -> None:
    files = PROGRAM | {"kernels/r01.cu": "".join(f"// line {at}\n" for at in range(1, 400))}
    asking = REVIEW | {"bottleneck": "", "read": ["kernels/r01.cu 390-392", "read kernels/gone.cu"]}

    def answer(request: Request) -> str:
        if "// line 391" not in request.prompt:
            return json.dumps(asking)
        return json.dumps(REVIEW | {"settled": ["#2", 9], "read": ["model_new.py"], "bottleneck": "seen"})

    seen = assignment(brief(suggestions=("a #0: wider loads", "b #1: one launch")), program=files)
    with serve(answer) as server:
        review = hired(tmp_path, server).engineer.review(seen, Draft(files=files), RIGHT)
    assert (review.bottleneck, review.settled) == ("seen", ("b #1: one launch",))
    assert len(server.requests) == 3, "asked for more the second time, and then took what was written beside it"
    first, second, third = (request.turns for request in server.requests)
    assert "2. b #1: one launch" in first[0]
    assert "### read kernels/r01.cu 390-392\n```\n// line 390\n// line 391\n// line 392\n```" in second[-1]
    assert "There is no text file 'kernels/gone.cu'" in second[-1]
    assert "You may look 1 more time." in second[-1]
    assert "no looks left" in third[-1]
