"""Values in checkpoints: what an earlier version wrote is read."""

from __future__ import annotations

import hashlib

import ormsgpack

from stitchcuda.state import Task, Work
from stitchcuda.store.serializer import serializer


def test_the_number_of_candidates_is_read_under_its_old_name() -> None:
    work = Work(id="0" * 16, task=Task(id="r00", kind="region", title="r00"), ordinal=1, candidate=2, candidates=3)
    kind, data = serializer().dumps_typed(work)
    code, payload = ormsgpack.unpackb(data[32:], ext_hook=lambda code, payload: (code, payload))
    module, name, fields, how = ormsgpack.unpackb(payload, ext_hook=ormsgpack.Ext)
    fields["of"] = fields.pop("candidates")
    older = ormsgpack.packb(ormsgpack.Ext(code, ormsgpack.packb((module, name, fields, how))))
    read = serializer().loads_typed((kind, hashlib.sha256(older).digest() + older))
    assert isinstance(read, Work)
    assert read == work
