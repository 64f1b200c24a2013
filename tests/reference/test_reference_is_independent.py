"""The references are worth something only while they borrow nothing from what they judge."""

import ast
import importlib
from pathlib import Path

import numpy as np
import pytest

from posbuild.conformance.paper import called
from posbuild.registry import schemes
from tests.reference import alibi, t5

FOLDER = Path(__file__).parent
REFERENCES = sorted(path for path in FOLDER.glob("*.py") if not path.stem.startswith(("test_", "__")))
ALLOWED = {"cmath", "math", "numpy", "tests.reference"}


def imported(path):
    """The top-level packages that a file imports; of the tests only other references are named as such."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (item.name.split(".")[0] for item in node.names)
        elif isinstance(node, ast.ImportFrom):
            own = (node.module or "").startswith("tests.reference")
            yield "a relative import" if node.level else "tests.reference" if own else (node.module or "").split(".")[0]
        elif isinstance(node, ast.Name) and node.id in ("__import__", "exec", "eval"):
            yield node.id


@pytest.mark.parametrize("path", REFERENCES, ids=lambda path: path.stem)
def test_a_reference_uses_plain_python_and_numpy_only(path):
    assert set(imported(path)) <= ALLOWED


@pytest.mark.parametrize("path", REFERENCES, ids=lambda path: path.stem)
def test_a_reference_cites_a_paper(path):
    assert "arXiv:" in ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


def test_every_scheme_has_a_reference_of_its_name_with_a_golden_row():
    assert {path.stem for path in REFERENCES} == set(schemes())
    for name in schemes():
        reference = importlib.import_module(f"tests.reference.{name}")
        assert hasattr(reference, "scores") or hasattr(reference, "codes")
        assert "scores" in reference.GOLDEN or "codes" in reference.GOLDEN


@pytest.mark.parametrize("name", sorted(schemes()))
def test_golden_rows_worked_out_by_hand_agree_with_the_formula(name):
    reference = importlib.import_module(f"tests.reference.{name}")
    for row in (value for key, value in vars(reference).items() if key.startswith("GOLDEN")):
        model = {
            "options": {option: values[0] for option, values in reference.VALUES.items()} | row["options"],
            "parameters": {key: np.array(value) for key, value in row.get("parameters", {}).items()},
            "causal": row.get("causal", True),
            "heads": np.shape(row.get("q", [[]]))[1],
            "layer": row.get("layer", 0),
            "head_width": np.shape(row.get("q", [[]]))[-1],
        }
        given = reference.arguments(model)
        if "scores" in row:
            inputs = [np.array(row[key]) for key in ("q", "k", "q_positions", "k_positions")]
            seen = np.tri(*np.shape(row["scores"])[2:], inputs[1].shape[2] - inputs[0].shape[2], dtype=bool)
            scores = called(reference.scores, *inputs, **given, x=np.array(row.get("x")))
            np.testing.assert_allclose(scores, row["scores"], rtol=0, atol=1e-12)
            if "weights" in row:
                weights = called(reference.weights, scores, seen, **given)
                np.testing.assert_allclose(weights, row["weights"], rtol=0, atol=1e-12)
        else:
            given.pop("projection", None)
            actual = reference.codes(row["positions"], row["dim"], **given)
            np.testing.assert_allclose(actual, row["codes"], rtol=0, atol=1e-12)


def test_alibi_slopes_are_the_known_powers_of_two():
    for heads, exponents in alibi.EXPONENTS.items():
        np.testing.assert_allclose(np.log2(alibi.slopes(heads)), exponents, rtol=0, atol=1e-12)


def test_t5_buckets_are_the_known_ones():
    """First distances of buckets 16 to 31 for 32 buckets, max_distance 128, causal, and two border distances."""
    of = [t5.bucket(distance, 32, 128, True) for distance in range(301)]
    assert of[:16] == list(range(16))
    assert [of.index(row) for row in range(16, 32)] == [16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113]
    assert t5.bucket(10_000_000, 32, 128, True) == of[300] == 31
    assert t5.bucket(-5, 32, 128, True) == 0
