"""What is seen of a call beside its outputs, and the sentences that the judge makes of it."""

from __future__ import annotations

import gc
import logging
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from stitchcuda.verify.inputs.reference_requests import CallHabits, InputSet, TensorFacts
from stitchcuda.verify.integrity.call_effects import (
    CallEffects,
    argument_names,
    generators_digest,
    output_marks,
    overlapping,
)
from stitchcuda.verify.messages import wire
from stitchcuda.verify.messages.program_requests import Called
from stitchcuda.verify.messages.tensor_block import TensorBlock
from stitchcuda.verify.program.call_form import find_faults


def block() -> TensorBlock:
    return TensorBlock(-1, 0, "cpu")


def given(generators: str = "") -> InputSet:
    return InputSet(block(), None, ("output",), block(), block(), (), (), (TensorFacts(shape=(), bytes=4, floating=True),),
                    generators=generators)  # fmt: skip


def called(result: Any, **fields: Any) -> Called:
    return Called(structure=wire.encode(result, []), outputs=None, tampered=[], **fields)


def faults(theirs: Any, ours: Any, *, names: tuple[str, ...] = (), first: bool = False, **fields: Any) -> list[str]:
    habits = CallHabits(structure=wire.encode(theirs, []))
    return find_faults(habits, given(), names, called(ours, **fields), first=first)


def watch(arguments: Any, tensors: Sequence[torch.Tensor] = ()) -> CallEffects:
    return CallEffects(torch.nn.Identity(), arguments, tensors)


def test_nothing_is_seen_where_nothing_happens() -> None:
    x, module = torch.randn(4), torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout())
    effects = CallEffects(module, ((x, [x], {"a": x}), {}), [x])
    y = module(x)
    seen = effects.arguments_changed(), effects.written(), effects.settings(), effects.module_changed()
    assert not any(seen)
    assert output_marks(y.detach()) == []


def test_what_is_no_plain_tensor_is_marked() -> None:
    with torch.inference_mode():
        assert output_marks(torch.ones(2)) == ["an inference tensor"]
    assert output_marks(torch.nn.Parameter(torch.ones(2))) == ["a parameter"]
    assert output_marks(torch.ones(2, requires_grad=True)) == ["a tensor that requires gradients"]
    x = torch.ones(2)
    vars(x)["cpu"] = print
    assert output_marks(x) == ["a tensor with attributes of its own"]


def test_changes_of_the_module_are_seen() -> None:
    changes: dict[str, Callable[[torch.nn.Linear], Any]] = {
        "training": lambda module: module.eval(),
        "requires_grad": lambda module: module.weight.requires_grad_(False),
        "grad": lambda module: setattr(module.weight, "grad", torch.ones(2, 2)),
    }
    for name, change in changes.items():
        module = torch.nn.Linear(2, 2)
        effects = CallEffects(module, ())
        change(module)
        assert effects.module_changed() == [name]


@pytest.mark.parametrize(("setting", "change", "undo"), [
    ("torch.set_default_device", lambda: torch.set_default_device("meta"), lambda: torch.set_default_device(None)),
    ("torch.set_flush_denormal", lambda: torch.set_flush_denormal(True), lambda: torch.set_flush_denormal(False)),
    ("random.seed", random.random, lambda: None),
    ("numpy.random.seed", np.random.rand, lambda: None),
    ("gc.disable", gc.disable, gc.enable),
    ("logging.disable", lambda: logging.disable(5), lambda: logging.disable(0)),
])  # fmt: skip
def test_settings_of_the_process_are_seen(setting: str, change: Callable[[], Any], undo: Callable[[], Any]) -> None:
    torch.set_flush_denormal(False)        # some libraries set it when they are loaded
    effects = watch(())
    change()
    try:
        assert effects.settings() == [setting]
    finally:
        undo()


def test_hooks_of_all_modules_are_seen() -> None:
    effects = watch(())
    hook = torch.nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        assert effects.settings() == ["torch.nn.modules.module.register_module_forward_hook"]
    finally:
        hook.remove()


def test_changes_of_arguments_are_seen() -> None:
    x, parts, named = torch.randn(4, 2), [torch.ones(1), torch.ones(2)], {"a": torch.ones(1)}
    for change in (parts.reverse, lambda: named.update(b=x), lambda: x.t_(), parts.clear):
        effects = watch(((x, parts, named), {}))
        change()
        assert effects.arguments_changed()


