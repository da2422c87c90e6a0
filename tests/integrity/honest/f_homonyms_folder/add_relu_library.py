"""Builds the kernels of the program beside which it lies."""
import os

from tvm_ffi import cpp

module = None


def load(name, sources):
    here = os.path.dirname(os.path.abspath(__file__))
    return cpp.load(name, cuda_files=[os.path.join(here, source) for source in sources])
