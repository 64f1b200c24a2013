"""Every scheme, with every value of every option, equals the slow float64 formula written from its paper."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from posbuild import registry
from posbuild.declaration import Dims
from posbuild.errors import ConfigError
from posbuild.schemes.rope import RopeOptions
from tests.encodings.building import (
    OTHER_VALUE,
    TRAIN_LENGTH,
    VALUES,
    as_field,
    build,
    case_id,
    cases,
    choices_of,
    dims,
    drawn,
    option_names,
    paper_inputs,
    paper_scores,
    random,
    reference,
    scores,
    started,
)

SCHEMES = sorted(registry.schemes())
# Query and key positions of one row: small enough for a learned table of the train length.
GEOMETRIES = {
    "one token at 0": ([0], [0]),
    "one token at 15": ([15], [15]),
    "in order, an odd length": (list(range(7)), list(range(7))),
    "queries are the last keys": ([4, 5, 6], list(range(7))),
    "unsorted and repeated": ([9, 2, 2, 15, 0], [3, 3, 14, 0, 9, 8]),
    "queries are no keys": ([13, 1], [4, 6, 15]),
    "left padding": ([0, 0, 0, 1, 2], [0, 0, 0, 1, 2]),
}
# Beyond 65 504 half precision overflows, beyond 256 bf16 no longer holds each whole number.
FAR = [0, 1, 2, 255, 256, 257, 1000, 4095, 4096, 32769, 65505, 131071]


def choices(name, option, default):
    """All values of an option that has few."""
    return list(choices_of(name, option) or ([False, True] if isinstance(default, bool) else []))


def test_the_table_of_option_values_covers_every_option():
    """A new option without a value here is an option that no test below has seen."""
    assert set(VALUES) == set(SCHEMES)
    for name in SCHEMES:
        assert set(VALUES[name]) == set(OTHER_VALUE[name]) == option_names(name), name
        defaults = registry.scheme(name).options()
        for key, values in VALUES[name].items():
            assert values[0] == getattr(defaults, key), f"{name}.{key}: the default comes first"
            missing = [value for value in choices(name, key, values[0]) if value not in values]
            assert len(values) > 1 and not missing, f"{name}.{key}: a value is missing"


def assert_equals_paper(encoding, name, q, k, x, q_positions, k_positions, layer=0, rtol=1e-12, atol=1e-12):
    """Scores and token vectors of the encoding against those of the slow formula; x stands at the query positions."""
    with torch.no_grad():
        actual = scores(encoding, q, k, q_positions, k_positions, layer), encoding.at_input(x, q_positions)
    assert actual[0].dtype == q.dtype and actual[1].dtype == x.dtype
    expected = (
        paper_scores(encoding, name, q.double(), k.double(), q_positions, k_positions, layer),
        paper_inputs(encoding, name, x.double(), q_positions),
    )
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=rtol, atol=atol)


@pytest.mark.parametrize(("name", "causal", "options"), cases(), ids=case_id)
def test_every_combination_of_options_equals_the_paper(name, causal, options):
    encoding = build(name, dims(width=8, causal=causal), **options)
    q_positions = torch.tensor([[9, 2, 2, 15, 0], [1, 2, 3, 4, 5]])
    k_positions = torch.tensor([[3, 3, 14, 0], [5, 4, 3, 15]])
    q, k, x = random(2, 3, 5, 8, seed=1), random(2, 3, 4, 8, seed=2), random(2, 5, 24, seed=3)
    for layer in (0, 1):
        assert_equals_paper(encoding, name, q, k, x, q_positions, k_positions, layer)


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("heads", [1, 3, 6, 12])
@pytest.mark.parametrize("name", SCHEMES)
def test_every_geometry_equals_the_paper(name, heads, geometry):
    q_positions, k_positions = (torch.tensor([row]) for row in GEOMETRIES[geometry])
    queries, keys = q_positions.shape[1], k_positions.shape[1]
    q, k, x = random(1, heads, queries, 2, seed=1), random(1, heads, keys, 2, seed=2), random(1, queries, 2 * heads)
    assert_equals_paper(build(name, dims(heads=heads, width=2)), name, q, k, x, q_positions, k_positions)


@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("width", [1, 2, 3, 5])
def test_the_smallest_and_odd_widths_equal_the_paper_or_are_refused(name, width):
    size = dims(heads=1, width=width)
    if width % 2 and isinstance(registry.scheme(name).options(), RopeOptions):
        with pytest.raises(ConfigError, match=f"head width {width} .*even"):
            build(name, size)
        return
    q, x, positions = random(1, 1, 3, width, seed=1), random(1, 3, width, seed=3), torch.tensor([[0, 1, 7]])
    assert_equals_paper(build(name, size), name, q, q, x, positions, positions)


def test_sinusoidal_codes_of_an_odd_width():
    rows = build("sinusoidal", dims(heads=1, width=5), scale=1.0).codes(torch.arange(3))
    expected = [
        [0, 1, 0, 1, 0],
        [0.84147, 0.54030, 0.025116, 0.999685, 0.00063096],
        [0.90930, -0.41615, 0.050217, 0.998738, 0.0012619],
    ]
    np.testing.assert_allclose(rows, expected, rtol=0, atol=6e-6)


@pytest.mark.parametrize("name", SCHEMES)
def test_golden_rows_worked_out_by_hand(name):
    for row in (value for key, value in vars(reference(name)).items() if key.startswith("GOLDEN")):
        if "scores" in row:
            q, k = (torch.tensor(row[key], dtype=torch.float64) for key in ("q", "k"))
            causal, layer = row.get("causal", True), row.get("layer", 0)
            size = dims(heads=q.shape[1], width=q.shape[-1], causal=causal, layers=max(2, layer + 1))
        else:
            size = Dims(d_model=row["dim"], n_layers=1, n_heads=1, n_kv_heads=1, train_length=2, causal=True)
        options = {key: as_field(choices_of(name, key), value) for key, value in row["options"].items()}
        encoding = build(name, size, **options)
        with torch.no_grad():
            for key, value in row.get("parameters", {}).items():
                encoding.get_parameter(key).copy_(torch.tensor(value, dtype=torch.float64))
            if "scores" in row:
                positions = (torch.tensor(row[key]) for key in ("q_positions", "k_positions"))
                actual = scores(encoding, q, k, *positions, layer)
            else:
                actual = encoding.codes(torch.tensor(row["positions"]))
        np.testing.assert_allclose(actual, row["scores" if "scores" in row else "codes"], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", [name for name in SCHEMES if hasattr(reference(name), "RELEASED")])
def test_values_of_released_code(name):
    """The bias that code outside this project computed, as its reference keeps it."""
    for row in reference(name).RELEASED:
        heads, queries = len(row["bias"]), len(row["q_positions"])
        q, k = (torch.zeros(1, heads, len(row[key]), 4, dtype=torch.float64) for key in ("q_positions", "k_positions"))
        encoding = build(name, dims(heads=heads, layers=1), **row["options"])
        with torch.no_grad():
            for key, value in row.get("parameters", {}).items():
                encoding.get_parameter(key).copy_(torch.tensor(value, dtype=torch.float64))
            bias = scores(encoding, q, k, *(torch.tensor([row[key]]) for key in ("q_positions", "k_positions")))[0]
        assert bias.shape[1] == queries
        np.testing.assert_allclose(bias, row["bias"], rtol=row["rtol"], atol=row["rtol"], err_msg=row["source"])


@pytest.mark.parametrize("name", sorted(set(SCHEMES) - {"learned"}))
def test_float32_stays_close_to_position_131071(name):
    """Bound: 2e-6 + 3e-7 of the value. Angles formed in float32 would be off by 1.5e-3 there."""
    shapes = enumerate([(1, 4, 12, 8), (1, 4, 12, 8), (1, 12, 32)])
    q, k, x = (random(*shape, seed=seed, dtype=torch.float32) for seed, shape in shapes)
    encoding, positions = build(name, dims(heads=4, width=8), dtype=torch.float32), torch.tensor([FAR])
    assert_equals_paper(encoding, name, q, k, x, positions, positions, rtol=3e-7, atol=2e-6)


def test_a_learned_table_in_float32_is_exact_at_its_last_row():
    encoding = build("learned", dtype=torch.float32, max_positions=131072)
    rows = encoding.codes(torch.tensor([0, 65505, 131071]))
    assert torch.equal(rows, encoding.table[[0, 65505, 131071]])


@pytest.mark.parametrize("layout", VALUES["rope"]["layout"])
def test_rope_in_bf16_is_one_rounding_away_from_the_paper(layout):
    """bf16 keys and a bf16 model at every position to 4095: only the result is rounded, by up to 2⁻⁸ of it."""
    encoding = build("rope", dims(heads=1, width=64), dtype=torch.bfloat16, layout=layout)
    positions, key = torch.arange(4096)[None], random(64, dtype=torch.bfloat16)
    rotated = encoding.at_keys(key.expand(1, 1, 4096, 64), positions, 0, encoding.prepare(positions))
    assert rotated.dtype == torch.bfloat16
    paper = reference("rope")
    for position in [*range(0, 4096, 97), 255, 256, 257, 1000, 4095]:
        expected = paper.rotate(key.double().numpy(), position, layout=layout.name)
        np.testing.assert_allclose(rotated[0, 0, position].double(), expected, rtol=2.0**-8, atol=1e-6)


@pytest.mark.parametrize("layout", VALUES["rope"]["layout"])
def test_rotated_keys_are_distinct_at_every_position_to_4095(layout):
    """The fault to catch: positions or angles held in bf16 leave 769 distinct keys of 4096."""
    encoding = build("rope", dims(heads=1, width=64), dtype=torch.bfloat16, layout=layout)
    positions, key = torch.arange(4096)[None], random(64, dtype=torch.float32)
    rotated = encoding.at_keys(key.expand(1, 1, 4096, 64), positions, 0, encoding.prepare(positions))
    assert len(torch.unique(rotated[0, 0], dim=0)) == 4096


def test_sinusoidal_codes_are_distinct_at_every_position_to_4095():
    """The fault to catch: in half precision positions from 257 (bf16) or 2049 (float16) on repeat."""
    for dtype in (torch.bfloat16, torch.float16):
        codes = build("sinusoidal", dims(heads=1, width=64), dtype=dtype).codes(torch.arange(4096))
        assert codes.dtype in (torch.float32, torch.float64)
        assert len(torch.unique(codes, dim=0)) == 4096


@pytest.mark.parametrize("name", sorted(set(SCHEMES) - {"learned"}))
def test_a_bf16_model_is_wrong_by_no_more_than_its_parameters(name):
    """Positions to 4095 in a model cast to bf16, with inputs of float32: what is fixed must not have been cast with it."""
    shapes = enumerate([(1, 4, 33, 8), (1, 4, 33, 8), (1, 33, 32)])
    q, k, x = (random(*shape, seed=seed, dtype=torch.float32) for seed, shape in shapes)
    positions = torch.tensor([[*range(0, 4096, 131), 4095]])
    encoding = build(name, dims(heads=4, width=8), dtype=torch.bfloat16)
    assert_equals_paper(encoding, name, q, k, x, positions, positions, rtol=3e-7, atol=2e-6)


def outcome(name, options):
    """Shapes of the parameters, and what an encoding does with them drawn at random and as training finds them."""
    near, far = torch.tensor([[0, 3, 7, 15]]), torch.tensor([[0, 3, 19, 60]])
    x, q = random(1, 4, 48, seed=3), random(1, 3, 4, 16, seed=1)
    encoding, found = build(name, dims(width=16, layers=6), **options), []
    with torch.no_grad():
        for set_parameters in (drawn, started):
            set_parameters(encoding)
            found.append(encoding.at_input(x, near))
            for layer in range(6):
                found += [scores(encoding, q, q, positions, positions, layer) for positions in (near, far)]
    return [(key, value.shape) for key, value in encoding.named_parameters()], found


@pytest.mark.parametrize(("name", "option"), [(name, option) for name in SCHEMES for option in OTHER_VALUE[name]])
def test_every_option_changes_the_outcome(name, option):
    others = getattr(reference(name), "AT_WORK", {})
    shapes, found = outcome(name, others)
    other_shapes, other_found = outcome(name, others | {option: OTHER_VALUE[name][option]})
    same = all(torch.allclose(one, other, atol=1e-6) for one, other in itertools.zip_longest(found, other_found))
    assert shapes != other_shapes or not same


def slope(function, array, weight, step=1e-5):
    """Gradient of sum(weight · function()) for each number of `array`, by central differences in place."""
    out = np.zeros(array.shape)
    for index in np.ndindex(array.shape):
        kept, ends = array[index], []
        for moved in (kept + step, kept - step):
            array[index] = moved
            ends.append(float((weight * function()).sum()))
        array[index] = kept
        out[index] = (ends[0] - ends[1]) / (2 * step)
    return out


@pytest.mark.parametrize(("name", "causal", "options"), cases(), ids=case_id)
def test_gradients_are_those_of_the_paper(name, causal, options):
    """Autograd through the encoding against central differences of the slow formula: queries, keys, inputs, parameters."""
    options = options | ({"max_positions": None} if name == "learned" else {})
    size = Dims(d_model=4, n_layers=1, n_heads=1, n_kv_heads=1, train_length=4, causal=causal)
    encoding, positions = build(name, size, **options), torch.tensor([[1, 3]])
    q, k, x = (
        random(*shape, seed=seed).requires_grad_() for seed, shape in enumerate([(1, 1, 2, 4), (1, 1, 2, 4), (1, 2, 4)])
    )
    score_weight, input_weight = random(1, 1, 2, 2, seed=5), random(1, 2, 4, seed=6)
    total = (score_weight * scores(encoding, q, k, positions, positions)).sum() + (
        input_weight * encoding.at_input(x, positions)
    ).sum()
    total.backward()

    def paper():
        both = [
            paper_scores(encoding, name, q.detach(), k.detach(), positions, positions),
            paper_inputs(encoding, name, x.detach(), positions),
        ]
        return np.concatenate([part.ravel() for part in both])

    weight = np.concatenate([score_weight.numpy().ravel(), input_weight.numpy().ravel()])
    for tensor in (q, k, x, *encoding.parameters()):
        actual = np.zeros(tensor.shape) if tensor.grad is None else tensor.grad
        np.testing.assert_allclose(actual, slope(paper, tensor.detach().numpy(), weight), rtol=1e-7, atol=1e-8)
    assert all(parameter.grad is not None for parameter in encoding.parameters())


def test_positions_of_the_train_length_are_all_in_a_learned_table():
    encoding = build("learned")
    assert encoding.table.shape[0] == TRAIN_LENGTH == encoding.options.longest(encoding.dims)
    with pytest.raises(IndexError):
        encoding.codes(torch.tensor([TRAIN_LENGTH]))
