"""Makes OpenEnv's server over a reward service, for uvicorn. Can be imported without OpenEnv.

    STITCHCUDA_REWARD_URL=http://127.0.0.1:8711 STITCHCUDA_REWARD_TASKS=examples \\
      uvicorn --factory stitchcuda.training.openenv.server:app --port 8712

Also read are STITCHCUDA_REWARD_TOKEN and STITCHCUDA_REWARD_SCHEMA, by default accepted/1.
Where to look next: `training/openenv/environment.py` (what is served), `training/reward_service/client.py` (who is asked).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from stitchcuda import remedies
from stitchcuda.errors import BadInput, StitchError, Unavailable
from stitchcuda.state import Target
from stitchcuda.training.openenv.episode import ProgramEpisode
from stitchcuda.training.reward_service.client import RewardClient, RewardRefused
from stitchcuda.training.reward_service.tasks import read_tasks

if TYPE_CHECKING:
    from fastapi import FastAPI

_PATIENCE_S = 5.0                          # at the start, for a service that is being started too


def app() -> FastAPI:
    """For `uvicorn --factory`. Ends the process with one sentence where it cannot serve."""
    try:
        return app_over(
            _given("STITCHCUDA_REWARD_URL", "the address of the reward service"),
            Path(_given("STITCHCUDA_REWARD_TASKS", "what the service has as --tasks")),
            os.environ.get("STITCHCUDA_REWARD_TOKEN"), os.environ.get("STITCHCUDA_REWARD_SCHEMA") or "accepted/1",
        )  # fmt: skip
    except StitchError as error:
        print(f"stitchcuda: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from error


def app_over(url: str, tasks: Path, token: str | None, schema: str) -> FastAPI:
    """OpenEnv's server. `tasks`: those of the service, whose references agents are shown. Raises `BadInput`, `Unavailable`."""
    try:
        from stitchcuda.training.openenv.environment import fastapi_app
    except ImportError as error:
        raise Unavailable(f"the environment needs OpenEnv: {remedies.extra('openenv')}") from error
    known, client = read_tasks(tasks), RewardClient(url, token)
    try:
        can = RewardClient(url, token, patience_s=_PATIENCE_S).health()
    except (RewardRefused, TimeoutError) as error:
        raise Unavailable(f"{url} is no reward service that answers ({error}): start it, or give its address") from error
    if schema not in can["rewards"]:
        raise BadInput(f"the service has no reward {schema[:80]!a}: it has {', '.join(can['rewards'])}")
    target: Target = "sim" if can["environment"].startswith("simulator") else "cuda"
    return fastapi_app(lambda: ProgramEpisode(known, client, schema=schema, target=target))


def _given(variable: str, what: str) -> str:
    value = os.environ.get(variable)
    if not value:
        raise BadInput(f"{variable} is not set: it is {what}")
    return value
