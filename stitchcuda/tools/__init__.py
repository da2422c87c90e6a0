"""The hands: builds, checks, timing, profiles, devices. A tool never knows the graph it is used in."""
