"""Wires the whole graph on one screen. Roles and tools are nodes; the verifier's edges carry the names of the routes.

Nothing is decided here.

Where to look next: `nodes/__init__.py` (what nodes do), `graph/routes.py` (the rules), `graph/runtime.py` (around a node).
"""

from __future__ import annotations

from functools import partial

from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Checkpointer

from stitchcuda.graph import routes
from stitchcuda.graph.candidates import fan_out
from stitchcuda.graph.graph_input import GraphInput, Opening
from stitchcuda.graph.runtime import RunContext, check_input, node
from stitchcuda.nodes.baseline import baseline
from stitchcuda.nodes.check import check
from stitchcuda.nodes.coder import coder
from stitchcuda.nodes.ncu_profile import ncu_profile
from stitchcuda.nodes.nsys_profile import nsys_profile
from stitchcuda.nodes.nvcc_build import nvcc_build
from stitchcuda.nodes.planner import planner
from stitchcuda.nodes.report import report
from stitchcuda.nodes.search_docs import search_docs
from stitchcuda.nodes.verifier import verifier_by
from stitchcuda.state import Settings, State

Graph = CompiledStateGraph[State, RunContext, GraphInput, State]


def build_graph(checkpointer: Checkpointer = None) -> Graph:
    """Returns the compiled graph. Invoked with `{"reference": path}` and no context, it makes a session from that input.
    `checkpointer` is any LangGraph saver; without one nothing is resumable (the LangGraph server brings its own)."""
    graph = StateGraph(State, context_schema=RunContext, input_schema=GraphInput, output_schema=State)
    step = partial(node, build=build_graph)
    graph.add_node("baseline", step("baseline", baseline), input_schema=Opening)
    graph.add_node("planner", step("planner", planner))
    graph.add_node("search_docs", step("search_docs", search_docs))
    graph.add_node("coder", step("coder", coder))
    graph.add_node("nvcc_build", step("nvcc_build", nvcc_build))
    graph.add_node("check", step("check", check))
    graph.add_node("nsys_profile", step("nsys_profile", nsys_profile))
    graph.add_node("ncu_profile", step("ncu_profile", ncu_profile))
    graph.add_node("verifier", step("verifier", verifier_by(routes)))
    graph.add_node("report", step("report", report))

    graph.add_edge(START, "baseline")
    graph.add_edge("baseline", "planner")
    graph.add_edge("planner", "search_docs")
    graph.add_conditional_edges("search_docs", fan_out, {"draft": "coder", "no task": "verifier"})
    graph.add_edge("coder", "nvcc_build")  # once, when all of a step's candidates are there
    graph.add_conditional_edges("nvcc_build", routes.after_build, {"built": "check", "fail": "verifier"})
    graph.add_conditional_edges("check", routes.after_check, {"correct": "nsys_profile", "fail": "verifier"})
    graph.add_edge("nsys_profile", "ncu_profile")
    graph.add_edge("ncu_profile", "verifier")
    graph.add_conditional_edges(
        "verifier",
        routes.after_verifier,
        {routes.GO_ON: "search_docs", "replan": "planner", "done": "report"},
    )
    graph.add_edge("report", END)
    compiled = graph.compile(checkpointer, name="stitchcuda")
    compiled.nodes[START].mapper = check_input  # LangGraph silently drops unknown keys
    return compiled.with_config(recursion_limit=recursion_limit(Settings()))


def recursion_limit(settings: Settings) -> int:
    """Returns the most steps of a session: ten for each attempt, and 400 for tasks that end without one."""
    return 400 + 10 * settings.max_attempts


def thread(session: str) -> RunnableConfig:
    """Returns the LangGraph configuration that names a session's checkpoints."""
    return {"configurable": {"thread_id": session}}
