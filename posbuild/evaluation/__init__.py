"""Measurements: plain functions that take a model, documents and sizes and return rows. They neither log nor plot."""
