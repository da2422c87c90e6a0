"""An environment in which an agent writes a program with tools, and gets the reward of the reward service for it.

The verifier, its inputs and its baselines stay in the service: an agent's text is compiled here, and never run here.

Where to look next: `training/openenv/episode.py` (the tools, in plain Python), `training/openenv/server.py` (OpenEnv).
"""
