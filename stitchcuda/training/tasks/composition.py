"""Composes a task: draws 1 to 5 operators that fit each other, and writes them as a reference in KernelBench's form.

The same draft is written twice: with the sizes of the task, and with small ones of the same structure, on which filters run.
Everything follows from the random generator that is passed in. Nothing is run here.
Where to look next: `training/tasks/operator_tables.py` (what is drawn from), `training/tasks/scaling.py` (the task's sizes).
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from stitchcuda.training.tasks.operator_tables import ACTIVATIONS, FAMILY_WEIGHTS, FOLLOWING, LAYOUT_WEIGHTS, OPERATORS
from stitchcuda.training.tasks.operators import LAYOUTS, SIZES, Operator

Key = TypeVar("Key", str, int)
_COUNTS = {1: 5, 2: 18, 3: 30, 4: 27, 5: 20}
_SUM = "x = x + identity"                  # the end of a residual
_RESIDUAL, _PROJECTED = 0.45, 0.3          # how often a residual is added where it fits; where it needs a projection
_FIRST = {
    "B": "batch_size", "L": "seq_len", "D": "embed_dim", "C": "channels", "H": "height", "W": "width", "T": "length",
    "Z": "depth", "F": "features", "M": "matrix_rows", "N": "matrix_cols", "P": "num_points",
}  # fmt: skip
_PROJECTIONS = {
    "sequence": "nn.Linear({D}, {E})", "rows": "nn.Linear({F}, {E})", "image": "nn.Conv2d({C}, {E}, kernel_size=1)",
    "signal": "nn.Conv1d({C}, {E}, kernel_size=1)", "volume": "nn.Conv3d({C}, {E}, kernel_size=1)",
}  # fmt: skip
_CHANNEL = {"sequence": 2, "rows": 1, "image": 1, "signal": 1, "volume": 1}


@dataclass
class Composition:
    """A composed task without its sizes. `sizes`: constant → (small, of the task). `arguments`: those the constructor takes, in
    order. `shape`: expressions for the dimensions of `x`, which `layout` names."""

    layout: str
    shape: list[str]
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)
    arguments: list[str] = field(default_factory=list)
    inputs: list[tuple[str, str]] = field(default_factory=list)
    init: list[str] = field(default_factory=list)
    forward: list[tuple[int, str]] = field(default_factory=list)  # number of the operator, -1: none; line
    operators: list[Operator] = field(default_factory=list)
    residual: bool = False
    names: set[str] = field(default_factory=set)

    def write(self, sizes: Mapping[str, int], forward: Sequence[str] | None = None) -> str:
        """Returns the reference's text with these values of its constants. `forward`: other lines instead of its own."""
        body = "\n".join(f"        {line}" for line in self.init)
        steps = "\n".join(f"        {line}" for line in ([line for _, line in self.forward] if forward is None else forward))
        taken = "".join(f", {name}" for name in self.arguments)
        text = body + steps
        heads = [f"import {name}" for name in ("math",) if f"{name}." in text]
        imports = [*heads, "", "import torch", "import torch.nn as nn"][0 if heads else 1:]
        imports += ["import torch.nn.functional as F"] * ("F." in text)
        constants = "\n".join(f"{name} = {sizes[name]}" for name in self.sizes)
        made = ", ".join(how for _, how in self.inputs)
        if len(made) > 100:
            made = "\n        " + ",\n        ".join(how for _, how in self.inputs) + ",\n    "
        text = "\n".join([
            *imports, "", "", "class Model(nn.Module):", f'    """{self.title()}"""', "",
            f"    def __init__(self{taken}):", "        super().__init__()", *([body] if body else []), "",
            f"    def forward(self, {', '.join(name for name, _ in self.inputs)}):", steps, "        return x", "", "",
            constants, "", "", "def get_inputs():", f"    return [{made}]", "", "",
            "def get_init_inputs():", f"    return [{', '.join(self.arguments)}]", "",
        ])  # fmt: skip
        return re.sub(r"(?<=[( \[])\((\w+ (?://|\*) \d+)\)(?=[,)])", r"\1", text)

    def title(self) -> str:
        names = [operator.name for operator in self.operators]
        text = ", ".join(names[:-1]) + (" and " if names[1:] else "") + names[-1]
        extra = " with a residual connection" if self.residual else ""
        return f"{text[:1].upper()}{text[1:]}{extra}."

    def without_each(self) -> list[tuple[str, str]]:
        """Returns (name, text at the small sizes without it) for each operator that keeps the shape, and for both sides of the
        residual. Names may repeat."""
        lines = [line for _, line in self.forward]
        left_out = [
            (operator.name, [line for at, line in self.forward if at != number])
            for number, operator in enumerate(self.operators) if not operator.shape and self.operators[1:]
        ]  # fmt: skip
        if self.residual:
            left_out += [
                ("residual", [line for line in lines if line != _SUM]),
                ("branch beside the residual", ["x = identity" if line == _SUM else line for line in lines]),
            ]
        return [(name, self.write(self.small(), forward)) for name, forward in left_out]

    def small(self) -> dict[str, int]:
        return {name: small for name, (small, _) in self.sizes.items()}

    def large(self) -> dict[str, int]:
        return {name: large for name, (_, large) in self.sizes.items()}


