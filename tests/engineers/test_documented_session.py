"""Sessions with documentation: a draft misuses cuBLASLt, the review cites the entry that says how, the next request shows it.

The compiler and the headers are the real ones, and so are graph, store and HTTP; the model answers by what it is shown.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from stitchcuda.cli.summary import session_tables
from stitchcuda.engineers.metered_chat import Transcript
from stitchcuda.rag import lookup
from stitchcuda.rag.index import Docs
from stitchcuda.sessions.session import Session, optimize
from stitchcuda.state import BuildResult, CheckResult, Review
from stitchcuda.tools.build.nvcc import build
from tests.engineers.metered_chats import REVIEW, block
from tests.engineers.protocol_server import Failure, Request, serve
from tests.engineers.protocols import Reply
from tests.engineers.stage import Model, WordHands, played
from tests.engineers.test_chat_session import REFERENCE
from tests.rag.conftest import asked, real

__all__ = ["asked", "real"]                # fixtures

ENTRY = r"CUBLASLT_MATMUL_DESC_EPILOGUE \(cuBLASLt [\d.]+, cublasLt\.h\)"
MISUSE = """
#include <cublasLt.h>
cublasStatus_t with_bias(cublasLtMatmulDesc_t product) {
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    return cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_EPILOGUE_TYPE, &epilogue, sizeof(epilogue));
}
"""


def answer(request: Request) -> str | Reply | Failure:
    prompt = request.prompt
    if request.role == "planner":
        return Model([[("aa", 0.2)]], {}).plan(prompt)
    if request.role == "verifier":
        return json.dumps(REVIEW | {"citations": ["CUBLASLT_MATMUL_DESC_EPILOGUE"] if "EPILOGUE_TYPE" in prompt else []})
    if re.search(rf"^\[{ENTRY}\]\nCUBLASLT_MATMUL_DESC_EPILOGUE = \d+$", prompt, re.MULTILINE) and "It cites: " in prompt:
        return block(f"// aa saves 0.2\n{MISUSE.replace('EPILOGUE_TYPE', 'EPILOGUE')}", "kernels/aa.cu")
    return block(f"// aa saves 0.2\n{MISUSE}", "kernels/aa.cu")


def reviews(session: Session) -> list[Review]:
    return [Review.model_validate_json(session.home.store.get(attempt.review)) for attempt in session.attempts()]


class Compiling(WordHands):
    """What the real compiler says of the program, for a GPU; the rest goes by words."""

    def build(self, program: Path) -> BuildResult:
        return build(program, arch="sm_90a", cache=program.parent / "cache", link=False)


@pytest.mark.more
def test_an_attribute_that_does_not_exist(tmp_path: Path, asked: Docs) -> None:
    if "cuBLASLt" not in asked.manifest.libraries:
        pytest.skip("cuBLAS' headers are not here")
    with serve(answer) as server:
        session = played(tmp_path, server.url, tools=Compiling(), max_attempts=3)
    first, second = session.attempts()[:2]
    assert (first.built, second.built, first.route) == (False, True, "code")
    assert "CUBLASLT_MATMUL_DESC_EPILOGUE_TYPE" in first.diagnosis
    cited = reviews(session)[0].citations
    assert any(re.fullmatch(ENTRY, one) for one in cited), cited
    coders = [request.prompt for request in server.requests if request.role == "coder"]
    assert not re.search(ENTRY, coders[0])
    assert re.search(rf"^It cites: .*{ENTRY}", coders[1], re.MULTILINE)
    documentation = coders[1].split("## Documentation\n")[1].split("\n## Answer")[0]
    assert re.search(rf"^\[{ENTRY}\]$", documentation, re.MULTILINE)
    assert session.state()["notes"][0].startswith("documentation is searched by names and words, not by meaning")
    shown = "\n".join(str(cell) for table in session_tables(session) for column in table.columns for cell in column.cells)
    assert re.search(ENTRY, shown)


class Refused(WordHands):
    """At the first check cuBLASLt does not like what it was given."""

    def check(self, program: Path, seeds: int) -> CheckResult:
        found = super().check(program, seeds)
        if found.ok:
            return found
        told = "the program failed: RuntimeError: linear: cublasLtMatmulDescSetAttribute failed with status 7"
        return found.model_copy(update={"reasons": (told, *found.reasons)})


def test_a_status_that_is_told_as_a_number(tmp_path: Path, asked: Docs) -> None:
    model = Model([[("aa", 0.2)]], {"aa": ["wrong", "saves 0.2"]})
    with serve(model) as server:
        session = played(tmp_path, server.url, tools=Refused())
    cited = reviews(session)[0].citations
    assert {one.partition(" (")[0] for one in cited[:2]} == {"cublasLtMatmulDescSetAttribute", "CUBLAS_STATUS_INVALID_VALUE"}
    coder = [request.prompt for request in server.requests if request.role == "coder"][1]
    assert re.search(r"^Returns: CUBLAS_STATUS_INVALID_VALUE: .*sizeInBytes", coder, re.MULTILINE)


def test_what_was_found_for_a_step_is_kept_with_the_session(tmp_path: Path, asked: Docs) -> None:
    """A node that runs again, also where other documentation is or none, shows what was found the first time."""
    model = Model([[("aa", 0.2)]], {"aa": ["saves 0.2"]})
    with serve(model) as server:
        session = played(tmp_path, server.url)
    kept = [name for name in session.home.store.calls(session.name) if name.startswith("docs-")]
    assert {name.split("-")[1] for name in kept} == {"plan", "draft", "review"}
    (draft,) = [name for name in kept if name.startswith("docs-draft-")]
    transcript = Transcript(session.home.store, session.name)
    again = json.loads(transcript.record_once(draft, lambda: pytest.fail("it was looked for again")))
    coder = next(request.prompt for request in server.requests if request.role == "coder")
    assert ("## Documentation" in coder) == bool(again["text"])  # none where nothing has to do with the task
    assert again["text"].strip() in coder


@pytest.mark.more
def test_the_built_in_engineer_reads_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "of_this_machine", lambda: pytest.fail("documentation was looked for"))
    reference = tmp_path / "scale_relu.py"
    reference.write_text(REFERENCE)
    session = optimize(reference, model="builtin", device="sim", workspace=tmp_path / "ws")
    assert "search_docs skipped: the built-in engineer reads no documentation" in session.state()["notes"]
