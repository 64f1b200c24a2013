"""No encoding (Haviv et al. 2022, arXiv:2203.16634)."""

from posbuild.encodings.base import Encoding


class NoEncoding(Encoding):
    """Overrides no hook."""
