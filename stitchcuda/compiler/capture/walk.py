"""Runs an exported program operator by operator and writes down each as a node (torch; reference worker only).

The run is on fake tensors, or on copies of the real ones when observing. Strides, shared memory and in-place writes are found
by comparing tensors before and after each operator, not by a list of operators; every value keeps the name that torch.export
gave it. Control flow, sizes that depend on the data, autocast inside forward and tensors that are not strided raise
`Uncapturable`.

Where to look next: `compiler/capture/capture.py` (what callers use), `compiler/capture/dependencies.py` (declared writes).
"""

from __future__ import annotations

import copy
import inspect
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

from stitchcuda.compiler.capture.dependencies import base_name, memory_owners, reads, references, without_dead_nodes, writes
from stitchcuda.compiler.capture.inplace import functional_twin, make_functional
from stitchcuda.compiler.capture.op_graph import Literal_, Mutation, Node, OpGraph, StateTensor, ValueRef
from stitchcuda.compiler.capture.registered_operators import NotImportable, find_packages
from stitchcuda.state import TensorSpec

_INVISIBLE = frozenset({"_assert_tensor_metadata", "_assert_async", "_assert_scalar", "sym_constrain_range_for_size"})
"""Checks that the export adds; their conditions hold for the captured shapes and dtypes."""
_IDENTITIES = frozenset({"detach", "detach_", "lift_fresh", "alias", "dropout", "feature_dropout", "alpha_dropout"})
"""Operators that return their input itself here: no gradients exist, and dropout is one of these when it is off."""


class Uncapturable(Exception):
    """Why a program has no operator graph, as one sentence."""


@dataclass(frozen=True)
class Capture:
    """A graph and the values it cannot hold: lifted constants and non-persistent buffers by key, on their own device."""

    graph: OpGraph
    constants: dict[str, Tensor] = field(default_factory=dict)


def _spec(name: str, value: Tensor) -> TensorSpec:
    if value.layout != torch.strided:
        raise Uncapturable(f"The tensor {name} is not a dense strided tensor ({value.layout}).")
    return TensorSpec(
        name=name, shape=tuple(value.shape), dtype=str(value.dtype).removeprefix("torch."), strides=tuple(value.stride())
    )


