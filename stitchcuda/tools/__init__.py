"""The hands: builds, checks, timing, profiles, devices. A tool never knows the graph it is used in.

Rooms, each of which imports only from those above it (`tests/test_house.py` looks):

    machine    which GPU and toolkit are here, what the GPU reaches, whose turn it is on it
    building   from CUDA sources to libraries, and what the compiler made of them
    running    what runs in the workers: reference, programs, builds; and how processes talk
    judging    the judge: secret inputs, bounds, timing, verdicts, and its handles on the workers
    profiling  where the time goes: nsys, ncu, CUPTI, the sanitizer, baselines
    doctoring  what `stitchcuda doctor` says

Start at `verify/client.py`.
"""
