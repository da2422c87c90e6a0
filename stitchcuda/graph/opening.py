"""Makes a session's record from a reference and settings, and a context for nodes from the record.

Settings are checked and the reference is stored before anything runs. An nn.Module is pickled by cloudpickle; classes that a
worker could not import are pickled by value. torch is used only if the caller has imported it. No node is run.

Where to look next: `store/session_record.py` (the record), `nodes/context.py` (the context), `sessions/session.py`.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
from pydantic import ValidationError

from stitchcuda.engineers import Engineer
from stitchcuda.engineers.selection import MAILBOX, WORKBENCH, Engineers, check_models, engineers_for
from stitchcuda.errors import BadInput
from stitchcuda.graph.approval import Asking, Remembering
from stitchcuda.graph.events import publish
from stitchcuda.memory import Memory
from stitchcuda.nodes.context import Context, Event, SessionTools
from stitchcuda.nodes.local_tools import LocalTools
from stitchcuda.state import Call, Role, Settings
from stitchcuda.store import SessionRecord, Workspace
from stitchcuda.store.session_record import now
from stitchcuda.tools.device.data_sheets import gpu_called
from stitchcuda.tools.device.device import resolve_target

MOST_CANDIDATES = 16
WANTED = "give a Python file with Model, get_inputs and get_init_inputs"


def check_settings(settings: dict[str, Any]) -> Settings:
    """Returns the settings; raises BadInput for a value that makes no sense, naming its command-line option."""
    try:
        asked = Settings(**settings)
    except ValidationError as error:
        first = error.errors()[0]
        raise BadInput(f"{'.'.join(map(str, first['loc']))}: {first['msg']} (got {first['input']!r})") from error
    for option, value, fine, problem in (
        ("goal", asked.goal, 0 < (asked.goal or 0) < float("inf"), "is no speed-up: give a number above 0, such as 1.5"),
        ("max-minutes", asked.max_minutes, (asked.max_minutes or 0) > 0, "leaves no time: give a number above 0"),
        ("candidates", asked.candidates, 1 <= asked.candidates <= MOST_CANDIDATES, f"cannot be: give 1 to {MOST_CANDIDATES}"),
        ("budget-usd", asked.budget_usd, asked.budget_usd >= 0, "is no sum: give 0 or more"),
        ("max-tokens", asked.max_tokens, (asked.max_tokens or 0) > 0, "leaves nothing to say: give a number above 0"),
        ("max-gpu-seconds", asked.max_gpu_s, (asked.max_gpu_s or 0) > 0, "leaves no time: give a number above 0"),
        ("gpu-memory-gb", asked.gpu_memory_gb, (asked.gpu_memory_gb or 0) > 0, "leaves no memory: give gigabytes, such as 24"),
        ("max-attempts", asked.max_attempts, asked.max_attempts >= 1, "leaves nothing to do: give at least 1"),
    ):
        if value is not None and not fine:
            raise BadInput(f"--{option} {value} {problem}")
    if asked.predict_for is not None:
        gpu_called(asked.predict_for)      # raises BadInput for an unknown GPU
        if asked.target == "cuda":
            raise BadInput(
                f"--predict-for {asked.predict_for} is for the simulator, and this session runs on a GPU, by its own figures: "
                "leave it out, or add --device sim"
            )
    return asked


def open_record(
    home: Workspace, reference: Any, example_inputs: Any, *, name: str | None, device: str, settings: dict[str, Any]
) -> SessionRecord:
    """Stores the reference and creates the session. Raises BadInput for a bad reference, name or setting. `reference` is a path
    or an nn.Module with `example_inputs`, or a function that returns some. Without `name` the session is numbered after the
    reference."""
    asked = check_settings(settings | {"target": resolve_target(device)})
    check_models(asked)
    asked = relative_folders(asked, home.root)
    if isinstance(reference, str | Path):
        data, file, path, source = _from_file(home, Path(reference), example_inputs)
    else:
        data, source = _from_module(reference, example_inputs)
        file, path = f"{type(reference).__name__}.pkl", ""
    with home.store.adding():
        return home.create(
            SessionRecord(
                name=name or f"{Path(file).stem}-",
                reference=home.store.put(data),
                reference_name=file,
                reference_path=path,
                source=home.store.put(source.encode()),
                device=device,
                settings=asked,
                created=now(),
            )
        )


def relative_folders(settings: Settings, root: Path) -> Settings:
    """Returns the settings with the folder of each mailbox or workbench relative to the workspace, so that both can be moved
    together. An absolute path outside of the workspace stays as it is."""

    def relative(model: str) -> str:
        kind, _, folder = model.partition(":")
        if kind not in (MAILBOX, WORKBENCH) or not folder:
            return model
        path = Path(folder).expanduser()
        if path.is_absolute() and not path.resolve().is_relative_to(root):
            return model
        return f"{kind}:{os.path.relpath(path.resolve(), root)}"

    roles = {role: tuple(map(relative, models)) for role, models in settings.roles.items()}
    return settings.model_copy(update={"model": relative(settings.model), "roles": roles})


def check_unchanged(home: Workspace, record: SessionRecord) -> None:
    """Raises BadInput if the reference's file has changed since the session was started. If the file is gone, as on another
    machine, the session goes on with its own copy."""
    if not record.reference_path or home.database is not None:  # the path may be of another machine
        return
    path = home.root / record.reference_path
    if path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() != record.reference:
        raise BadInput(
            f"{path.resolve()} has changed since session {record.name!r} was started: start a new session with optimize, "
            "or restore the file to go on with this one"
        )


def open_tools(home: Workspace, record: SessionRecord, device: str | None = None) -> SessionTools:
    """Returns this machine's tools for a session, for `device` or the record's. They start on first use. Raises BadInput if the
    session's own copy of the reference was edited."""
    reference = home.prepared(record) / record.reference_name
    if not reference.is_file() or hashlib.sha256(reference.read_bytes()).hexdigest() != record.reference:
        raise BadInput(f"{reference} was edited: it is the session's own copy of the reference; remove it to have it anew")
    settings = record.settings.model_copy(update={"target": resolve_target(device or record.device)})
    return LocalTools(reference, settings, cache=home.cache)


