"""What is checked of every scheme of the registry, in ten parts: `posbuild check`, and `pytest` of a checkout.

Each part is a module of pytest, test_*.py, with its number and what holds in `PART`. Its tests take from conftest.py one
or all cases of a scheme (cases.py), and say nothing of any single one. The slow formulas stay outside of the package:
`paper.py` finds them.
"""
