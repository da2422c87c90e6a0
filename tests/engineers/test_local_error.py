"""A draft with an error in one place is asked for again by a short request; tokens before and after are compared."""

from __future__ import annotations

import dataclasses

import pytest

from stitchcuda.engineers import Assignment, Draft
from stitchcuda.engineers.chat import Message
from stitchcuda.engineers.local_error import find_local_error
from stitchcuda.engineers.prompt import LOOKED, MOST, _coder, coder_prompt, look_results, room_for_look, shorten_conversation
from stitchcuda.engineers.prompt_values import PromptBudget
from stitchcuda.engineers.tokens import TokenCounter
from stitchcuda.state import BuildResult, CheckResult, Evidence, Review
from tests.engineers.briefs import ATTEMPT, NOT_BUILT, PROGRAM, assignment, brief

COUNTER = TokenCounter("unknown")
ROOM = PromptBudget(COUNTER)
REVIEW = Review(bottleneck="it does not build", suggestion="declare xs before the loop", route="code")
KERNEL = "".join(f"  float v{at} = x[{at}] * gamma[{at}] + beta[{at}];  // a step of the kernel\n" for at in range(60))


def failed(evidence: Evidence = NOT_BUILT, kernel: str = KERNEL, **more: object) -> Assignment:
    """A retry in a program of 300 lines and a reference of 80, both of ordinary length."""
    names = [f"{first}{second}" for first in "abcdefghijklmno" for second in "abcdefghij"]  # numbers would be folded
    parts = (f"    def part_{name}(self, x):\n        return self.kernels.{name}(x)\n" for name in names)
    model = "class ModelNew:\n" + "".join(parts)
    reference = "".join(f"    self.layer_{name} = nn.Linear(512, 512)  # of the reference\n" for name in names[:80])
    program = PROGRAM | {"model_new.py": model}
    files = program | {"kernels/r01.cu": kernel, "kernels/r01_binding.cc": "// the binding\n" * 60}
    last = Draft(files=files, note="a first try")
    return assignment(
        brief(reference=reference), program=program, last=last, evidence=evidence, review=REVIEW, ordinal=1,
        earlier=((ATTEMPT, REVIEW),), **more,
    )  # fmt: skip


def test_a_retry_after_a_compile_error_takes_a_third_of_the_tokens() -> None:
    one = failed()
    short, whole = coder_prompt(one, ROOM), _coder(one, ROOM, "")
    before, after = COUNTER.count(whole), COUNTER.count(short)
    print(f"a retry after one compile error: {before:,} tokens before, {after:,} now")
    assert 3 * after <= before
    for needed in (
        'kernels/r01.cu(7): error: identifier "xs" is undefined', "float v59", "declare xs before the loop",
        "on secret inputs of these shapes", "Allowed between calls: scratch", "Forbidden: results kept", "Policy: stitched",
        "- model_new.py: 301 lines", "- kernels/r01_binding.cc: 60 lines", "```kernels/r01.cu\n<<<<<<< SEARCH",
    ):  # fmt: skip
        assert needed in short, needed
    for absent in ("self.layer_ad", "def part_ad", "What is known to pay", "program.json"):
        assert absent not in short, absent


def test_of_a_long_file_the_lines_around_the_error_are_shown() -> None:
    text = coder_prompt(failed(kernel=KERNEL * 10), ROOM)
    assert "Lines 1 to 37 of 600:" in text
    assert "float v59" not in text


@pytest.mark.parametrize(
    "said",
    ["the program raised NameError (model_new.py line 3): name 'xs' is not defined",
     "kernels/r01.cu:12: inline PTX cannot run on the simulator"],
)  # fmt: skip
def test_an_error_of_a_run_that_names_its_line_is_local(said: str) -> None:
    check = CheckResult(ok=False, tier="simulated", seeds=1, reasons=(said,))
    found = find_local_error(failed(Evidence(build=BuildResult(ok=True), check=check, tier="simulated")))
    assert found is not None
    assert said in coder_prompt(failed(Evidence(build=BuildResult(ok=True), check=check, tier="simulated")), ROOM)