def open_context(
    home: Workspace,
    record: SessionRecord,
    tools: SessionTools,
    engineer: Engineer | Engineers | None = None,
    on_event: Callable[[Event], None] | None = None,
    memory: Memory | None = None,
) -> Context:
    """Returns a context for a session, with `engineer` or the one that the record's settings name. Without `memory` it neither
    reads nor writes lessons."""
    settings = record.settings.model_copy(update={"target": tools.device().target})

    def tell(event: Event) -> None:
        publish(event)
        if on_event is not None:
            on_event(event)

    def on_chunk(role: Role, chunks: int) -> None:
        tell({"kind": "tokens", "session": record.name, "role": role, "chunks": chunks})

    def on_call(call: Call) -> None:
        tell({"kind": "call", "session": record.name, "call": call})

    if engineer is None:
        engineer = engineers_for(
            settings, store=home.store, session=record.name, root=home.root, progress=on_chunk, on_call=on_call
        )

    engineers = engineer if isinstance(engineer, Engineers) else Engineers(engineer)
    return Context(
        workspace=home,
        record=record,
        settings=settings,
        tools=tools,
        engineers=engineers,
        on_event=tell,
        memory=memory,
        ask=(Remembering if engineers.recorded else Asking)(home.store, record.name),
    )


def _from_file(home: Workspace, path: Path, example_inputs: Any) -> tuple[bytes, str, str, str]:
    if example_inputs is not None:
        raise BadInput(f"example_inputs go with an nn.Module; {path} brings its own get_inputs()")
    try:
        data = path.read_bytes()
        source = data.decode()
    except FileNotFoundError as error:
        raise BadInput(f"there is no file {path}: {WANTED}") from error
    except (OSError, ValueError) as error:     # no UTF-8, or a path that cannot be one
        raise BadInput(f"{path} cannot be read as Python source: {WANTED}") from error
    return data, f"{_stem(path.stem)}.py", os.path.relpath(path.resolve(), home.root), source


def _stem(text: str) -> str:
    """Returns a file's stem with only ASCII letters, digits, - and _, for names of files and sessions."""
    kept = "".join(letter if letter.isascii() and (letter.isalnum() or letter in "_-") else "_" for letter in text)
    return (kept.lstrip("_-") or "reference")[:56]


def _from_module(module: Any, example_inputs: Any) -> tuple[bytes, str]:
    torch: Any = sys.modules.get("torch")
    if torch is None or not isinstance(module, torch.nn.Module):
        raise BadInput(f"a reference is the path of a file or an nn.Module, not {type(module).__name__}")
    if example_inputs is None:
        raise BadInput("an nn.Module needs example_inputs: a tuple of arguments, a dict of keyword arguments, or one tensor")
    held: dict[str, Any] = {"module": module, "args": (), "kwargs": {}}
    if isinstance(example_inputs, dict):
        held["kwargs"] = example_inputs
    elif callable(example_inputs):
        held = {"module": module, "make_inputs": example_inputs}
    else:
        held["args"] = tuple(example_inputs) if isinstance(example_inputs, tuple | list) else (example_inputs,)
    named = [*map(type, module.modules()), *([example_inputs] if callable(example_inputs) else [])]
    modules = [found for definition in named if (found := _module_to_pickle(definition))]
    try:
        for found in modules:
            cloudpickle.register_pickle_by_value(found)
        data: bytes = cloudpickle.dumps(held)
    except Exception as error:
        text = f"{type(module).__name__} and its example inputs cannot be stored ({error}): give a reference file"
        raise BadInput(text) from error
    finally:
        for found in dict.fromkeys(modules):
            cloudpickle.unregister_pickle_by_value(found)
    return data, _source_of(module)


def _module_to_pickle(definition: Any) -> ModuleType | None:
    """Returns the module that defines a class or function if a worker in another folder could not import it, else None."""
    name = getattr(definition, "__module__", None) or ""
    found = sys.modules.get(name)
    file = getattr(found, "__file__", None)
    if found is None or file is None or name == "__main__":
        return None  # built in, or written by value anyway
    installed = [Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "purelib", "platlib")]
    return None if any(Path(file).resolve().is_relative_to(folder) for folder in installed) else found


def _source_of(module: Any) -> str:
    """Returns text for people and chat models: the class's source if Python has it, and the module's structure."""
    try:
        text = inspect.getsource(type(module))
    except (OSError, TypeError):
        text = f"# the source of {type(module).__name__} is not available\n"
    return text + "\n" + "\n".join(f"# {line}" for line in repr(module).splitlines()) + "\n"