class Walk:
    """One run through the exported graph. `env` maps fx nodes to values of the graph, `live` value names to tensors."""

    def __init__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], observe: bool) -> None:
        self.module, self.args, self.kwargs = module, args, kwargs
        self.fake = FakeTensorMode(allow_non_fake_inputs=True)
        self.observe = observe
        self.live: dict[str, Tensor] = {}
        self.nodes: list[Node] = []
        self.twins: dict[str, str] = {}
        self.env: dict[fx.Node, Any] = {}  # a structure of ValueRef and constants
        self.holders: Counter[str] = Counter()  # fx values that stand for a live tensor and still have readers
        self.waiting: dict[fx.Node, int] = {}

    def run(self, exported: Any) -> Capture:
        """Returns the graph of a `torch.export.ExportedProgram`. Raises `Uncapturable`."""
        constants: dict[str, Tensor] = {}
        inputs, call = self._inputs(exported)
        state = self._state(exported, constants)
        self._block(exported.graph_module, exported.graph)
        returned = next(node for node in exported.graph.nodes if node.op == "output").args[0]
        shape = exported.call_spec.out_spec
        flat = [_plain(self._value(item)) for item in returned][-shape.num_leaves :]
        # Numbers stand for the values: a class such as transformers' ModelOutput takes apart what can be iterated.
        outputs = pytree.tree_map(flat.__getitem__, _plain(pytree.tree_unflatten(range(shape.num_leaves), shape)))
        stored = {key: value.detach().cpu().contiguous().clone() for key, value in constants.items()}
        graph = OpGraph(
            inputs=inputs,
            call=call,
            state=state,
            nodes=tuple(self.nodes),
            outputs=outputs,
            training=self.module.training,
            mode_matters=_mode_matters(self.module, self.nodes),
            init_signature=_init_signature(self.module),
            packages=self._packages(),
            constants=save(stored) if stored else b"",
        )
        graph = without_dead_nodes(make_functional(graph, self.twins))
        owner = memory_owners(graph)
        owned = {spec.name for spec in inputs} | {entry.spec.name for entry in state}
        written = dict.fromkeys(owner[value] for node in graph.nodes for value in writes(node))
        mutations = tuple(Mutation(target=value, value=value) for value in written if value in owned)
        return Capture(graph.model_copy(update={"mutations": mutations}), constants)

    def _packages(self) -> tuple[str, ...]:
        try:
            return find_packages(self.nodes)
        except NotImportable as problem:
            raise Uncapturable(str(problem)) from problem

    # -- what the graph starts from

    def _register(self, name: str, value: Tensor, *, state: bool = True) -> TensorSpec:
        """Records `value` under its name and returns its spec. Operators will see a fake tensor, or a copy when observing."""
        if state and _overlaps(value):  # an expanded buffer: a program holds it as a contiguous tensor
            value = value.contiguous()
        if self.observe:
            self.live[name] = copy.deepcopy(value.detach())
        else:
            self.live[name] = self.fake.from_tensor(value.detach())
        return _spec(name, value)

    def _inputs(self, exported: Any) -> tuple[tuple[TensorSpec, ...], Any]:
        wanted = [spec for spec in exported.graph_signature.input_specs if spec.kind.name == "USER_INPUT"]
        order = exported.call_spec.in_spec.children()[1].context if self.kwargs else ()
        leaves, structure = pytree.tree_flatten((self.args, {key: self.kwargs[key] for key in order or self.kwargs}))
        if len(leaves) != len(wanted):
            raise Uncapturable("Its inputs have a structure that torch.export flattens differently.")
        specs, flat = [], []
        for spec, leaf in zip(wanted, leaves, strict=True):
            if isinstance(leaf, Tensor):
                specs.append(self._register(spec.arg.name, leaf, state=False))
                flat.append(ValueRef(value=spec.arg.name))
            else:
                flat.append(_constant(leaf))
        placeholders = {node.name: node for node in exported.graph.nodes if node.op == "placeholder"}
        for spec, item in zip(wanted, flat, strict=True):
            if spec.arg.name in placeholders:
                self.env[placeholders[spec.arg.name]] = item
        positional, named = pytree.tree_unflatten(flat, structure)
        names = list(inspect.signature(self.module.forward).parameters.values())
        plain = [p.name for p in names if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        labels = tuple(plain[i] if i < len(plain) else f"argument_{i}" for i in range(len(self.args)))
        return tuple(specs), {"args": _plain(positional), "kwargs": _plain(named), "names": labels}

    def _state(self, exported: Any, constants: dict[str, Tensor]) -> tuple[StateTensor, ...]:
        """All state of the module, used by the graph or not: `load_state_dict` wants every key."""
        placeholders = {node.name: node for node in exported.graph.nodes if node.op == "placeholder"}
        keys: dict[int, list[str]] = {}
        tensors: dict[str, Tensor] = {}
        parameters = self.module.named_parameters(remove_duplicate=False)
        for key, tensor in (*parameters, *self.module.named_buffers(remove_duplicate=False)):
            keys.setdefault(id(tensor), []).append(key)
            tensors[key] = tensor
        persistent = set(self.module.state_dict(keep_vars=True))
        entries: dict[str, StateTensor] = {}
        first = {key: group[0] for group in keys.values() for key in group}
        named: dict[str, str] = {}  # first key → value name
        for spec in exported.graph_signature.input_specs:
            if spec.kind.name in ("PARAMETER", "BUFFER"):
                name = named.setdefault(first[spec.target], spec.arg.name)
                self.env[placeholders[spec.arg.name]] = ValueRef(value=name)
            elif spec.kind.name == "CONSTANT_TENSOR":
                value = exported.constants[spec.target]
                key = spec.target if spec.target not in tensors else f"constant.{spec.target}"
                registered = self._register(spec.arg.name, value)
                entries[key] = StateTensor(spec=registered, key=key, kind="constant", persistent=False)
                constants[key] = value.detach()
                self.env[placeholders[spec.arg.name]] = ValueRef(value=spec.arg.name)
            elif spec.kind.name != "USER_INPUT":
                raise Uncapturable(f"It uses a {spec.kind.name.lower().replace('_', ' ')}, which has no place in a program.")
        state: list[StateTensor] = []
        for group in keys.values():
            key, tensor = group[0], tensors[group[0]]
            name = named.get(key, f"state_{key}".replace(".", "_"))
            stored = any(key in persistent for key in group)
            state.append(
                StateTensor(
                    spec=self._register(name, tensor),
                    key=key,
                    kind="parameter" if isinstance(tensor, nn.Parameter) else "buffer",
                    persistent=stored,
                    tied=tuple(group[1:]),
                )
            )
            if not stored:
                constants[key] = tensor.detach()
        return (*state, *entries.values())

    # -- operators

    def _block(self, owner: fx.GraphModule, graph: fx.Graph) -> None:
        for node in graph.nodes:
            if node.op == "call_function":
                self._call(owner, node)
                if self.observe:
                    self._release(node)

    def _release(self, node: fx.Node) -> None:
        """Frees real tensors after their last reader, as eager does."""
        if node in self.env:
            self.holders.update(set(references(self.env[node])))
        for source in node.all_input_nodes:
            left = self.waiting.setdefault(source, len(source.users)) - 1
            self.waiting[source] = left
            if left == 0 and source.op == "call_function":
                names = set(references(self.env[source]))
                self.holders.subtract(names)
                for name in names:
                    if self.holders[name] <= 0:
                        self.live.pop(name, None)

    def _value(self, item: Any) -> Any:
        if isinstance(item, fx.Node):
            return self.env[item]
        if isinstance(item, tuple | list):
            return tuple(self._value(part) for part in item)
        return _constant(item)

    def _tensors(self, item: Any) -> Any:
        """Returns the argument as the operator takes it, with fx nodes replaced by their tensors."""
        if isinstance(item, fx.Node):
            return self._tensors(self.env[item])
        if isinstance(item, ValueRef):
            return self.live[item.value]
        if isinstance(item, Literal_):
            return torch.device(item.text) if item.kind == "device" else getattr(torch, item.text)
        if isinstance(item, tuple | list):
            return [self._tensors(part) for part in item]
        return item

    def _call(self, owner: fx.GraphModule, node: fx.Node) -> None:
        target: Any = node.target
        if getattr(target, "__name__", "") == "getitem":
            self.env[node] = self.env[node.args[0]][node.args[1]]  # type: ignore[index]
            return
        if isinstance(target, torch._ops.HigherOrderOperator):
            self._inline(owner, node)
            return
        if not isinstance(target, torch._ops.OpOverload):
            raise Uncapturable(f"It computes with {getattr(target, '__name__', target)}, which depends on the data.")
        base = target._schema.name.split("::")[-1]
        if base in _INVISIBLE:
            return
        if _is_identity(base, node) or (base == "lift_fresh_copy" and not _written_later(node)):
            self.env[node] = self._value(node.args[0])
            return
        name = node.name
        args = tuple(self._value(item) for item in node.args)
        kwargs = {key: self._value(item) for key, item in node.kwargs.items()}
        if base == "lift_fresh_copy":
            target = torch.ops.aten.clone.default
        record = Node(name=name, op=str(target), args=args, kwargs=kwargs)
        results = self._run(target, node, record)
        unchanged = [value for value in _names(record) if results and results[0][1] is self.live[value]]
        if unchanged and len(results) == 1 and not writes(record):  # `.contiguous()` or `.to()` with nothing to do
            self.env[node] = ValueRef(value=unchanged[0])
            return
        outputs = tuple(_spec(output, value) for output, value in results)
        scope, kind = _scope(node)
        aliases = _shared(results[0][1], record, self.live) if results else None
        known = {"outputs": outputs, "scope": scope, "scope_type": kind, "aliases": aliases, "draws": _draws(target, node)}
        self.nodes.append(record.model_copy(update=known))
        self.live |= dict(results)
        refs = tuple(ValueRef(value=output) for output, _ in results)
        self.env[node] = refs[0] if len(refs) == 1 and not _returns_many(target) else refs

    def _run(self, target: Any, node: fx.Node, record: Node) -> list[tuple[str, Tensor]]:
        """Runs one operator on live tensors; checks that it writes only what `dependencies.writes` declares."""
        args = [self._tensors(item) for item in node.args]
        kwargs = {key: self._tensors(item) for key, item in node.kwargs.items()}
        used = {name: self.live[name] for name in _names(record)}
        before = {name: value._version for name, value in used.items()}
        mode: Any = nullcontext() if self.observe else self.fake
        with mode:
            twin = functional_twin(target, record, args, kwargs, self.fake)
            result = target(*args, **kwargs)
        if twin:
            self.twins[record.name] = twin
        written = {name for name, value in used.items() if value._version != before[name]}
        declared = {name for value in writes(record) for name in used if _same_memory(used[name], used[value])}
        if not written <= declared:
            raise Uncapturable(f"{record.op} writes {', '.join(sorted(written - declared))} in place without declaring it.")
        many = isinstance(result, tuple | list)
        values = list(result) if many else [result] if result is not None else []
        if not all(isinstance(value, Tensor) for value in values):
            raise Uncapturable(f"{record.op} returns a number that depends on the data.")
        if not many:
            return [(node.name, value) for value in values]
        taken = {user.args[1]: user.name for user in node.users if getattr(user.target, "__name__", "") == "getitem"}
        return [(taken.get(i, f"{node.name}_out{i}"), value) for i, value in enumerate(values)]

    def _inline(self, owner: fx.GraphModule, node: fx.Node) -> None:
        """`with torch.enable_grad()` and its like change nothing here: their bodies become part of the graph."""
        if str(node.target) != "wrap_with_set_grad_enabled":
            if str(node.target) == "wrap_with_autocast":
                raise Uncapturable("It uses torch.autocast inside forward; cast explicitly instead.")
            raise Uncapturable(f"It uses the control flow operator {node.target}.")
        body = getattr(owner, str(node.args[1].target))  # type: ignore[union-attr]
        operands = [self._value(item) for item in node.args[2:]]
        for placeholder, operand in zip([n for n in body.graph.nodes if n.op == "placeholder"], operands, strict=True):
            self.env[placeholder] = operand
        self._block(body, body.graph)
        returned = next(n for n in body.graph.nodes if n.op == "output").args[0]
        self.env[node] = tuple(self._value(item) for item in returned)


def _constant(item: Any) -> Any:
    """Returns a constant argument (a number, dtype, device, ...) as it is stored in the graph."""
    if item is None or isinstance(item, bool | int | float | str):
        return item
    kinds: dict[type, Any] = {torch.dtype: "dtype", torch.memory_format: "memory_format", torch.layout: "layout"}
    for kind, label in kinds.items():
        if isinstance(item, kind):
            return Literal_(kind=label, text=str(item).removeprefix("torch."))
    if isinstance(item, torch.device):
        return Literal_(kind="device", text=str(item))
    if isinstance(item, torch.SymInt | torch.SymFloat | torch.SymBool):
        raise Uncapturable("A size or number in it depends on the data.")
    raise Uncapturable(f"An argument of type {type(item).__name__} has no place in a program.")


def _plain(item: Any) -> Any:
    """Returns the structure with plain tuples, lists and dicts: named tuples become tuples, dict subclasses dicts."""
    if isinstance(item, dict):
        if strange := [key for key in item if not isinstance(key, str)]:
            raise Uncapturable(f"It takes or returns a dict with the key {strange[0]!r}: only text is understood.")
        return {key: _plain(part) for key, part in item.items()}
    if isinstance(item, tuple):
        return tuple(_plain(part) for part in item)
    if isinstance(item, list):
        return [_plain(part) for part in item]
    if item is None or isinstance(item, ValueRef | Literal_ | bool | int | float | str):
        return item
    raise Uncapturable(f"It takes or returns a {type(item).__name__}, which is no nested tuple, list or dict.")


def _overlaps(value: Tensor) -> bool:
    return any(stride == 0 and size > 1 for size, stride in zip(value.shape, value.stride(), strict=True))


def _names(record: Node) -> list[str]:
    return list(dict.fromkeys(reads(record)))


def _same_memory(left: Tensor, right: Tensor) -> bool:
    return bool(left.untyped_storage()._cdata == right.untyped_storage()._cdata)


def _shared(result: Tensor, record: Node, live: dict[str, Tensor]) -> str | None:
    """Returns the name of the argument whose memory the first output shares, or None."""
    for name in (*writes(record)[:1], *_names(record)):
        if _same_memory(result, live[name]):
            return name
    return None


def _returns_many(target: Any) -> bool:
    returns = target._schema.returns
    return len(returns) != 1 or str(returns[0].type).startswith("List")


def _is_identity(base: str, node: fx.Node) -> bool:
    if base not in _IDENTITIES:
        return False
    if "dropout" in base:
        return node.args[2] is False or node.args[1] == 0.0  # type: ignore[return-value]
    return True


def _draws(target: Any, node: fx.Node) -> bool:
    """Whether the operator takes random numbers from torch's generator, called as it is."""
    if torch.Tag.nondeterministic_seeded not in target.tags:
        return False
    names = [argument.name for argument in target._schema.arguments]
    given = {argument.name: argument.default_value for argument in target._schema.arguments}
    given |= dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
    probability = next((given[name] for name in ("dropout_p", "dropout") if name in given), 1.0)
    return probability != 0.0 and given.get("train") is not False


def _written_later(node: fx.Node) -> bool:
    """Whether the copy matters: something may write it, or it leaves the program. Looks through detach and views alike."""
    for user in node.users:
        if user.op == "output":
            return True
        target: Any = user.target
        schema = getattr(target, "_schema", None)
        if schema is None:
            return True
        if schema.name.endswith(("::detach", "::detach_")):
            if _written_later(user):
                return True
        elif any(value.alias_info is not None for value in (*schema.arguments, *schema.returns)):
            return True
    return False


def _scope(node: fx.Node) -> tuple[str, str]:
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    if not stack:
        return "", ""
    path, kind = stack[-1]
    text = kind if isinstance(kind, str) else kind.__qualname__
    return str(path).split("@")[0], text.split(".")[-1]


def _mode_matters(module: nn.Module, nodes: list[Node]) -> bool:
    """Whether train() and eval() differ: by the modules there are, and by functional forms in the graph."""
    sensitive = (nn.modules.batchnorm._NormBase, nn.modules.dropout._DropoutNd)
    for part in module.modules():
        if isinstance(part, sensitive) and float(getattr(part, "p", 1.0)) > 0:
            return True
        if isinstance(part, nn.RNNBase | nn.MultiheadAttention) and float(part.dropout) > 0:
            return True
    return any(base_name(node.op) in ("batch_norm", "instance_norm") for node in nodes)


def _init_signature(module: nn.Module) -> str:
    initialise: Callable[..., Any] = type(module).__init__
    try:
        parameters = list(inspect.signature(initialise).parameters.values())[1:]
    except (TypeError, ValueError):
        return ""
    return ", ".join(str(parameter.replace(annotation=inspect.Parameter.empty)) for parameter in parameters)