def compose(rng: random.Random) -> Composition:
    """Draws a task."""
    layout = _pick(rng, LAYOUT_WEIGHTS)
    draft = Composition(layout, [])
    draft.shape = [_new_size(draft, rng, _first_kind(layout, letter)) for letter in LAYOUTS[layout].split()]
    draft.inputs.append(("x", _uneven(layout, draft.shape)))
    draft.names.add("x")
    count = _pick(rng, _COUNTS)
    marks = [(layout, list(draft.shape), 0)]   # before each operator: layout, shape, lines of forward so far
    role = ""
    while len(draft.operators) < count:
        operator = _draw(draft, rng, role, last=len(draft.operators) == count - 1, alone=count == 1)
        if operator is None:
            break
        role = operator.role
        _add(draft, rng, operator)
        marks.append((draft.layout, list(draft.shape), len(draft.forward)))
    _add_residual(draft, rng, marks)
    return draft


def _uneven(layout: str, shape: Sequence[str]) -> str:
    """Returns how `x` is drawn: channels and samples of different sizes, samples (or columns of rows) of different means. Of
    values that are all alike a norm changes nothing, and any average is the same."""
    channel = _CHANNEL.get(layout, len(shape) - 1)
    behind = ["1"] * (len(shape) - 1 - channel)
    size = ", ".join([shape[channel], *behind])
    means = [name if place in (0, channel) else "1" for place, name in enumerate(shape)]
    offset = size if layout == "rows" else ", ".join(means)
    samples = ", ".join([shape[0], *("1" for _ in shape[1:])])
    return f"torch.randn({', '.join(shape)}) * (0.2 + torch.rand({size}) + torch.rand({samples})) + torch.randn({offset})"


def _first_kind(layout: str, letter: str) -> str:
    return "rows" if layout == "rows" and letter == "B" else _FIRST[letter]


def _draw(draft: Composition, rng: random.Random, role: str, *, last: bool, alone: bool) -> Operator | None:
    """Draws the next operator; None where nothing may follow."""
    table = OPERATORS[draft.layout]
    followers = dict(FOLLOWING[role])
    if not last:
        followers.pop("loss", None)
    if draft.operators and (draft.operators[-1].activated or draft.operators[-1].whole):
        followers.pop("act", None)
    if "norm" in [operator.role for operator in draft.operators[-2:]] and role == "act":
        followers.pop("norm", None)        # nothing but an activation since the last one
    if draft.operators and draft.operators[-1].sums_to_one:
        followers = {"mix": 1}
    if last and role:
        ends = {"loss": 3.0, "head": 3.0, "move": 0.2}
        followers = {key: weight * ends.get(key, 1.0) for key, weight in followers.items()}
    if alone:
        followers = {"mix": 5, "norm": 1.5, "loss": 2, "head": 1, "pool": 0.3}
    known = {key: weight for key, weight in followers.items() if table.get(key) or key == "act"}
    while known:
        chosen = _pick(rng, known)
        used = {operator.name for operator in draft.operators}
        scanned = "scan" in (operator.family for operator in draft.operators)
        options = [*table.get(chosen, []), *(ACTIVATIONS if chosen == "act" else [])]
        fitting = [
            operator for operator in options
            if (operator.name not in used or chosen == "act" or (operator.weight >= 2 and not operator.inputs))
            and not (operator.first and draft.operators) and not (scanned and operator.family == "scan")
            and not _merges(draft.operators, operator) and _fits(draft, operator)
        ]  # fmt: skip
        if fitting:
            return rng.choices(fitting, [operator.weight * FAMILY_WEIGHTS[operator.family] for operator in fitting])[0]
        del known[chosen]
    return None


