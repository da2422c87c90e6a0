"""Asks the reward service from plain Python. Uses the standard library alone, so that a trainer's environment can have a copy.

    client = RewardClient("http://127.0.0.1:8711", token="…")
    answer = client.judge("gelu", program_text)      # {"state": "ok", "reward": 1.0, "reasons": […], …}

Requests are repeated when there is no connection and after 429 and 503: a key goes with each job, so it is judged once however
often it is sent. Where to look next: `training/reward_service/trainers.py` (TRL, verl), `training/reward_service/app.py`.
"""

from __future__ import annotations

import http.client
import json
import random
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Mapping
from typing import Any

_WAIT_S = 30.0                             # of one GET, at the server
_GRACE_S = 30.0                            # beyond it, before a connection counts as dead
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.5, 15.0


class RewardRefused(Exception):
    """The server does not take the request, and will not when it is sent again. `code`: HTTP's."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


class RewardClient:
    """Any thread may call its methods."""

    def __init__(self, url: str, token: str | None = None, *, patience_s: float = 7200.0) -> None:
        """`patience_s`: the longest that one call waits for an answer, pauses while the server is away included. It has to be
        longer than the server needs for its whole queue."""
        self.url, self.patience_s = url.rstrip("/"), patience_s
        self._headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})

    def judge(
        self, task: str, program: str | Mapping[str, str], *, schema: str = "accepted/1", key: str | None = None
    ) -> dict[str, Any]:
        """Returns the finished job (`JobAnswer` of the OpenAPI schema). "reward" is None where no score can be given.

        `task`: a name among the server's tasks, or the text of a reference. `program`: one file's text, or texts by path.
        `key`: the idempotency key, by default a new one. Raises `RewardRefused`, `TimeoutError`.
        """
        until = time.monotonic() + self.patience_s
        asked = {"task": task, "program": program if isinstance(program, str) else dict(program), "schema": schema}
        body = json.dumps(asked | {"idempotency_key": key or uuid.uuid4().hex}).encode()
        answer = self._ask("/jobs", body, until)
        while answer["state"] in ("queued", "running"):
            if time.monotonic() > until:
                raise TimeoutError(f"job {answer['id']} is still {answer['state']} after {self.patience_s:.0f} s")
            answer = self._ask(f"/jobs/{urllib.parse.quote(answer['id'])}?wait={_WAIT_S:.0f}", None, until)
        return answer

    def health(self) -> dict[str, Any]:
        """Returns what the service can do: "environment" and "rewards". Raises `RewardRefused`, `TimeoutError`."""
        return self._ask("/healthz", None, time.monotonic() + self.patience_s)

    def _ask(self, path: str, body: bytes | None, until: float) -> dict[str, Any]:
        pause = _FIRST_PAUSE_S
        while True:
            try:
                request = urllib.request.Request(self.url + path, body, self._headers)
                with urllib.request.urlopen(request, timeout=_WAIT_S + _GRACE_S) as response:
                    found: dict[str, Any] = json.load(response)
                return found
            except urllib.error.HTTPError as error:
                said = _sentence(error)
                if error.code not in (429, 502, 503, 504):
                    raise RewardRefused(error.code, said) from error
                asked = error.headers.get("Retry-After") or ""
                least = float(asked) if asked.isdecimal() else 0.0
            except (OSError, http.client.HTTPException, ValueError) as error:  # no connection, or one that broke off
                said, least = f"{type(error).__name__}: {error}", 0.0
            if time.monotonic() + pause > until:
                raise TimeoutError(f"no answer from {self.url} in {self.patience_s:.0f} s; at last: {said}")
            time.sleep(max(least, pause) * random.uniform(1.0, 1.5))  # not all clients at once
            pause = min(2 * pause, _LONGEST_PAUSE_S)


def _sentence(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.load(error)["error"])
    except (OSError, ValueError, KeyError, TypeError):
        return f"{error.code} {error.reason}"
