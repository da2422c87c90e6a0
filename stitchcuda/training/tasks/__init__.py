"""Training tasks: composed from operators, filtered, kept apart from benchmarks, and sorted by difficulty.

Where to look next: `training/tasks/synthesis.py` (how a file of tasks is made), `training/tasks/filters.py` (what a task has to
stand), `training/tasks/composition.py` (how operators become a program).
"""
