"""Importing this module loads numba's compiler; see ``load_compiler``."""

from flyball.app.core.kernels import load_compiler

load_compiler()
