"""A session on a LangGraph server, from outside: watched, stopped at its plan, edited, resumed, and forked.

    langgraph dev --no-browser                       # beside the project's langgraph.json, in another terminal
    python examples/service/client.py [REFERENCE]    # a path on the server's machine

It prints what it sees. The same calls work from any other language: docs/service.md names them.
"""

from __future__ import annotations

import argparse
from typing import Any

from langgraph_sdk import get_sync_client
from langgraph_sdk.client import SyncLangGraphClient

GRAPH = "stitchcuda"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reference", nargs="?", default="examples/transformer_block.py")
    parser.add_argument("--url", default="http://127.0.0.1:2024")
    parser.add_argument("--device", default="auto")
    asked = parser.parse_args()
    client = get_sync_client(url=asked.url)

    thread = client.threads.create()["thread_id"]
    print(f"thread {thread}")
    follow(client, thread, input={"reference": asked.reference, "device": asked.device, "approve": ["plan"]})

    question = waiting(client, thread)
    print(f"waits for {question['waiting_for']}")
    for task in question["tasks"]:
        print(f"  {task['id']}: {task['title']}, predicted to save {task['predicted_ms']:.4f} ms; {task['strategy']}")

    *kept, dropped = question["tasks"]
    print(f"edited: without {dropped['id']}")
    follow(client, thread, command={"resume": {"tasks": kept or [dropped]}})
    told(client, thread)

    # A fork: the checkpoint before the planner, and another answer. What was tried already is not tried again.
    history = client.threads.get_history(thread, limit=1000)
    before = next(state for state in history if list(state["next"]) == ["planner"])
    print(f"forked from checkpoint {before['checkpoint']['checkpoint_id']}")
    follow(client, thread, checkpoint_id=before["checkpoint"]["checkpoint_id"], input=None)
    question = waiting(client, thread)
    print(f"waits for {question['waiting_for']}")
    print(f"edited: {dropped['id']} alone")
    follow(client, thread, command={"resume": {"tasks": [dropped["id"]]}})
    told(client, thread)

    drawing = client.assistants.get_graph(GRAPH)  # as the server made it, whatever assistants people have saved beside it
    for edge in drawing["edges"]:
        label = f" ({edge['data']})" if edge.get("data") else ""
        print(f"edge {edge['source']} -> {edge['target']}{label}")


def follow(client: SyncLangGraphClient, thread: str, **how: Any) -> None:
    """Runs the graph until it ends or waits, and prints its events as they come."""
    for part in client.runs.stream(thread, GRAPH, stream_mode=["custom"], **how):
        if part.event == "error":
            raise SystemExit(f"the server says: {part.data['message']}")
        if part.event == "custom" and (line := told_by(part.data)):
            print(line, flush=True)


def told_by(event: dict[str, Any]) -> str:
    """A line for one event of the custom stream; "" for what is only of interest to a live view."""
    match event["kind"]:
        case "progress" if event["phase"] == "start":
            return f"progress: {event['node']}" + (f" ({event['task']})" if event["task"] else "")
        case "plan":
            return f"plan {event['version']}: {', '.join(task['id'] for task in event['tasks'])}"
        case "attempt":
            attempt = event["attempt"]
            result = "correct" if attempt["correct"] else attempt["diagnosis"] or "wrong"
            return f"attempt {attempt['task']} #{attempt['ordinal']}: {result}, {attempt['tier']}, then {attempt['route']}"
        case "best":
            return f"best: {event['title']}, {event['attempt']['own_share']:.0%} in own kernels"
        case "note":
            return f"note: {event['text']}"
    return ""


def waiting(client: SyncLangGraphClient, thread: str) -> dict[str, Any]:
    """The plan that the thread asks a person about. Ends the program where it asks for none."""
    state: Any = client.threads.get_state(thread)
    asked: list[dict[str, Any]] = [interrupt["value"] for task in state["tasks"] for interrupt in task["interrupts"]]
    for question in asked:
        if question.get("approve") == "plan" and question["tasks"]:
            return question
    others = " and ".join(question.get("waiting_for") or "a reply" for question in asked)
    stands = f"it waits for {others}" if others else "it was interrupted" if state["next"] else "its session has ended"
    raise SystemExit(f"thread {thread} asks about no plan: {stands}")


def told(client: SyncLangGraphClient, thread: str) -> None:
    """Where the thread's session stands: what it kept on the way from its baseline to here."""
    values: Any = client.threads.get_state(thread)["values"]
    print(f"session {values['session']}: kept {', '.join(values['tasks_kept']) or 'nothing'} ({values['stop_reason']})")


if __name__ == "__main__":
    main()
