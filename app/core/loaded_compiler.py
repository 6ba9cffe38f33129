"""Importing this module loads numba's compiler; see ``load_compiler``."""

from app.core.kernels import load_compiler

load_compiler()
