"""From settings to a model with its parameters drawn."""

from __future__ import annotations

from posbuild import registry
from posbuild.data.vocabulary import vocabulary_of
from posbuild.model.init import init_parameters
from posbuild.model.transformer import Transformer
from posbuild.positions import Numbering
from posbuild.settings import Settings, check


def model_of(settings: Settings) -> Transformer:
    """The model that the settings describe, with its parameters drawn; the last id of one for masked tokens is the mask.

    Raises ConfigError if they do not fit together.
    """
    check(settings)
    encoding = registry.encoding(settings.scheme, settings.pe, settings.dims)
    numbering = Numbering(settings.positions, settings.train.length, settings.seed)
    size = vocabulary_of(settings.data).size + settings.masked
    model = Transformer(settings.model, encoding, settings.dims, size, numbering)
    init_parameters(model, settings.seed)
    return model
