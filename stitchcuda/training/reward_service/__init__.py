"""Judges programs for trainers over HTTP: jobs in a queue that outlives the server, verdicts of the verifier, rewards.

It decides nothing about a program: the verdict is `verify/`'s, and the number is a pure function of it.

Where to look next: `training/reward_service/records.py` (what is asked and answered), `training/reward_service/jobs.py` (how a
job runs), `training/reward_service/app.py` (the HTTP side), `training/reward_service/client.py` (who asks).
"""
