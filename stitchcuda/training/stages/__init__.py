"""Stages of training on one node with TRL: fine-tuning on what ended well, GRPO with the reward service, pretraining of a
critic, and PPO on answers of one turn or on episodes with tools.

TRL, transformers and PEFT are imported when a stage runs, and not before. It needs the extra `training`.
Where to look next: `training/stages/config.py` (what a stage is asked), `training/stages/sft.py`, `training/stages/grpo.py`,
`training/stages/value.py`, `training/stages/ppo.py`, `cli/training_stages.py` (the commands).
"""
