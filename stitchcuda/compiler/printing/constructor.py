"""Writes the part of a program that holds its state: tables of tensors, and the constructor that makes them.

Parameters and persistent buffers are filled with NaN (integers with zero) until load_state_dict; constants and non-persistent
buffers come from `constants.safetensors`. It makes text only and needs no torch.

Where to look next: `compiler/printing/forward_body.py` (the forward pass), `compiler/printing/prelude.py` (the functions that
the constructor calls).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stitchcuda.compiler.capture.dependencies import base_name, references
from stitchcuda.compiler.capture.op_graph import OpGraph, StateTensor, contiguous_strides
from stitchcuda.compiler.lower.ir import Stitch
from stitchcuda.compiler.printing.idioms import indent, literal
from stitchcuda.compiler.printing.manifest import source_digest
from stitchcuda.compiler.printing.statement_order import relevant_strides

_NO_GPU = "This program runs on an NVIDIA GPU, and torch sees none on this machine."


def is_constant(entry: StateTensor) -> bool:
    """Whether the tensor's values are stored with the program, as it is not in the state_dict."""
    return entry.kind == "constant" or not entry.persistent


def state_tables(graph: OpGraph, stitches: Sequence[Stitch]) -> list[str]:
    """Returns the tables INPUTS, PARAMETERS, BUFFERS, CONSTANTS, TIED, RECURRENT and KERNELS as text, without empty ones."""
    tables = []
    if graph.inputs:
        rows = [
            f'("{spec.name}", {shape_text(spec.shape)}, torch.{spec.dtype}, {shape_text(spec.strides)}),'
            for spec in graph.inputs
        ]
        tables.append(_table("INPUTS", rows, "name, shape, dtype, strides"))
    for title, kind in (("PARAMETERS", "parameter"), ("BUFFERS", "buffer")):
        entries = [entry for entry in graph.state if entry.kind == kind and not is_constant(entry)]
        if entries:
            tables.append(_table(title, [_row(entry) for entry in entries], "key, shape, dtype[, strides]"))
    constants = [entry for entry in graph.state if is_constant(entry)]
    if constants:
        tables.append(_table("CONSTANTS", [_row(entry) for entry in constants], "not in the state_dict: constants.safetensors"))
    tied = [f'("{key}", "{entry.key}"),' for entry in graph.state for key in entry.tied]
    if tied:
        tables.append(_table("TIED", tied, "one tensor under two keys"))
    layers = [f'("{path}", nn.{kind}, {_options(options)}),' for path, kind, options in recurrent_layers(graph)]
    if layers:
        tables.append(_table("RECURRENT", layers, "path, layer, its arguments"))
    if stitches:
        rows = []
        for stitch in stitches:
            digest = source_digest(stitch.source.cuda, stitch.source.binding)
            rows.append(f'("{stitch.source.name}", "{stitch.kernel.name}", "{digest}"),')
        tables.append(_table("KERNELS", rows, "files, function, digest of the sources"))
    return tables


def prepared_table(graph: OpGraph) -> list[str]:
    """Returns the table PREPARED as text, which names functions of the prelude; [] if the graph has nothing prepared."""
    keys = {entry.spec.name: entry.key for entry in graph.state}
    rows = []
    for made in graph.prepared:
        names = ", ".join(f'"{keys[result].rpartition(".")[2]}"' for result in made.results)
        options = "".join(f", {name}={value}" for name, value in made.options)
        make = f"functools.partial({made.function}{options})" if options else made.function
        rows.append(f'("{keys[made.source]}", {make}, ({names}{"," if len(made.results) == 1 else ""})),')
    return [_table("PREPARED", rows, "a parameter's key, what makes others of it, their names beside it")] if rows else []


_RECURRENT = {"lstm": ("LSTM", 4), "gru": ("GRU", 3), "rnn_tanh": ("RNN", 1), "rnn_relu": ("RNN", 1)}
"""Recurrent operators: the class of torch's layer, and its number of gates."""


def recurrent_layers(graph: OpGraph) -> list[tuple[str, str, dict[str, Any]]]:
    """Returns (module path, class in torch.nn, its arguments) of recurrent layers that the program can hold as torch's own.

    These are the layers whose module holds exactly the weights of the operator, under torch's names.
    """
    entries = {entry.spec.name: entry for entry in graph.state}
    layers: dict[str, tuple[str, str, dict[str, Any]]] = {}
    for node in graph.nodes:
        base = base_name(node.op)
        if base not in _RECURRENT or not node.op.endswith(".input") or not isinstance(node.args[2], tuple):
            continue
        weights = [entries.get(name) for name in references(node.args[2])]
        keys = [entry.key for entry in weights if entry is not None]
        path = keys[0].rpartition(".")[0] if keys else ""
        own = {entry.key for entry in graph.state if entry.key.rpartition(".")[0] == path}
        first = weights[0]
        if len(keys) < len(weights) or first is None or not path or own != set(keys) or keys[0] != f"{path}.weight_ih_l0":
            continue
        kind, gates = _RECURRENT[base]
        projection = next((entry.spec.shape[0] for entry in weights if entry and entry.key.endswith("weight_hr_l0")), 0)
        _, layer_count, dropout, _, bidirectional, batch_first = node.args[3:9]
        options = {
            "input_size": first.spec.shape[1],
            "hidden_size": first.spec.shape[0] // gates,
            "num_layers": layer_count,
            "bias": node.args[3],
            "batch_first": batch_first,
            "dropout": dropout,
            "bidirectional": bidirectional,
            "proj_size": projection,
            "nonlinearity": base.removeprefix("rnn_") if kind == "RNN" else None,
        }
        plain: dict[str, Any] = {
            "num_layers": 1,
            "bias": True,
            "batch_first": False,
            "dropout": 0.0,
            "bidirectional": False,
            "proj_size": 0,
        }
        plain |= {"nonlinearity": None}
        layers[path] = (path, kind, {key: value for key, value in options.items() if key not in plain or value != plain[key]})
    return list(layers.values())


