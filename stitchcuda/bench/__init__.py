"""Runs whole benchmarks: optimises every problem of a set, or judges programs that exist, and makes tables of the results.

It stands above sessions and the verifier and uses them as any caller does. It decides nothing about a program.

Where to look next: `bench/problems.py` (what a set is), `bench/run.py` (optimises), `bench/judging.py` (judges programs that
exist), `bench/table.py` (the figures), `cli/bench.py` (the commands).
"""
