"""CUDA C++ on the CPU."""
