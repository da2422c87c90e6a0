"""Writes a session of a chat model as one file that replays anywhere: what was said, and what the tools found.

    python scripts/record_session.py WORKSPACE SESSION OUT.json.gz

The file holds every request and reply in full, the reference, the baseline's facts, the evidence of every attempt by its
program, and the ledger that came of it. `tests/replay.py` replays it without a GPU, a model or a network. It changes nothing
in the workspace.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from stitchcuda.engineers.metered_chat import Transcript
from stitchcuda.nodes.attempt_figures import evidence_of
from stitchcuda.sessions.session import Session
from stitchcuda.state import Evidence
from stitchcuda.store import get_tree


def recorded(session: Session) -> dict[str, Any]:
    """Everything that a replay needs, as plain JSON."""
    store, state = session.home.store, session.state()
    baseline = state["baseline"]
    assert baseline is not None
    transcript = Transcript(store, session.name)
    calls = []
    for call in transcript.calls():
        answer = transcript.answer(call)
        request = json.loads(store.get(call.request))
        calls.append({
            "id": call.id.rpartition("-")[0], "model": call.model, "outcome": call.outcome, "request": request,
            "reply": answer.model_dump() if answer else None, "seconds": call.seconds, "input_tokens": call.input_tokens,
            "output_tokens": call.output_tokens,
        })  # fmt: skip
    attempts = session.attempts()
    evidence = {one.program: Evidence.model_validate_json(store.get(one.evidence)).model_dump(mode="json") for one in attempts}
    work = state.get("work")
    if work and work.program and work.build:  # judged, and waiting for its verdict
        evidence[work.program] = evidence_of(work).model_dump(mode="json")
    final = state.get("final")
    return {
        "session": session.record.model_dump(mode="json") | {"reference_path": ""},
        "reference": store.get(session.record.reference).decode(),
        "baseline": baseline.model_dump(mode="json"),
        "capture": store.get(baseline.capture).decode(),
        "calls": calls,
        "told": {name: answer.text for name, answer in transcript.tool_answers().items()},
        "evidence": evidence,
        "final": final.model_dump(mode="json") if final else None,
        "baselines": json.loads(store.get(baselines)) if (baselines := state.get("baselines")) else None,
        "ledger": [one.model_dump(mode="json") for one in attempts],
        "artefacts": {digest: store.get(digest).decode() for digest in sorted(profiles(evidence.values()))},
        "programs": {one.program: sorted(get_tree(store, one.program)) for one in attempts},
    }


def profiles(evidence: Iterable[dict[str, Any]]) -> set[str]:
    """Digests of the whole profiles behind pieces of evidence."""
    found = [one[tool] for one in evidence for tool in ("system", "kernels") if one[tool]]
    return {one["digest"] for one in found if one["digest"]}


def main() -> None:
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    workspace, name, out = sys.argv[1:]
    data = json.dumps(recorded(Session.open(name, workspace)), sort_keys=True).encode()
    Path(out).write_bytes(gzip.compress(data, mtime=0))
    print(f"{out}: {len(data) / 1e3:.0f} kB, {Path(out).stat().st_size / 1e3:.0f} kB packed")


if __name__ == "__main__":
    main()
