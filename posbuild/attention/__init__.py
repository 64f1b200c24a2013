"""Attention: who sees whom, the exact slow path, the fast one, and the one place that chooses."""

from posbuild.attention.exact import exact_attention, scores
from posbuild.attention.fused import fused_attention
from posbuild.attention.pattern import Pattern

__all__ = ["Pattern", "exact_attention", "fused_attention", "scores"]
