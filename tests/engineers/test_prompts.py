"""Each role is shown what it needs within its share of tokens, and a template that names a missing field fails."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path

import pytest
import tvm_ffi
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from jinja2 import UndefinedError

from stitchcuda.engineers import Assignment, Draft
from stitchcuda.engineers.chat_engineer import PARAGRAPH, SENTENCE
from stitchcuda.engineers.diagnosis import describe_evidence, without_untouched
from stitchcuda.engineers.markdown_templates import render_markdown
from stitchcuda.engineers.prompt import (
    AGAIN_MOST,
    FIRST_MOST,
    LOOKED,
    REVIEW_MOST,
    coder_prompt,
    look_results,
    planner_prompt,
    verifier_prompt,
)
from stitchcuda.engineers.prompt_values import SHARES, PromptBudget
from stitchcuda.engineers.tokens import TokenCounter
from stitchcuda.state import (
    BuildResult,
    CheckResult,
    Evidence,
    KernelUsage,
    OutputError,
    ProfileResult,
    Review,
    Settings,
    TimingResult,
)
from stitchcuda.tools.device.toolkit import find_toolkit, missing
from tests.engineers.briefs import ATTEMPT, PLAN, PROGRAM, REFERENCE, REGION, RIGHT, TASK, WRONG, assignment, brief

MOST, TALKED = 24_000, 24_000
COUNTER = TokenCounter("unknown")
ROOM = PromptBudget(COUNTER)
NOT_LINKED = Evidence(build=BuildResult(ok=False, log="undefined reference to `row_launch'"))
TIMING = TimingResult(
    reference_ms=2.0, previous_ms=1.5, program_ms=1.0, saving_ms=0.5, saving_low_ms=0.4, saving_high_ms=0.6, samples=50
)
REVIEW = Review(bottleneck="it does not build", suggestion="declare xs", route="code", expected_gain="a build")


def test_planner_sees_program_costs_and_record() -> None:
    settings = Settings(policy="strict", precision="bf16", goal=1.5)
    seen = brief(
        settings, history=(ATTEMPT,), plans=(PLAN,), kept=("r07",), finished=("r07", "old-task"), program=PROGRAM,
        program_ms=0.01, profile=("80 % in gemm",), notes=("ncu was skipped",), lessons=("split products paid on this GPU",),
    )  # fmt: skip
    text = planner_prompt(seen, ROOM)
    for needed in (
        "the reference's own words",
        "NVIDIA H200", "132 SMs", "4300 GB/s",
        "r01: gelu + layer_norm [fusible]", "x [8, 64] float32 strides [64, 1]", "8.45 kB → 4.35 kB", "12 kFLOP", "2 launches",
        "Eager: not timed; 0.02 ms predicted", "floor: 0.8 µs for the whole program as one kernel, bound by launch",
        "12 kFLOP; floor 0.8 µs, bound by launch", "Nominal figures",
        "strict (no framework compute", "bf16 is allowed", "Goal: 1.5×",
        "A call takes 0.01 ms measured; by the cost model", "class ModelNew", "- 80 % in gemm", "taken: r07, old-task",
        "Plan 1: one region",
        "- r01: predicted 5 µs, not timed; open after 1 draft (not correct: output 0 is wrong)",
        "- ncu was skipped", "- split products paid on this GPU",
        "r01 #0: predicted 5 µs, saving not timed; not kept, then code (not correct). Error: output 0 is wrong",
        "simulator",
    ):  # fmt: skip
        assert needed in text, needed
    assert "None" not in text
    assert "Nothing is stitched yet: torch runs every operator" in planner_prompt(brief(), ROOM)


def test_eager_is_what_was_timed_beside_the_program() -> None:
    """Another day's eager time, such as the baseline's, gives a ratio that nobody measured."""
    plain = brief(program_ms=2.0, speedup=1.5)
    seen = dataclasses.replace(plain, baseline=plain.baseline.model_copy(update={"eager_ms": 777.0}))
    planner, coder = planner_prompt(seen, ROOM), coder_prompt(assignment(seen), ROOM)
    for text in (planner, coder):
        assert "2 ms measured, 1.50× over eager beside it (3 ms)" in text
        assert "777 ms" not in text
    assert "Eager: 3 ms measured beside the program now." in planner
    untimed = dataclasses.replace(seen, program_ms=None, speedup=None)
    assert "Eager: 777 ms measured.\n" in planner_prompt(untimed, ROOM)


def test_planner_and_coder_are_told_the_same_of_build_inputs_and_state() -> None:
    plain = brief(Settings(target="cuda"), cuda="13.0.88")
    device = plain.baseline.device.model_copy(update={"target": "cuda"})
    seen = dataclasses.replace(plain, baseline=plain.baseline.model_copy(update={"device": device}))
    for text in (planner_prompt(seen, ROOM), coder_prompt(assignment(seen), ROOM)):
        assert "Kernels are built for sm_90a by nvcc 13.0.88;" in text
        for once in ("Checked on secret inputs", "May be kept between", "- Forbidden: ", "`_version`", "causal mask half"):
            assert text.count(once) == 1, once
    assert "built for" not in coder_prompt(assignment(plain), ROOM), "the simulator builds for no GPU"


def test_planner_compares_prediction_with_measurement() -> None:
    found = {"saving_ms": 0.02, "correct": True, "kept": True, "diagnosis": "", "note": "two rows"}
    text = planner_prompt(brief(history=(ATTEMPT.model_copy(update=found),)), ROOM)
    assert "predicted 5 µs, saved 0.02 ms; kept, then code (not correct). two rows" in text


def test_planner_sees_every_region_where_not_all_can_be_described() -> None:
    (known,) = [region for region in brief().regions if region.id == "r01"]
    update = {"eager_bytes": 10**9, "inputs": known.inputs * 300, "title": "the largest"}
    regions = [known.model_copy(update={"id": f"r{at:03}", "eager_bytes": 1000 + at}) for at in range(300)]
    regions = [region.model_copy(update={"title": f"kind {at % 20}"}) for at, region in enumerate(regions)]
    regions[30] = regions[30].model_copy(update=update)
    text = planner_prompt(dataclasses.replace(brief(), regions=tuple(regions)), ROOM)
    section = text.split("## Regions")[1].split("\n## ")[0]
    assert all(region.id in section for region in regions)
    assert "left out)" not in section
    assert "### r030: the largest [fusible]" in section
    assert "x [8, 64] float32 strides [64, 1]; … (" in section, "hundreds of tensors are not listed"
    (line,) = [line for line in section.splitlines() if line.startswith("r000, r020, r040, ")]
    assert line.endswith(f": kind 0 [fusible] × 1; operators: {', '.join(known.operators)}")
    assert COUNTER.count(section) < SHARES["regions"] + 50


def test_planner_sees_an_unrolled_program_folded() -> None:
    step = "        joined = torch.cat((x[{0}], h), dim=1)\n        h = F.linear(joined, self.weight)  # {0}\n"
    steps = [step.format(at) for at in range(999)]
    model = "class ModelNew(nn.Module):\n    def forward(self, x):\n" + "".join(steps) + "        return h.relu()\n"
    text = planner_prompt(brief(program={"model_new.py": model}, kept=("r01",)), ROOM)
    for needed in ("x[0], h", "x[1], h", "(997 more of the same 2 lines, with other numbers)\n        return h.relu()"):
        assert needed in text, needed
    assert "left out)" not in text
    short = "class ModelNew(nn.Module):\n    def forward(self, x):\n" + "".join(steps[:20])
    assert "of the same" not in planner_prompt(brief(program={"model_new.py": short}, kept=("r01",)), ROOM), "there is room"


def test_planner_is_told_of_errors_that_come_back() -> None:
    again = ATTEMPT.model_copy(update={"fingerprint": "f", "id": "a2"})
    assert "- Seen 2 times: output 0 is wrong" in planner_prompt(brief(history=(again, again)), ROOM)


def test_planner_reads_why_a_gpu_was_not_measured() -> None:
    plain = brief()
    device = plain.baseline.device.model_copy(update={"note": "the GPU is busy with something else"})
    text = planner_prompt(dataclasses.replace(plain, baseline=plain.baseline.model_copy(update={"device": device})), ROOM)
    assert "nothing was measured. (the GPU is busy with something else)\n" in text


def test_coder_starts_from_the_program_and_the_region() -> None:
    seen = brief(program_ms=0.5, profile=("60 % in layer_norm",), lessons=("read x once",))
    plan = PLAN.model_copy(update={"host": "one graph"})
    text = coder_prompt(assignment(seen, kept=("r07",), docs="cp.async copies", plan=plan), ROOM)
    for needed in (
        'gelu = aten.gelu.default(x, approximate="tanh")  # [8, 64] float32',
        "layer_norm = aten.layer_norm.default(gelu, [64], self.norm.weight)",
        "### model_new.py\n```python\nclass ModelNew: ...",
        "tasks in it: r07; a call takes 0.5 ms", "those that the program passes now count",
        "- 60 % in layer_norm", "- read x once", "cp.async copies", "How the host side should look in the end: one graph",
        "Task r01: fuse gelu into layer_norm", "two launches where one is enough",
        "TVM_FFI_DLL_EXPORT_TYPED_FUNC",
        'never write `"cuda"`',
        "## Answer",
    ):  # fmt: skip
        assert needed in text, needed
    for absent in ("last draft", "What the tools say", "You are one of", "```look"):
        assert absent not in text, absent


@pytest.mark.parametrize(
    ("evidence", "needed"),
    [
        (NOT_LINKED, ["undefined reference to `row_launch'"]),
        (WRONG, ["WRONG, worst error 0.5 (allowed 1e-05, 50,000.0 times too much)", "worst at [3, 63]", "NOT correct"]),
    ],
)
def test_coder_sees_why_the_last_draft_failed(evidence: Evidence, needed: list[str]) -> None:
    draft = Draft(files=PROGRAM | {"kernels/r01.cu": "// last draft"}, note="first try")
    text = coder_prompt(assignment(last=draft, evidence=evidence, review=REVIEW, ordinal=1), ROOM)
    for wanted in [*needed, "// last draft", "first try", "Suggestion: declare xs (expected: a build)", "(attempt 1)"]:
        assert wanted in text, wanted
    assert text.count("class ModelNew: ...") == 1, "unchanged files of the draft are not repeated"
    program = next(line for line in text.splitlines() if line.startswith("## The program now"))
    assert program.endswith("files that your last draft changed stand further down, as it has them: edits go on from it)")
    assert "## Your last draft (attempt 1): what you write goes on from it, not from the program now" in text
    same = coder_prompt(assignment(last=Draft(files=PROGRAM, note="kept"), evidence=RIGHT, review=REVIEW, ordinal=1), ROOM)
    assert "goes on from it, not from" not in same
    assert "edits go on from it)" not in same


def test_coder_sees_which_variant_was_faster() -> None:
    right = ATTEMPT.model_copy(update={"correct": True, "saving_ms": 0.1})
    slow = right.model_copy(update={"ordinal": 0, "program_ms": 0.4, "note": "shared memory"})
    fast = right.model_copy(update={"ordinal": 1, "program_ms": 0.3, "note": "registers"})
    text = coder_prompt(assignment(earlier=((slow, REVIEW), (fast, REVIEW)), ordinal=2), ROOM)
    assert text.index("- 0.3 ms: #1 registers") < text.index("- 0.4 ms: #0 shared memory")
    assert "Then suggested: declare xs" in text


def test_coder_is_given_a_generated_kernel_to_start_from() -> None:
    text = coder_prompt(assignment(), ROOM)
    assert "### kernels/gelu_layer_norm_r01.cu" in text
    assert "__global__ void __launch_bounds__" in text
    later = assignment(last=Draft(files=PROGRAM | {"kernels/r01.cu": "// mine"}), evidence=WRONG, ordinal=1)
    assert "gelu_layer_norm_r01.cu" not in coder_prompt(later, ROOM), "its own draft takes the place"


def test_each_of_several_coders_is_asked_for_something_else() -> None:
    texts = [coder_prompt(assignment(candidate=number, candidates=3), ROOM) for number in range(3)]
    assert all(f"Yours is number {number + 1}" in text for number, text in enumerate(texts))
    assert len({text.split("Yours is number")[1].split("\n")[0][3:] for text in texts}) == 3


def test_verifier_sees_evidence_by_tier() -> None:
    draft = Draft(files=PROGRAM | {"kernels/r01.cu": "// the change"}, note="fused")
    text = verifier_prompt(assignment(), draft, RIGHT, ROOM)
    for needed in ("tier simulated", "Nothing was timed", "own kernels 90%", "// the change", "exactly one", "fused"):
        assert needed in text, needed
    timed = Evidence(build=BuildResult(ok=True), check=RIGHT.check, timing=TIMING, tier="timed")
    text = verifier_prompt(assignment(), draft, timed, ROOM)
    assert "2.00× over eager" in text
    assert "Saved against the program before it: 0.5 ms (95 % interval 0.4 to 0.6" in text
    assert "do not claim a speed" not in text


def test_diagnosis_tells_resources_and_profiles() -> None:
    usage = KernelUsage(name="k", registers=255, shared_bytes=1024, spill_bytes=64)
    text = describe_evidence(
        Evidence(
            build=BuildResult(ok=True, kernels=(usage,)),
            system=ProfileResult(tool="nsys", skipped="no GPU"),
            kernels=ProfileResult(tool="ncu", bottleneck="memory throughput 31 %", lines=("k: 12 µs",)),
            tier="compiled",
        )
    )
    assert "k: 255 registers, 1024 B shared, 64 B spilled" in text
    assert "nsys: skipped (no GPU)." in text
    assert "ncu: memory throughput 31 %\n- k: 12 µs" in text


def test_an_output_that_a_reason_tells_all_of_is_told_once() -> None:
    def wrong(name: str, note: str, error: float, bound: float) -> OutputError:
        return OutputError(
            name=name, ok=False, note=note, max_error=error, max_bound=bound, norm_error=error, norm_bound=bound
        )  # fmt: skip

    nan, far = wrong("output", "NaN in 8 of 8 elements", 0.0, 0.0), wrong("other", "worst at [3]", 0.5, 0.1)
    reasons = ("output NaN in 8 of 8 elements", "other: worst at [3]")
    check = CheckResult(ok=False, tier="simulated", seeds=1, outputs=(nan, far), reasons=reasons)
    text = describe_evidence(Evidence(build=BuildResult(ok=True), check=check))
    assert text.count("NaN in 8 of 8") == 1
    assert "- other: WRONG, worst error 0.5 (allowed 0.1" in text
    unsaid = check.model_copy(update={"reasons": ("output 0 is wrong",)})
    assert "- output: WRONG, NaN in 8 of 8 elements" in describe_evidence(Evidence(build=BuildResult(ok=True), check=unsaid))


@pytest.mark.parametrize(("ok", "seeds", "counted"), [(True, 1, True), (False, 2, True), (False, 1, False)])
def test_launches_of_a_first_call_are_not_told_as_those_of_a_call(ok: bool, seeds: int, counted: bool) -> None:
    """A program that replays a graph launches five times as many in its first call: it warms up, records, and replays."""
    check = CheckResult(ok=ok, tier="simulated", seeds=seeds, own_share=0.6, vendor_share=0.4, launches=20)
    text = describe_evidence(Evidence(build=BuildResult(ok=True), check=check, tier="simulated"))
    assert "Shares of work: own kernels 60%, vendor libraries 40%" in text
    assert ("20 own launches a call" in text) is counted


def test_resources_of_kernels_that_a_draft_did_not_touch_are_left_out() -> None:
    def usage(name: str) -> KernelUsage:
        return KernelUsage(name=f"void (anonymous namespace)::{name}(float const*, float*)", registers=24)

    old, mine = "__global__ void old_kernel() {}", "__global__ void mine_kernel() {}"
    names = ("old_kernel<true>", "old_kernel<false>", "mine_kernel", "by_macro")
    built = BuildResult(ok=True, kernels=tuple(map(usage, names)))
    evidence = Evidence(build=built, tier="compiled")
    before = PROGRAM | {"kernels/old.cu": old}
    after = before | {"kernels/mine.cu": mine}
    text = describe_evidence(without_untouched(evidence, before, after))
    assert "old_kernel" not in text
    assert "2 kernels of files that the draft did not change left out" in text
    assert "mine_kernel: " in text
    assert "by_macro: " in text, "no unchanged file has its name"
    for every in (before, after | {"kernels/common.cuh": "// new"}):
        assert without_untouched(evidence, before, every) == evidence
    made = Draft(files=after, note="")
    assert "old_kernel" not in verifier_prompt(assignment(program=before), made, evidence, ROOM)
    assert "old_kernel" not in coder_prompt(assignment(program=before, last=made, evidence=evidence, ordinal=1), ROOM).split(
        "### What the tools say of it")[1]
    assert "old_kernel<true>: " in verifier_prompt(assignment(), Draft(files=PROGRAM, note=""), evidence, ROOM)


def test_a_field_that_nobody_gives_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "page.md.j2").write_text("{{ nobody_gives_this }}")
    with pytest.raises(UndefinedError, match="nobody_gives_this"):
        render_markdown(tmp_path / "page.md.j2")


def test_an_opaque_program_is_said_to_be_one() -> None:
    plain = brief()
    opaque = dataclasses.replace(plain, baseline=plain.baseline.model_copy(update={"opaque": "control flow depends on data"}))
    text = planner_prompt(opaque, ROOM)
    assert "could not be captured (control flow depends on data)" in text
    assert REFERENCE in text


def endless(lines: int, line: str, said: int = 150) -> Assignment:
    """Everything that may grow, grown; what a model says beside its code has `said` characters, or as many as are kept."""
    long = "\n".join(f"// {number}: {line}" for number in range(lines))
    sentence, paragraph = (line * SENTENCE)[: min(said, SENTENCE)], (line * PARAGRAPH)[: min(said, PARAGRAPH)]
    functions = (f"def f{at}(x):\n    '''{line}'''\n    y = x\n    z = y\n    return z" for at in range(lines))
    kernels = {f"kernels/k{at}.cu": long for at in range(max(lines // 100, 1))}
    program = PROGRAM | kernels | {"model_new.py": "\n".join(functions)}
    failed = {"note": sentence[:300], "diagnosis": sentence[:300], "route_reason": sentence[:200]}
    tried = tuple(ATTEMPT.model_copy(update=failed | {"ordinal": at, "fingerprint": f"{at % 3}"}) for at in range(lines // 10))
    review = Review(bottleneck=sentence, suggestion=paragraph, route="code", expected_gain=sentence)
    names = tuple(f"a-task-of-many-{at}" for at in range(30))
    seen = brief(
        reference=long, history=tried, notes=(sentence,) * 20, lessons=(line,) * lines, profile=(line,) * lines,
        program=program, plans=(PLAN.model_copy(update={"summary": sentence}),) * 10, finished=names, kept=names,
    )  # fmt: skip
    log = "\n".join(f"kernels/r01.cu({at}): error: {line}" for at in range(lines))
    return assignment(
        seen, task=TASK.model_copy(update={"why": sentence, "strategy": paragraph}), program=program, kept=names, docs=long,
        last=Draft(files=program | {f"kernels/n{at}.cu": long for at in range(3)}, note=sentence), review=review, candidates=4,
        evidence=Evidence(build=BuildResult(ok=False, log=log)), earlier=tuple((one, review) for one in tried),
        plan=PLAN.model_copy(update={"host": paragraph}),
    )  # fmt: skip


@settings(max_examples=3, deadline=None, derandomize=True, phases=(Phase.explicit, Phase.generate))
@example(lines=800, line="x = y;  // a comment such as there are many of, and as long as lines are that people write")
@given(lines=st.sampled_from([10, 800]), line=st.text(alphabet="abc .;(){}_0μ中", min_size=30, max_size=200))
def test_no_session_is_too_long_for_a_prompt(lines: int, line: str) -> None:
    one = endless(lines, line)
    assert one.last is not None
    assert one.evidence is not None
    body = "\n".join(["```", *[line] * lines, "```"])
    texts = {
        "planner": planner_prompt(one.brief, ROOM),
        "coder": coder_prompt(one, ROOM),
        "coder at first": coder_prompt(dataclasses.replace(one, last=None, evidence=None, review=None, earlier=()), ROOM),
        "verifier": verifier_prompt(one, one.last, one.evidence, ROOM),
        "looked": look_results(f"{LOOKED}read a.cu\n{body}\n\n{LOOKED}compile\n{body}", 2, ROOM),
    }
    for role, text in texts.items():
        assert COUNTER.count(text) <= (REVIEW_MOST if role == "verifier" else MOST), role
        fences = [found for found in text.splitlines() if found.startswith("```")]
        assert len(fences) % 2 == 0, role


def test_files_are_read_whole_and_in_turn() -> None:
    """What is edited has to be seen: no file loses its middle, and one that is begun says how to go on."""
    def read(head: str, lines: int) -> str:
        body = (f"{head.split()[0]} line {at} of the file" for at in range(1, lines + 1))
        return "\n".join([f"{LOOKED}read {head}", "```", *body, "```"])

    compiled = f"{LOOKED}compile\nmodel_new.py: error"
    seen = [read("a.cu", 300), read("b.cu", 900), compiled, read("c.cu", 10), f"{LOOKED}read d.cu\nnone"]
    text = look_results("\n\n".join(seen), 2, ROOM)
    assert all(f"a.cu line {at} of" in text for at in range(1, 301))
    begun = [at for at in range(1, 901) if f"b.cu line {at} of" in text]
    assert begun == list(range(1, len(begun) + 1))
    assert 100 < len(begun) < 900
    assert f"(Lines 1 to {len(begun)} of 900: `read b.cu {len(begun) + 1}-` shows the rest.)" in text
    assert "### read c.cu\n(Not shown" in text
    assert "model_new.py: error" in text
    assert "### read d.cu\nnone" in text
    rest = look_results(read(f"b.cu {len(begun) + 1}-", 900), 1, ROOM)
    assert f"(Lines {len(begun) + 1} to " in rest
    assert f" of {len(begun) + 900}: " in rest


def test_a_program_without_a_list_of_its_kernels_is_shown_whole() -> None:
    """Where other sections leave room, the program takes it: nothing says that the kernel serves another region."""
    model = "import torch\n\n" + "".join(f"def part_{at}(x):\n" + "    x = x + 1\n" * 8 + "    return x\n" for at in range(60))
    kernel = "".join(f"// line {at} of a kernel that serves no region\n" for at in range(100))
    shown = coder_prompt(assignment(program=PROGRAM | {"model_new.py": model, "kernels/host.cu": kernel}), ROOM)
    assert model.rstrip() in shown
    assert kernel.rstrip() in shown
    assert kernel not in planner_prompt(brief(program=PROGRAM | {"kernels/host.cu": kernel}), ROOM)
    assert COUNTER.count(shown) <= FIRST_MOST
    assert "not shown" in coder_prompt(assignment(program=PROGRAM | {"model_new.py": model * 5}), ROOM)


def test_one_look_has_a_bound_whatever_it_asks_for() -> None:
    many = "\n".join(f"{LOOKED}docs word {at}\n" + "a line of documentation\n" * 400 for at in range(40))
    assert COUNTER.count(look_results(many, 2, ROOM)) < 9000
    assert "### read\nThere is" in look_results(f"{LOOKED}read\nThere is no text file.", 2, ROOM)
    assert "### compile" in look_results(f"{LOOKED}compile\n", 2, ROOM)


def test_words_of_another_alphabet_take_no_more_room() -> None:
    text = coder_prompt(endless(300, "// 中文字符注释 很多很多", said=4000), ROOM)
    assert COUNTER.count(text) < MOST


def test_the_last_draft_is_shown_whole_where_there_is_room() -> None:
    kernel = "".join(f"float v{at} = x[{at}] * scale;  // of a long kernel\n" for at in range(450))
    one = assignment(last=Draft(files=PROGRAM | {"kernels/long.cu": kernel}, note="a try"), evidence=WRONG)
    assert kernel.rstrip() in coder_prompt(one, ROOM)
    endless = dataclasses.replace(one, last=Draft(files=PROGRAM | {"kernels/long.cu": kernel * 9}, note="a try"))
    text = coder_prompt(endless, ROOM)
    assert "lines left out)" in text
    assert COUNTER.count(text) <= AGAIN_MOST


def test_a_talkative_model_does_not_crowd_out_the_program() -> None:
    text = coder_prompt(endless(500, "many words, ", said=10_000), ROOM)
    assert COUNTER.count(text) < TALKED


def test_a_smaller_window_gets_a_smaller_prompt() -> None:
    one = endless(500, "a line of text")
    sizes = [COUNTER.count(coder_prompt(one, PromptBudget(COUNTER, scale))) for scale in (1.0, 0.6, 0.36)]
    assert sizes[0] > sizes[1] > sizes[2]
    assert sizes[2] < 0.6 * sizes[0]


def test_the_example_in_the_prompt_builds_and_runs(tmp_path: Path) -> None:
    """On this machine's own compilers: what the model is told to write must be right."""
    kit = find_toolkit()
    assert kit is not None, missing()
    text = coder_prompt(assignment(), ROOM).split("The form, for one launcher")[1]
    for fence, name in (("cuda", "scale.cu"), ("cpp", "scale_binding.cc")):
        (tmp_path / name).write_text(text.split(f"```{fence}\n")[1].split("```")[0])
    command: list[str | Path] = [kit.nvcc, "-cubin", "-arch=sm_90a", "-o", tmp_path / "scale.cubin", tmp_path / "scale.cu"]
    subprocess.run(command, check=True)
    folders = [*kit.includes, tvm_ffi.libinfo.find_include_path(), tvm_ffi.libinfo.find_dlpack_include_path()]
    includes = [f"-I{folder}" for folder in folders]
    subprocess.run(["g++", "-std=c++17", "-fsyntax-only", *includes, tmp_path / "scale_binding.cc"], check=True)


