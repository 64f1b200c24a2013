"""The Transformer, its cache, how its parameters start, and the scores of an encoding outside a model."""

from posbuild.model.build import model_of
from posbuild.model.cache import Cache
from posbuild.model.init import init_parameters
from posbuild.model.scores import scores_of
from posbuild.model.transformer import Transformer

__all__ = ["Cache", "Transformer", "init_parameters", "model_of", "scores_of"]
