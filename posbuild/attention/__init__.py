"""Attention: who sees whom, the exact slow path, and the fast one that the model takes."""

from posbuild.attention.exact import exact_attention
from posbuild.attention.fused import fused_attention
from posbuild.attention.pattern import Pattern

__all__ = ["Pattern", "exact_attention", "fused_attention"]