def _options(options: dict[str, Any]) -> str:
    return "{" + ", ".join(f'"{key}": {literal(value, str)}' for key, value in options.items()) + "}"


def _table(name: str, rows: Sequence[str], comment: str) -> str:
    return "\n".join([f"{name} = (  # {comment}", *(f"    {row}" for row in rows), ")"])


def _row(entry: StateTensor) -> str:
    spec = entry.spec
    strides = (
        ""
        if relevant_strides(spec.shape, spec.strides) == relevant_strides(spec.shape, contiguous_strides(spec.shape))
        else f", {shape_text(spec.strides)}"
    )
    return f'("{entry.key}", {shape_text(spec.shape)}, torch.{spec.dtype}{strides}),'


def shape_text(sizes: Sequence[int]) -> str:
    """Returns a shape as a Python tuple: `(8,)`, `(2, 3)`."""
    return f"({', '.join(map(str, sizes))}{',' if len(sizes) == 1 else ''})"


def write_constructor(graph: OpGraph, stitches: Sequence[Stitch], host: Sequence[str], workspace: int) -> list[str]:
    """Returns the lines of the class `ModelNew` from its head to the end of `__init__`.

    `host` are host features such as "cuda_graph"; `workspace` is the bytes of scratch memory that the kernels need.
    """
    note = f"Model({graph.init_signature})" if graph.init_signature else "Model()"
    body = ["super().__init__()"]
    if stitches or "cuda_graph" in host:
        body += ["if not torch.cuda.is_available():", f'    raise RuntimeError("{_NO_GPU}")']
    if recurrent_layers(graph):
        body += [
            "for path, kind, options in RECURRENT:  # torch's own layers: they lay weights out as cuDNN wants them",
            '    *outer, name = path.split(".")',
            '    container(self, outer).add_module(name, kind(**options, device="meta"))',
        ]
    for title, kind, entries in _state_to_fill(graph):
        if entries:
            body.append(f"for key, shape, dtype, *strides in {title}:")
            body.append('    layout = strides[0] if strides else torch.empty(shape, device="meta").stride()')
            body.append(f"    place(self, key, unfilled(shape, layout, dtype), parameter={kind == 'parameter'})")
    if any(is_constant(entry) for entry in graph.state):
        body += [
            "values = read_constants()",
            "for key, shape, dtype, *strides in CONSTANTS:",
            "    value = values[key]",
            "    if strides:",
            "        value = torch.empty_strided(shape, strides[0], dtype=dtype).copy_(value)",
            "    place(self, key, value, parameter=False, persistent=False)",
        ]
    if any(entry.tied for entry in graph.state):
        body += [
            "tensors = dict(self.named_parameters()) | dict(self.named_buffers())",
            "for key, first in TIED:",
            "    place(self, key, tensors[first], parameter=isinstance(tensors[first], nn.Parameter))",
        ]
    body += ["fill_lists(self)"] if graph.state else []
    body += [f"self.train({graph.training})"] if not graph.training else []
    body += ["self._workspace: Tensor | None = None"] if workspace else []
    body += ["self._prepared = Prepared(self, PREPARED)"] if graph.prepared else []
    head = [
        "",
        "class ModelNew(nn.Module):",
        f'    """Takes the arguments of the reference\'s {escaped(note)} and ignores them: all sizes are fixed."""',
        "",
        "    def __init__(self, *_: object, **__: object) -> None:",
    ]
    if "cuda_graph" in host:
        keys = {entry.spec.name: entry.key for entry in graph.state}
        state = [keys[mutation.target] for mutation in graph.mutations if mutation.target in keys]
        inputs = [spec.name for spec in graph.inputs]
        positions = [inputs.index(mutation.target) for mutation in graph.mutations if mutation.target in inputs]
        extra = f", state={literal(tuple(state), str)}" if state else ""
        extra += f", inputs={tuple(positions)!r}" if positions else ""
        body.append(f"self._replay = GraphReplay(self, self.compute{extra})")
        apply = [
            "",
            "def _apply(self, *args, **kwargs):",
            "    self._replay.forget()  # .to() and its like move the tensors that the graph holds",
            "    return super()._apply(*args, **kwargs)",
        ]
        return [*head, *indent(indent(body)), *indent(apply)]
    return [*head, *indent(indent(body))]


def escaped(text: str) -> str:
    """Returns `text` so that it can stand in a docstring."""
    return text.replace("\\", "\\\\").replace('"""', "'''")


def _state_to_fill(graph: OpGraph) -> list[tuple[str, str, list[StateTensor]]]:
    kinds = (("PARAMETERS", "parameter"), ("BUFFERS", "buffer"))
    return [(title, kind, [e for e in graph.state if e.kind == kind and not is_constant(e)]) for title, kind in kinds]
