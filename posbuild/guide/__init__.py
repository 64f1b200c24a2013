"""Measurements and the literature turned into advice: which encoding for which situation, with its evidence."""