def _merges(before: Sequence[Operator], operator: Operator) -> bool:
    """Whether algebra would merge the operator with those before it, exchange them for less work, or make it a constant."""
    before = [earlier for earlier in before if earlier.family != "movement" or earlier.init]
    if not before:
        return False
    last, pending = before[-1], _is_linear_so_far(before)
    product = last.ends_linear or (pending and "norm" not in (earlier.role for earlier in before[-2:]))
    if last.role == "norm" and last.inputs and operator.role == "join":
        return True                        # one modulation, or one sum, after another
    if (pending and operator.linear) or (product and operator.starts_linear) or (last.ends_affine and operator.averages):
        return True
    source = next((earlier for earlier in reversed(before) if earlier.role != "act"), last)
    return operator.pools and (last.skips or last.role in ("norm", "join", "pool") or source.levels)


def _is_linear_so_far(before: Sequence[Operator]) -> bool:
    """Whether x is a linear function of what the last product or convolution made: another one, or a sum, folds into it."""
    for operator in reversed(before):
        if operator.linear:
            return operator.family in ("product", "convolution")
        if operator.role not in ("move", "join", "norm", "pool") or operator.family == "attention":
            return False
    return False


def _fits(draft: Composition, operator: Operator) -> bool:
    """Whether sizes that the operator halves or groups are large and even enough, at both sets of sizes."""
    letters = dict(zip(LAYOUTS[draft.layout].split(), draft.shape, strict=True))
    text = operator.shape + operator.init
    for letter, expression in letters.items():
        for divisor in re.findall(rf"(?<![A-Z]){letter}\}}? ?// ?(\d)", text):
            if any(_value(expression, sizes) % (2 * int(divisor)) for sizes in (draft.small(), draft.large())):
                return False
    if any(part in text + operator.forward for part in ("groups=4", "GroupNorm(4", "c // 4", "unflatten(-1, (-1, 2))")):
        channel = draft.shape[1] if len(draft.shape) != 3 or draft.layout == "signal" else draft.shape[-1]
        if any(_value(channel, sizes) % 8 for sizes in (draft.small(), draft.large())):
            return False
    if "chunk(2" in operator.forward and "dim=1)" in operator.forward and "C//2" in operator.shape:
        return not _value(draft.shape[1], draft.small()) % 4
    if "A=num_heads" in operator.new:
        return all(_value(draft.shape[-1], sizes) % 16 == 0 for sizes in (draft.small(), draft.large()))
    grows = re.findall(r"[A-Z]\*2", operator.shape)
    if grows or "H*W" in operator.shape:
        wide = draft.shape[2:] if draft.layout in ("image", "volume") else []
        return all(_value(expression, draft.large()) <= 128 for expression in wide)
    return True


def _add(draft: Composition, rng: random.Random, operator: Operator) -> None:
    letters = dict(zip(LAYOUTS[draft.layout].split(), draft.shape, strict=True))
    for entry in operator.new.split():
        letter, kind = entry.split("=")
        same = letter in "KEG" and rng.random() < 0.5 and kind in ("channels", "embed_dim", "features", "matrix_cols")
        channel = draft.shape[_CHANNEL.get(draft.layout, len(draft.shape) - 1)]
        keep = same and operator.shape and channel in draft.sizes
        letters[letter] = channel if keep else _new_size(draft, rng, kind)
    init, forward = operator.init, operator.forward
    own = dict.fromkeys([*re.findall(r"self\.(\w+) =", init), *re.findall(r"register_buffer\('(\w+)'", init)])
    for name in own:
        fresh = _fresh(draft, f"self.{name}").removeprefix("self.")
        init = re.sub(rf"(self\.|register_buffer\('){name}\b", rf"\g<1>{fresh}", init)
        forward = re.sub(rf"self\.{name}\b", f"self.{fresh}", forward)
    taken = {name for name, _ in draft.inputs}
    local = {name.strip() for left in re.findall(r"^([\w, ]+?) = ", forward, re.MULTILINE) for name in left.split(",")} - {"x"}
    for name in sorted(local & taken):
        forward = re.sub(rf"(?<![\w.'=]){name}\b", _fresh(draft, name), forward)
    draft.names |= local
    for entry in filter(None, operator.inputs.split(";") if "ints" not in operator.inputs else [operator.inputs]):
        name, how = entry.split("=", 1)
        fresh = _fresh(draft, name)
        forward = re.sub(rf"(?<![\w.'\"]){name}\b(?! ?=[^=])", fresh, forward)
        draft.inputs.append((fresh, _input(how, letters)))
    for line in filter(None, init.split("\n")):
        filled = re.sub(r"\{([A-Z])\}", lambda match: _inside(letters[match[1]]), line)
        _take_arguments(draft, filled)
        draft.init.append(filled)
    draft.forward += [(len(draft.operators), line) for line in forward.split("\n")]
    if operator.shape:
        draft.shape = [_dimension(part, letters) for part in operator.shape.split()]
    draft.layout = operator.to or draft.layout
    draft.operators.append(operator)


