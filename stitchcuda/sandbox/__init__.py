"""What a process that reads or runs generated text may touch: limits, namespaces, file access, system calls.

It knows nothing of programs, references or verdicts. Where to look next: `sandbox/policy.py`
(what may be allowed), `sandbox/enforce.py` (how it is enforced), `sandbox/supervisor.py` (watches and kills).
"""
