"""What a process that reads or runs generated text may touch: limits, namespaces, file access, system calls.

It knows nothing of programs, references or verdicts. Where to look next: `policy.py`
(what may be allowed), `entering.py` (how it is enforced), `supervisor.py` (who watches).
"""