def test_of_an_error_in_a_kernel_its_file_is_shown_and_not_the_calls_that_led_there() -> None:
    calls = "the program raised RuntimeError (model_new.py line 19, model_new.py line 30): simulator: kernel k has a race"
    race = f"{calls} in shared memory: thread 64 writes what others read since the last barrier, at r01.cu line 6"

    def run(said: str) -> Assignment:
        check = CheckResult(ok=False, tier="simulated", seeds=0, reasons=(said,))
        return failed(Evidence(build=BuildResult(ok=True), check=check, tier="simulated"))

    found = find_local_error(run(race))
    assert found is not None
    assert (found.path, found.lines) == ("kernels/r01.cu", (6,))
    text = coder_prompt(run(race), ROOM)
    assert "float v59" in text, "the kernel's file is whole"
    assert "def part_ad" not in text
    assert find_local_error(run(calls)) is None, "no line of the kernel is named"


@pytest.mark.parametrize(
    "log",
    ["undefined reference to `row_launch'", "kernels/gone.cu(7): error: x", "kernels/r01.cu(700): error: past its end",
     "\n".join(f"kernels/r01.cu({line}): error: x" for line in range(1, 7)),
     "kernels/r01.cu(3): error: x\nkernels/r01_binding.cc:4:1: error: y"],
)  # fmt: skip
def test_other_failures_are_not_local(log: str) -> None:
    one = failed(Evidence(build=BuildResult(ok=False, log=log)))
    assert find_local_error(one) is None
    assert "What is known to pay" in coder_prompt(one, ROOM)


def test_an_error_that_comes_back_gets_the_whole_request() -> None:
    again = ATTEMPT.model_copy(update={"fingerprint": "f"})
    one = dataclasses.replace(failed(), earlier=((again, REVIEW), (again, REVIEW)))
    assert find_local_error(one) is None


def test_an_error_of_another_structure_does_not_come_back() -> None:
    other = ATTEMPT.model_copy(update={"fingerprint": "f", "structure": "one"})
    own = other.model_copy(update={"structure": "two"})
    earlier = ((own, REVIEW), (other, REVIEW))
    assert find_local_error(dataclasses.replace(failed(structure="two"), earlier=earlier)) is not None
    assert find_local_error(dataclasses.replace(failed(structure="two"), earlier=(*earlier, (own, REVIEW)))) is None


def test_candidates_that_mend_one_error_are_asked_differently() -> None:
    texts = [coder_prompt(failed(candidate=at, candidates=4, structure="two"), ROOM) for at in range(4)]
    assert len(set(texts)) == 4
    assert "You are one of 4 who write at the same time; only the best is kept. Yours is number 3: write the" in texts[2]
    assert "and change nothing else. It follows the structure `two`: keep to it.\n\n## The error" in texts[2]
    assert "You are one of" not in coder_prompt(failed(), ROOM)


def test_a_conversation_with_looks_stays_within_the_limit() -> None:
    """Four looks at files of a thousand lines, after the longest first message."""
    body = "\n".join(f"    float v{at} = x[{at}] * gamma[{at}];" for at in range(1000))
    messages = [Message("user", "a line of the first request\n" * 1300)]
    for turn in range(4):
        messages.append(Message("assistant", f"```look\nread kernels/k{turn}.cu\n```"))
        seen = f"{LOOKED}read kernels/k{turn}.cu\n```\n{body}\n```"
        results = look_results(seen, 3 - turn, ROOM, room_for_look(messages, ROOM))
        messages = shorten_conversation([*messages, Message("user", results)], ROOM)
        assert sum(COUNTER.count(message.text) for message in messages) <= MOST
        assert "float v0" in messages[-1].text
    assert "### read kernels/k0.cu" in messages[2].text
    assert "Look again" in messages[2].text