def test_advice_is_for_the_target() -> None:
    """The simulator is offered nothing that it cannot run; measured facts come with the operators that they are about."""
    linear = REGION.model_copy(update={"id": "r02", "operators": ("aten.linear.default", "aten.conv2d.default")})
    regions = (REGION, linear)
    sim = planner_prompt(brief(Settings(target="sim"), regions=regions, skeletons={"tiled_product": "a product"}), ROOM)
    gpu = planner_prompt(brief(Settings(target="cuda"), regions=regions), ROOM)
    for needed in ("as programmatic dependent launches", "cuBLASLt epilogues", "[a1 | a0 | a0]", "0.56 ms instead of 2.71"):
        assert needed in gpu, needed
        assert needed not in sim, needed
    for text in (sim, gpu):
        assert "11 in its convolutions on a GPU by torch's default (TF32; 24 where it has few input" in text
        assert "24 in its products" in text
    assert "tiled_product (a product)." in sim
    refused = "dependent, cooperative or cluster launches"
    assert refused in " ".join(sim.split())
    assert refused not in " ".join(gpu.split())
    assert refused in coder_prompt(assignment(brief(Settings(target="sim"))), ROOM)
    assert "few input channels (3 and 6" not in planner_prompt(brief(), ROOM)


def test_a_repair_shows_the_defect_and_its_file_whole_and_asks_for_nothing_else() -> None:
    kernel = "".join(f"float v{at} = x[{at}] * scale;\n" for at in range(300))
    program = PROGRAM | {"kernels/long.cu": kernel}
    defect = "kernels/long.cu line 7 reads what other blocks write. " + "No check sees that. " * 40 + "Put a fence there."
    review = Review(bottleneck="a race", suggestion="use more registers", route="code", defect=defect)
    about = brief(defects=("gelu #0: kernels/long.cu line 7",), suggestions=("gelu #0: unroll",))
    draft = Draft(files=program, note="a try")
    text = coder_prompt(assignment(about, program=program, last=draft, review=review, evidence=RIGHT), ROOM)
    assert text.count(defect) == 1
    assert kernel.rstrip() in text
    assert all(gone not in text for gone in ("use more registers", "unroll", "Think first", "Defects that reviews named"))
    other = assignment(about, last=draft, review=review, evidence=WRONG)  # it is not the program now
    assert all(said in coder_prompt(other, ROOM) for said in ("use more registers", "Defect: kernels/long.cu line 7"))