def test_a_write_that_is_undone_is_seen() -> None:
    x, y = torch.randn(4), torch.randn(4)
    effects = watch(((x, y), {}), [x, y])
    y.detach().neg_().neg_()
    assert effects.written() == [1]


def test_settings_are_seen_and_the_default_dtype_is_put_back() -> None:
    threads = torch.get_num_threads()
    effects = watch(())
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(threads + 1)
    try:
        assert effects.settings() == ["torch.set_default_dtype", "torch.set_num_threads"]
        assert torch.get_default_dtype() is torch.float32
    finally:
        torch.set_num_threads(threads)


def test_generators_that_are_seeded_or_drawn_from_have_moved() -> None:
    torch.manual_seed(5)
    before = generators_digest()
    effects = watch(())
    torch.rand(1)
    assert effects.generators_moved()
    torch.manual_seed(5)
    assert not effects.generators_moved()
    assert generators_digest() == before


def test_only_tensors_with_a_common_element_overlap() -> None:
    whole = torch.zeros(4, 6)
    left, right, rows, other = whole[:, :3], whole[:, 3:], whole[1:2], torch.zeros(4)
    bits = whole[0, 2:4].view(torch.int16)
    assert overlapping([left, right, rows, other, bits]) == [(0, 2), (0, 4), (1, 2), (1, 4)]
    assert overlapping([left, right, rows], 1) == [(0, 2)]


def test_names_of_arguments() -> None:
    def forward(x: int, *rest: int, mask: int = 0, **more: int) -> None: ...

    assert argument_names(forward) == ["x", "mask"]
    assert argument_names(None) == []


@pytest.mark.parametrize(("theirs", "ours", "said"), [
    ((1, 2), [1, 2], "output is a list where the reference returns a tuple"),
    ((1, None), (1,), "output holds 0 where the reference's holds 0, 1"),
    ({"a": 1, "b": None}, {"a": 1}, "output holds a where"),
    ((1, (2,)), (1, [2]), "output.1 is a list"),
])  # fmt: skip
def test_other_containers_are_named(theirs: Any, ours: Any, said: str) -> None:
    def tensors(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: tensors(part) for key, part in value.items()}
        if isinstance(value, tuple | list):
            return type(value)(map(tensors, value))
        return None if value is None else torch.ones(value)

    assert not faults(tensors(theirs), tensors(theirs))
    [reason] = faults(tensors(theirs), tensors(ours))
    assert reason.startswith(said)


def test_a_program_may_do_what_the_reference_does() -> None:
    x = torch.ones(2)
    doing: dict[str, Any] = {
        "arguments_changed": True, "settings": ["torch.set_num_threads"], "overlapping": [(0, 1)], "in_state": [0],
    }  # fmt: skip
    names = ("output.0", "output.1")
    assert len(faults((x, x), (x, x), names=names, **doing)) == 4
    habits = CallHabits(
        structure=wire.encode((x, x), []), lent=names, overlapping=(names,), changes_arguments=True,
        settings=("torch.set_num_threads",),
    )  # fmt: skip
    assert not find_faults(habits, given(), names, called((x, x), **doing), first=False)


def test_only_a_first_call_may_draw_what_the_reference_does_not() -> None:
    x = torch.ones(2)
    assert not faults(x, x, first=True, generators_moved=True)
    assert "generator" in faults(x, x, generators_moved=True)[0]
    found = find_faults(CallHabits(), given("a"), (), called(x, generators="b", generators_moved=True), first=True)
    assert "another state than the reference" in found[0]
    assert not find_faults(CallHabits(), given("a"), (), called(x, generators="a", generators_moved=True), first=False)


def test_very_many_tensors_are_compared_in_time() -> None:
    """Side by side they meet nowhere; all alike they meet everywhere, and a part of the pairs is named."""
    whole = torch.zeros(70_000)
    parts = list(whole.unbind())
    assert overlapping([*parts, whole[-1:]]) == [(69_999, 70_000)]
    assert 0 < len(overlapping([whole] * 70_000)) < 10_000
