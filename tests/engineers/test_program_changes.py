"""A reviewer is shown a few lines for a small change, kernels whole, and nothing that is generated."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

from stitchcuda.compiler.printing.program import loader_text, prelude_parts
from stitchcuda.engineers import Draft, Files
from stitchcuda.engineers.diagnosis import RACE_ACCESSES, describe_unchecked
from stitchcuda.engineers.program_changes import describe_changes
from stitchcuda.engineers.prompt import REVIEW_MOST, verifier_prompt
from stitchcuda.engineers.prompt_values import PromptBudget
from stitchcuda.engineers.tokens import TokenCounter
from stitchcuda.state import Review, Task
from tests.engineers.briefs import PLAN, PROGRAM, RIGHT, TASK, assignment
from tests.engineers.test_named_defect import BINDING, KERNEL, MODEL, RACY, SAFE

COUNTER = TokenCounter("unknown")
ROOM = PromptBudget(COUNTER)
OTHER = "".join(f"__global__ void other{n}(float* y) {{\n    y[threadIdx.x] = {n}.0f;\n}}\n\n" for n in range(200))
CUDA = OTHER + KERNEL.replace("FENCED", RACY)
PRELUDE = "\n\n\n".join([*prelude_parts().values(), loader_text().strip()])
WHOLE: Files = {
    "model_new.py": f"{PRELUDE}\n\n{MODEL}", "program.json": "{}", "kernels/total.cu": CUDA,
    "kernels/total_binding.cc": BINDING,
}  # fmt: skip


def changes(before: Files, after: Files, tokens: int = 6000) -> str:
    return describe_changes(before, after, tokens, COUNTER).text


def test_a_fix_of_one_line_of_a_kernel_is_its_kernel_and_nothing_else() -> None:
    text = changes(WHOLE, WHOLE | {"kernels/total.cu": CUDA.replace(RACY, SAFE)})
    assert len(CUDA) > 13_000
    assert len(text) < 1800
    assert "__global__ void total_kernel" in text
    assert "        y[0] = sum;" in text, "the kernel is whole"
    assert "other199" not in text
    assert "total_kernel<<<" not in text
    assert "\n+        __threadfence();\n" in text
    assert "\n-        __threadfence();\n" in text
    assert text.startswith("### kernels/total.cu: 1 added, 1 removed, 8")
    assert re.search(r"@@ 80\d unchanged lines @@", text)


def test_a_fix_of_one_line_of_python_is_a_few_lines() -> None:
    fixed = str(WHOLE["model_new.py"]).replace("x.new_empty(64)", "x.new_zeros(64)")
    text = changes(WHOLE, WHOLE | {"model_new.py": fixed})
    assert len(text.splitlines()) <= 13
    assert "+        partial, y = x.new_zeros(64), x.new_empty(())" in text


def test_bindings_and_generated_text_are_named_only() -> None:
    text = changes({"model_new.py": MODEL}, WHOLE, 20_000)
    assert "new, a binding of" in text
    assert "TVM_FFI" not in text
    assert re.search(r"^\+class GraphReplay: \.\.\.  # \d+ generated lines, not shown$", text, re.MULTILINE)
    assert "_replay_at" not in text
    assert "capture" not in text.split("GraphReplay")[1].split("load_kernels")[0]
    assert text.index("kernels/total.cu") < text.index("model_new.py"), "kernels come first"
    rewritten = WHOLE | {"kernels/total_binding.cc": BINDING.replace("    ", "  ")}
    assert "a binding, not shown" in changes(WHOLE, rewritten)
    guarded = WHOLE | {"kernels/total_binding.cc": BINDING.replace('want(y, 1, "y");', 'want(y, 2, "y");')}
    assert '+    want(y, 2, "y");' in changes(WHOLE, guarded)


def test_what_is_gone_is_named_and_long_removals_are_short() -> None:
    text = changes(WHOLE, {"model_new.py": MODEL, "program.json": "{}"})
    assert "### kernels/total.cu: removed" in text
    assert "more removed lines @@" in text
    assert len(text.splitlines()) < 25


def test_added_and_removed_lines_are_counted_apart() -> None:
    old = "".join(f"// line {number}\n" for number in range(2085))
    text = changes({"kernels/a.cu": old}, {"kernels/a.cu": KERNEL})
    assert text.startswith(f"### kernels/a.cu: {len(KERNEL.splitlines())} added, 2,085 removed, "), text[:80]


def test_every_kernel_that_changed_is_whole_where_there_is_room() -> None:
    long = "".join(f"    y[{at}] = x[{at}] * 2.0f;  // line {at}\n" for at in range(400))
    body = "__global__ void NAME(const float* x, float* y) {\n" + long + "}\n"
    before: Files = PROGRAM | {f"kernels/{name}.cu": body.replace("NAME", name) for name in "abc"}
    after: Files = {path: str(text).replace("[399] * 2.0f", "[399] * 3.0f") for path, text in before.items()}
    after |= {"kernels/new.cu": body.replace("NAME", "fresh")}
    shown = verifier_prompt(assignment(program=before), Draft(files=after), RIGHT, ROOM)
    assert shown.count("  // line 200\n") == 4, "each of the kernels is shown whole"
    assert "Cut here" not in shown
    after |= {"kernels/huge.cu": body.replace("NAME", "huge").replace("// line", "// far") * 4}
    shown = verifier_prompt(assignment(program=before), Draft(files=after), RIGHT, ROOM)
    assert COUNTER.count(shown) <= REVIEW_MOST
    assert shown.count("  // line 200\n") == 4, "the longest one is cut, not the others"
    assert "Cut here for lack of room: kernels/huge.cu. `read` shows them." in shown


def test_a_kernel_of_the_last_draft_is_shown_with_the_next_one() -> None:
    first = WHOLE | {"kernels/more.cu": OTHER}
    second = first | {"kernels/total.cu": CUDA.replace(RACY, SAFE)}
    seen = assignment(program=WHOLE, last=Draft(files=first), ordinal=1, kept=("r07",))
    far = seen.program | {"kernels/total.cu": "// another\n" * 900}
    text = verifier_prompt(dataclasses.replace(seen, program=far), Draft(files=second), RIGHT, ROOM)
    assert "as in the last draft: kernels/more.cu." in text
    assert "void other199" in text


def test_a_review_of_the_whole_program_sees_the_entry_and_the_model_whole() -> None:
    start: Files = {"model_new.py": MODEL.replace("in one kernel", "in torch"), "kernels/total_binding.cc": "// none\n"}
    text = verifier_prompt(assignment(program=WHOLE, started_from=start), Draft(files=WHOLE), RIGHT, ROOM)
    assert 'want(x, 64 * 256, "x");' in text
    assert "\n     def forward(self, x):\n" in text, "also what did not change"


def test_what_does_not_fit_is_cut_and_never_left_out_in_silence() -> None:
    new = WHOLE | {"kernels/total.cu": CUDA.replace(RACY, SAFE), "model_new.py": MODEL}
    for tokens in (2000, 300, 60, 5):
        text = changes(WHOLE, new, tokens)
        assert COUNTER.count(text) < tokens + 60
        assert "kernels/total.cu" in text
        assert "model_new.py" in text


def test_no_change_is_no_text() -> None:
    assert changes(WHOLE, WHOLE | {"program.json": json.dumps({"tasks": []})}) == ""


def test_a_reviewer_sees_the_change_since_the_last_draft_and_what_follows() -> None:
    fixed = WHOLE | {"kernels/total.cu": CUDA.replace(RACY, SAFE)}
    later = Task(id="tail", kind="host", title="one graph", predicted_ms=0.004)
    seen = assignment(last=Draft(files=WHOLE), ordinal=1, plan=PLAN.model_copy(update={"tasks": (TASK, later)}), kept=("r07",))
    text = verifier_prompt(seen, Draft(files=fixed, note="moved the fence"), RIGHT, ROOM)
    for needed in (
        "since the last draft of this task (attempt 2 of this task)\nmoved the fence",
        "kernels/total.cu: 1 added, 1 removed, ",
        "as in the last draft: model_new.py, kernels/total_binding.cc.", "- tail: one graph (predicted 4 µs)",
        "not checked: races of a kernel behind its first 500,000 accesses",
    ):  # fmt: skip
        assert needed in text, needed
    assert "other199" not in text


def test_the_last_review_is_of_all_that_changed_once() -> None:
    draft = Draft(files=WHOLE)
    text = verifier_prompt(assignment(program=WHOLE, started_from=PROGRAM), draft, RIGHT, ROOM)
    for needed in ("It is the last task of the plan.", "since the model started", "look at the whole program", "total_kernel"):
        assert needed in text, needed
    reviewed = Review(bottleneck="a race", suggestion="none", route="code", whole=True)
    fixed = Draft(files=WHOLE | {"kernels/total.cu": CUDA.replace(RACY, SAFE)})
    again = assignment(program=WHOLE, started_from=PROGRAM, last=draft, review=reviewed, ordinal=1)
    assert "kernels/total.cu: 1 added, 1 removed, " in verifier_prompt(again, fixed, RIGHT, ROOM)


def test_what_is_never_looked_for_is_true_of_the_simulator() -> None:
    header = Path(__file__).parents[2] / "stitchcuda" / "simulator" / "runtime" / "access_check.h"
    assert f"kMost = {RACE_ACCESSES:_};".replace("_", "'") in header.read_text()
    assert any("nothing looks for them on a GPU" in text for text in describe_unchecked("timed"))
    assert len(describe_unchecked("measured", sanitized=True)) == 1
