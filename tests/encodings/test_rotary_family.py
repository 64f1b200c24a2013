"""Rotary schemes that turn by other frequencies: values of released code, what stays of rope, layers, lengths, known faults."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch

from posbuild import registry
from posbuild.conformance.cases import build, dims
from posbuild.conformance.layer import random, scores
from posbuild.conformance.paper import paper_scores, reference
from posbuild.errors import ConfigError
from posbuild.schemes.rope_by_parts import Ramp

LENGTH = 4096  # an original length
FAR = [0, 1, 2, 1000, 4095, 4096, 65_535, 131_071, 131_072]
# Options with which each scheme is rope in every layer, however long the text.
AS_ROPE = {
    "rope_linear": {"factor": 1.0},
    "rope_ntk": {"factor": 1.0},
    "rope_by_parts": {"factor": 1.0},
    "yarn": {"factor": 1.0},
    "llama3": {"factor": 1.0},
    "longrope": {"factor": 1.0},
    "rope_proportional": {"share": 1.0},
    "hope_highfreq": {"original_length": 10**6},
    "rope_dynamic_ntk": {"original_length": 131_073},
    "dynamic_yarn": {"original_length": 131_073},
    "rope_logn": {"original_length": 131_073},
    "rope_local_global": {"global_base": 10_000.0},
    "rnope": {"interval": 99},
    "irope": {"interval": 99},
}
FAMILY = sorted(AS_ROPE)
BY_LENGTH = ["dynamic_yarn", "longrope", "rope_dynamic_ntk"]
BY_PARTS = ["llama3", "rope_by_parts", "yarn"]


def turns(encoding, length=2, layer=0):
    """Of each pair in a text so long: the angle from one token to the next, and by how much keys are lengthened."""
    pairs = encoding.options.rotary_width(encoding.dims) // 2
    key = torch.zeros(1, 1, 2, encoding.dims.head_dim, dtype=torch.float64)
    key[..., :pairs] = 1.0
    positions = torch.tensor([[1, length - 1]])
    turned = encoding.at_keys(key, positions, layer, encoding.prepare(positions))[0, 0, 0]
    turned = torch.complex(turned[:pairs], turned[pairs : 2 * pairs])
    return turned.angle().numpy(), turned.abs().numpy()


def turned(encoding, positions, layer=0):
    """Random queries and keys at these positions, as the encoding leaves them."""
    x = random(1, encoding.dims.n_heads, positions.shape[1], encoding.dims.head_dim)
    shared = encoding.prepare(positions)
    return encoding.at_queries(x, positions, layer, shared), encoding.at_keys(x, positions, layer, shared)


# Released code


RELEASED = [(name, row) for name in FAMILY for row in getattr(reference(name), "RELEASED_FREQUENCIES", [])]


def test_the_ramp_is_not_the_inverted_one():
    """litgpt 2685705, build_rope_cache, slows the fast pairs and leaves the slow ones (dim 16, 64 tokens, factor 4)."""
    inverted = [
        *(0.250000005, 0.158113879, 0.0750000003, 0.0316227777, 0.00999999982, 0.0031622778),
        *(0.00100000007, 0.000316227795),
    ]
    radians, _ = turns(build("rope_by_parts", dims(heads=1, width=16), factor=4.0, original_length=64))
    right = reference("rope_by_parts").RELEASED_FREQUENCIES[0]["frequencies"]
    np.testing.assert_allclose(radians, right, rtol=5e-7)
    assert abs(radians / inverted - 1).min() > 0.3


def test_the_ramp_may_end_beyond_the_last_pair():
    """Cut off at R - 1, as the authors do, not at R/2 - 1, as litgpt and OLMo: 16 channels, base 100, 4096 tokens.

    The ramp runs from ⌊16 log_100(20.37) / 2⌋ = 5 to ⌈16 log_100(651.9) / 2⌉ = 12, so pairs 6 and 7 slow by 1/7 and 2/7 of
    the factor 4; cut off at 7 it would be 1/2 and all of it.
    """
    size = dims(heads=1, width=16)
    radians, _ = turns(build("rope_by_parts", size, factor=4.0, base=100.0, original_length=4096))
    plain, _ = turns(build("rope", size, base=100.0))
    np.testing.assert_allclose(radians / plain, [*[1.0] * 6, 1 - 0.75 / 7, 1 - 0.75 * 2 / 7], rtol=1e-12)


@pytest.mark.parametrize("length", [2, 4, 6, 7, 8, 16, 64, 4096, 10**6, 10**12])
@pytest.mark.parametrize("width", [2, 4, 6, 16, 128])
@pytest.mark.parametrize("base", [2.0, 10_000.0, 500_000.0])
@pytest.mark.parametrize("ramp", list(Ramp))
def test_every_width_and_length_has_a_ramp(width, length, base, ramp):
    """Slower or as before, never faster, and never less slowed than a faster pair; the slowest by no more than the factor.

    The fault to catch: ends in the wrong order, which in released code leave every pair as it is in a text of 4 tokens.
    """
    size = dims(heads=1, width=width)
    encoding = build("rope_by_parts", size, factor=4.0, base=base, original_length=length, ramp=ramp)
    slower = np.array(encoding.tables[0]) / np.array(build("rope", size, base=base).tables[0])
    assert (slower <= 1).all() and (slower >= 0.25 - 1e-12).all() and (np.diff(slower) <= 1e-12).all()
    often = length / (2 * math.pi) > 32  # the fastest pair turns so often
    if often or (ramp is Ramp.turns and length < 7):
        np.testing.assert_allclose(slower[0], 1.0 if often else 0.25, rtol=1e-12)
    if length == 2 and width == 128:
        np.testing.assert_allclose(slower, 0.25, rtol=1e-12)


# What stays of rope


@pytest.mark.parametrize("name", FAMILY)
def test_without_a_stretch_it_is_rope_to_the_last_bit(name):
    size, positions = dims(heads=2, width=8, layers=4), torch.tensor([FAR])
    encoding, plain = build(name, size, **AS_ROPE[name]), build("rope", size)
    for layer in range(4):
        for one, other in zip(turned(encoding, positions, layer), turned(plain, positions, layer), strict=True):
            assert torch.equal(one, other)


@pytest.mark.parametrize("name", [name for name in BY_LENGTH if name != "longrope"])
@pytest.mark.parametrize("length", [1, 63, 64, 65, 200])
def test_rope_within_the_original_length_and_other_than_rope_beyond(name, length):
    size = dims(heads=2, width=16)
    encoding, plain = build(name, size, original_length=64), build("rope", size)
    positions = torch.arange(length)[None]
    for one, other in zip(turned(encoding, positions), turned(plain, positions), strict=True):
        assert torch.equal(one, other) == (length <= 64)


def test_longrope_within_the_original_length_is_rope_lengthened():
    """By sqrt(1 + ln 16 / ln 64) = 1.2909944487358056, as transformers and Phi-3 do at every length."""
    size = dims(heads=2, width=16)
    encoding, plain, positions = (
        build("longrope", size, original_length=64),
        build("rope", size),
        torch.arange(64)[None],
    )
    for one, other in zip(turned(encoding, positions), turned(plain, positions), strict=True):
        torch.testing.assert_close(one, 1.2909944487358056 * other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", [*BY_PARTS, "rope_ntk"])
@pytest.mark.parametrize("width", [16, 128])
def test_the_fastest_pair_stays_and_the_slowest_slows_by_the_factor(name, width):
    given = {} if name == "rope_ntk" else {"original_length": LENGTH}
    encoding = build(name, dims(heads=1, width=width), factor=8.0, **given)
    slower = np.array(build("rope", dims(heads=1, width=width)).tables[0]) / np.array(encoding.tables[0])
    assert slower[0] == 1 and (np.diff(slower) > -1e-12).all()
    np.testing.assert_allclose(slower[-1], 8, rtol=1e-12)


@pytest.mark.parametrize("name", BY_PARTS)
def test_pairs_are_treated_by_how_often_they_turn_over_the_original_length(name):
    """Of 64 pairs over 4096 tokens the first 21 turn more than 32 times and the last 18 less than once."""
    encoding = build(name, dims(heads=1, width=128), factor=8.0, original_length=LENGTH)
    plain = np.array(build("rope", dims(heads=1, width=128)).tables[0])
    slower, often = plain / np.array(encoding.tables[0]), LENGTH * plain / (2 * math.pi)
    np.testing.assert_allclose(slower[often > 32], 1, rtol=1e-12)
    np.testing.assert_allclose(slower[often < 1], 8, rtol=1e-12)
    between = (often > 1) & (often < (4 if name == "llama3" else 32))
    assert between.sum() > 8 and (slower[between][1:-1] > 1).all() and (slower[between][1:-1] < 8).all()


@pytest.mark.parametrize(("factor", "magnitude"), [(2, 1.0693), (4, 1.1386), (8, 1.2079), (16, 1.2773), (32, 1.3466)])
def test_yarn_lengthens_queries_and_keys_once_each(factor, magnitude):
    """The faults to catch: the factor left out, or applied to scores once more. At distance 0 scores grow by its square."""
    size, q, here = dims(heads=1, width=8), random(1, 1, 1, 8), torch.tensor([[9]])
    yarn, plain = (build(name, size, factor=float(factor)) for name in ("yarn", "rope_by_parts"))
    np.testing.assert_allclose(turns(yarn)[1], magnitude, atol=5e-5)
    np.testing.assert_allclose(turns(plain)[1], 1.0, rtol=1e-12)
    ratio = scores(yarn, q, q, here, here) / scores(plain, q, q, here, here)
    np.testing.assert_allclose(ratio, (0.1 * math.log(factor) + 1) ** 2, rtol=1e-12)


@pytest.mark.parametrize("share", [0.01, 0.25, 0.5, 0.75, 0.99, 1.0])
@pytest.mark.parametrize("width", [2, 4, 6, 64])
def test_proportional_rotary_keeps_the_frequencies_of_the_pairs_that_turn(width, share):
    """The fault to catch: exponents over the channels that turn, which is partial rotary under the same name."""
    size = dims(heads=1, width=width)
    radians = np.array(build("rope_proportional", size, share=share).tables[0])
    plain = np.array(build("rope", size).tables[0])
    turning = max(1, int(share * width // 2))
    assert (radians[:turning] == plain[:turning]).all() and (radians[turning:] == 0).all()


def test_high_frequency_hope_leaves_out_what_does_not_turn_once_in_training():
    """64 channels, 512 tokens: θ = 10^(-c/8) is at least 2π/512 for the first 16 pairs (10^(-15/8) = 0.0133, 10^(-2) = 0.01)."""
    encoding = build("hope_highfreq", dims(heads=1, width=64), original_length=512)
    assert np.flatnonzero(encoding.tables[0]).tolist() == list(range(16))
    key = random(1, 1, 1, 64)
    position = torch.tensor([[100_000]])
    rotated = encoding.at_keys(key, position, 0, encoding.prepare(position))
    assert torch.equal(rotated[..., 16:32], key[..., 16:32]) and torch.equal(rotated[..., 48:], key[..., 48:])


@pytest.mark.parametrize("name", FAMILY)
def test_angles_at_position_131072_are_exact(name):
    """In float64 to 1e-9; angles formed in float32 would be off by 4e-3 there."""
    positions = torch.tensor([FAR])
    encoding, q = build(name, dims(heads=2, width=16)), random(1, 2, len(FAR), 16)
    for layer in (0, 1):
        actual = scores(encoding, q, q, positions, positions, layer)
        np.testing.assert_allclose(actual, paper_scores(encoding, name, q, q, positions, positions, layer), atol=1e-9)


# Layers


def layers_that_turn(encoding):
    return [bool(encoding.tables[kind]) for kind in encoding.kinds]


@pytest.mark.parametrize("name", ["rnope", "irope"])
def test_the_layers_without_rope(name):
    """The fault to catch: counted from 0, or from the wrong end. Layers 3, 7, ... of interval 4, as in Llama 4 and SmolLM3."""
    assert layers_that_turn(build(name, dims(layers=9))) == [True, True, True, False] * 2 + [True]
    assert layers_that_turn(build(name, dims(layers=6), interval=3)) == [True, True, False] * 2
    assert layers_that_turn(build(name, dims(layers=2))) == [True, False]  # an interval of 2, or all would turn
    assert layers_that_turn(build(name, dims(layers=1))) == [True]
    encoding, x = build(name, dims(layers=4)), random(1, 3, 5, 4)
    positions = torch.arange(5)[None]
    assert encoding.at_keys(x, positions, 3, encoding.prepare(positions)) is x


def test_the_global_layers():
    encoding = build("rope_local_global", dims(layers=13, width=16))
    bases = [round(encoding.tables[kind][-1] ** (-8 / 7)) for kind in encoding.kinds]
    assert bases == ([10_000] * 5 + [1_000_000]) * 2 + [10_000]
    assert len(encoding.tables) == 2
    assert build("rope_local_global", dims(layers=4)).kinds == [0, 0, 0, 1]


def test_the_temperature_of_llama_4():
    """log1p(floor((p + 1) / 8192)) * 0.1 + 1 on queries of the layers without rope; keys stay."""
    positions = torch.tensor([[0, 8190, 8191, 16_382, 16_383, 131_071]])
    encoding = build("irope", dims(layers=4), original_length=8192)
    x = random(1, 3, 6, 4)
    q, k = (
        encoding.at_queries(x, positions, 3, encoding.prepare(positions)),
        encoding.at_keys(x, positions, 3, [None] * 2),
    )
    expected = [1, 1, 1 + 0.1 * math.log(2), 1 + 0.1 * math.log(2), 1 + 0.1 * math.log(3), 1 + 0.1 * math.log(17)]
    np.testing.assert_allclose((q / x)[0, 0, :, 0], expected, rtol=1e-12)
    assert k is x


@pytest.mark.parametrize("name", ["irope", "rope_logn"])
def test_queries_that_grow_are_rounded_once_in_half_precision(name):
    positions, layer = torch.arange(100_000, 100_064)[None], 3
    exact, half = (
        build(name, dims(heads=1, width=64, layers=4), dtype=dtype) for dtype in (torch.float64, torch.bfloat16)
    )
    q = random(1, 1, 64, 64, dtype=torch.bfloat16)
    expected = exact.at_queries(q.double(), positions, layer, exact.prepare(positions))
    actual = half.at_queries(q, positions, layer, half.prepare(positions))
    assert actual.dtype == torch.bfloat16
    torch.testing.assert_close(actual.double(), expected, rtol=2.0**-8, atol=1e-6)


def test_queries_grow_with_the_logarithm_of_their_own_position():
    """1 to the original length of 16, 2 at 16² tokens; the same query alone, and among others."""
    positions = torch.tensor([[0, 14, 15, 16, 255, 65_535]])
    x = random(1, 3, 6, 4)
    logn, plain = (
        build(name, dims()).at_queries(x, positions, 0, build("rope").prepare(positions))
        for name in ("rope_logn", "rope")
    )
    expected = [1, 1, 1, math.log(17) / math.log(16), 2, 4]
    np.testing.assert_allclose((logn / plain)[0, 0, :, 0], expected, rtol=1e-12)


@pytest.mark.parametrize("name", FAMILY)
def test_positions_drawn_in_training_may_be_fractions_and_negative(name):
    positions = torch.tensor([[-3.5, -1.0, 0.25, 7.5, 40.125]])
    for layer in (0, 1):
        for one in turned(build(name), positions, layer):
            assert one.isfinite().all()


# Texts that grow


def test_longrope_changes_lists_at_the_first_token_beyond_the_original_length():
    size = dims(heads=1, width=8)
    encoding = build("longrope", size, original_length=64, short=[1.0, 1.5, 2.0, 2.5], long=[1.0, 2.0, 4.0, 8.0])
    plain = np.array(build("rope", size).tables[0])
    for length, divisors in ((64, [1.0, 1.5, 2.0, 2.5]), (65, [1.0, 2.0, 4.0, 8.0])):
        np.testing.assert_allclose(plain / turns(encoding, length)[0], divisors, rtol=1e-12)


def test_one_number_in_a_list_of_longrope_is_for_every_pair():
    options, size = registry.scheme("longrope").options, dims(width=8)
    written_out = options(factor=3.0, long=[3.0] * 4, short=[1.0] * 4, original_length=16)
    for given in ({}, {"long": [3.0]}, {"short": [1.0], "long": [3.0] * 4}, {"original_length": 16}):
        assert options(factor=3.0, **given).resolved(size) == written_out


# What is refused


@pytest.mark.parametrize("name", FAMILY)
def test_a_train_length_of_one_token_works(name):
    """Its logarithm divides in some: an original length of 2 then."""
    for one in turned(build(name, dataclasses.replace(dims(), train_length=1)), torch.tensor([[0, 1, 2, 9]])):
        assert one.isfinite().all()


@pytest.mark.parametrize("name", FAMILY)
def test_odd_widths_are_refused_and_every_even_one_works(name):
    for width in (1, 3, 5):
        with pytest.raises(ConfigError, match=f"head width {width} "):
            build(name, dims(width=width))
    for width in (2, 4, 6, 10):
        for one in turned(build(name, dims(width=width)), torch.tensor([[0, 5, 40]])):
            assert one.isfinite().all()
