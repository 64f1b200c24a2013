"""Slow, obvious float64 formulas of the schemes, one file a scheme, written from the papers. They import nothing of posbuild."""
