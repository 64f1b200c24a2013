"""The Transformer, its cache, and how its parameters start."""

from posbuild.model.build import model_of
from posbuild.model.cache import Cache
from posbuild.model.init import init_parameters
from posbuild.model.transformer import Transformer

__all__ = ["Cache", "Transformer", "init_parameters", "model_of"]