def _add_residual(draft: Composition, rng: random.Random, marks: Sequence[tuple[str, list[str], int]]) -> None:
    """Adds x as it was before a run of operators to what they made, where shapes allow, perhaps through a projection."""
    spans = [
        (first, last) for first in range(len(marks)) for last in range(first + 1, len(marks))
        if marks[first][0] == marks[last][0]
        and any(operator.role == "mix" and not operator.skips for operator in draft.operators[first:last])
        and any(operator.bends for operator in draft.operators[first:last])  # else both sides fold into one product
        and not any(operator.role in ("head", "loss") for operator in draft.operators[first:last])
    ]  # fmt: skip
    plain = [span for span in spans if marks[span[0]][1] == marks[span[1]][1]]
    projected = [
        span for span in spans
        if span not in plain and any(operator.bends and operator.role != "norm" for operator in draft.operators[slice(*span)])
        and not (span[0] and draft.operators[span[0] - 1].ends_linear)  # which the projection would take in
        and (at := _CHANNEL.get(marks[span[0]][0])) is not None
        and all(a == b for place, (a, b) in enumerate(zip(marks[span[0]][1], marks[span[1]][1], strict=True)) if place != at)
    ]  # fmt: skip
    if plain and rng.random() < _RESIDUAL:
        first, last = rng.choice(plain)
        before = "identity = x"
    elif projected and rng.random() < _PROJECTED:
        first, last = rng.choice(projected)
        layout, shape, _ = marks[first]
        letters = dict(zip(LAYOUTS[layout].split(), shape, strict=True)) | {"E": marks[last][1][_CHANNEL[layout]]}
        made = re.sub(r"\{([A-Z])\}", lambda match: _inside(letters[match[1]]), _PROJECTIONS[layout])
        _take_arguments(draft, made)
        draft.init.append(f"self.shortcut = {made}")
        before = "identity = self.shortcut(x)"
    else:
        return
    draft.forward.insert(marks[last][2], (-1, _SUM))
    draft.forward.insert(marks[first][2], (-1, before))
    draft.residual = True


def _take_arguments(draft: Composition, text: str) -> None:
    for name in re.findall(r"(?<![.\w'])\w+", text):
        if name in draft.sizes and name not in draft.arguments:
            draft.arguments.append(name)


def _input(how: str, letters: Mapping[str, str]) -> str:
    kind, inside = re.fullmatch(r"(\w+)\((.*)\)", how).groups()  # type: ignore[union-attr]
    bound, _, rest = inside.rpartition(";")
    shape = ", ".join(_dimension(part.strip(), letters) for part in rest.split(","))
    if kind == "ints":
        return f"torch.randint(0, {_dimension(bound, letters)}, ({shape}{',' if ',' not in shape else ''}))"
    chosen = {"mask": " > 0.2", "sparse": " > 0.9"}
    return f"torch.rand({shape}){chosen[kind]}" if kind in chosen else f"torch.{kind}({shape})"


def _dimension(text: str, letters: Mapping[str, str]) -> str:
    """Fills in letters and tidies: `(height // 2) // 2` is `height // 4`."""
    filled = re.sub(r"[A-Z]", lambda match: _inside(letters[match[0]]), text)
    spaced = re.sub(r" *(//|\*|\+|(?<=\d)-) *", r" \1 ", filled)
    halved = re.fullmatch(r"\((\w+) // (\d+)\) // (\d+)", spaced)
    if halved:
        return f"{halved[1]} // {int(halved[2]) * int(halved[3])}"
    undone = re.fullmatch(r"\((\w+) // (\d+)\) \* \2", spaced) or re.fullmatch(r"\((\w+) \* (\d+)\) // \2", spaced)
    return undone[1] if undone else spaced


def _inside(expression: str) -> str:
    return expression if re.fullmatch(r"\w+", expression) else f"({expression})"


def _value(expression: str, sizes: Mapping[str, int]) -> int:
    return int(eval(expression, {"__builtins__": {}}, dict(sizes)))  # our own text


def _new_size(draft: Composition, rng: random.Random, kind: str) -> str:
    small, large = SIZES[kind]
    name = _fresh(draft, kind if kind != "rows" else "batch_size")
    draft.sizes[name] = (rng.choice(small), rng.choice(large))
    return name


def _fresh(draft: Composition, name: str) -> str:
    """Returns the name, with a number if it is taken."""
    number, fresh = 1, name
    while fresh in draft.names:
        number += 1
        fresh = f"{name}{number}"
    draft.names.add(fresh)
    return fresh


def _pick(rng: random.Random, weights: Mapping[Key, float]) -> Key:
    return rng.choices(list(weights), list(weights.values()))[0]
