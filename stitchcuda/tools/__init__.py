"""Plain functions that touch the machine: devices, builds, profiles, doctor. A tool never knows the graph it is used in.

Rooms, each of which imports only from those above it (`tests/test_house.py` checks it):

    device     which GPU and toolkit are here, what the GPU reaches, who may time on it now
    build      from CUDA sources to libraries, and what the compiler reported
    profile    where the time of a reference or a program goes
    doctor     what this machine has of what is needed
"""
