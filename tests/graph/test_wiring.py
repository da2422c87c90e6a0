"""The graph as it is drawn: roles and tools are nodes, and the verifier's edges carry the routes' names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stitchcuda.errors import BadInput
from stitchcuda.graph.graph import build_graph

PLAIN = {
    ("__start__", "baseline"), ("baseline", "planner"), ("planner", "search_docs"), ("coder", "nvcc_build"),
    ("nsys_profile", "ncu_profile"), ("ncu_profile", "verifier"), ("report", "__end__"),
}  # fmt: skip
LABELLED = {
    ("search_docs", "draft", "coder"), ("search_docs", "no task", "verifier"), ("nvcc_build", "built", "check"),
    ("nvcc_build", "fail", "verifier"), ("check", "correct", "nsys_profile"), ("check", "fail", "verifier"),
    ("verifier", "code / next_task", "search_docs"), ("verifier", "replan", "planner"),
    ("verifier", "done", "report"),
}  # fmt: skip


def test_mermaid_draws_the_designed_graph() -> None:
    drawn = build_graph().get_graph().draw_mermaid()
    assert set(re.findall(r"(\w+) --> (\w+);", drawn)) == PLAIN
    assert set(re.findall(r"(\w+) -\. &nbsp;([\w /]+)&nbsp; \.-> (\w+);", drawn)) == LABELLED


def test_the_graph_brings_its_own_recursion_limit() -> None:
    config = build_graph().config
    assert config is not None
    assert config["recursion_limit"] == 700


def test_studio_can_describe_input_state_and_context() -> None:
    from stitchcuda.graph.studio import graph

    asked = graph.get_input_jsonschema()
    assert asked["properties"]["reference"]["examples"] == ["examples/transformer_block.py"]
    assert asked["properties"]["device"]["default"] == "auto"
    assert "baseline" in graph.get_output_jsonschema()["properties"]
    assert graph.get_context_jsonschema() is not None
    assert graph.checkpointer is None


def test_langgraph_json_names_the_graph() -> None:
    import json

    root = Path(__file__).resolve().parents[2]
    assert json.loads((root / "langgraph.json").read_text())["graphs"] == {"stitchcuda": "stitchcuda.graph.studio:graph"}


def test_an_empty_input_is_refused_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STITCHCUDA_WORKSPACE", str(tmp_path))
    with pytest.raises(BadInput, match="nothing to speed up"):
        build_graph().invoke({})
