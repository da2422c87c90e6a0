"""Stages of training on one node with TRL: fine-tuning on what ended well, and GRPO with the reward service.

TRL, transformers and PEFT are imported when a stage runs, and not before. It needs the extra `training`.
Where to look next: `training/stages/config.py` (what a stage is asked), `training/stages/sft.py`, `training/stages/grpo.py`,
`cli/training_stages.py` (the commands).
"""
