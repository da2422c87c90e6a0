"""A worker that does whatever it is told: stands in for a program that means harm."""

from __future__ import annotations

from pathlib import Path

from stitchcuda.verify.messages.wire import Channel


def main(channel: Channel, scratch: Path, target: str) -> None:
    while True:
        names: dict[str, object] = {"scratch": str(scratch), "out": None}
        try:
            exec(channel.receive()["code"], names)
            channel.send({"out": names["out"]})
        except Exception as error:
            channel.send({"raised": f"{type(error).__name__}: {error}"})
