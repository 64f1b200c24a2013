"""Rotary relatives with a class of their own: known faults of each, what they share with rope, and far positions."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

import posbuild
from posbuild import registry
from posbuild.attention import Pattern, exact, exact_attention, fused_attention
from posbuild.conformance.cases import build, dims, started
from posbuild.conformance.layer import generator, random, scores
from posbuild.conformance.paper import paper_scores, reference
from posbuild.declaration import Dims
from posbuild.encodings.rope import log_growth
from posbuild.encodings.xpos import block_widths, spans
from posbuild.errors import ConfigError
from tests.model import small

WINDOWED = ["leaky_rerope", "rerope", "self_extend"]
CAUSAL_ONLY = [*WINDOWED, "xpos"]


def counted(length, start=0):
    return torch.arange(start, start + length)[None]


def of_last(name, positions, size=None, q=None, k=None, dtype=torch.float64, **options):
    """Scores of the last of some tokens with all of them, (H, K), and the encoding; keys are alike if none are given."""
    encoding, places = build(name, size or dims(), dtype, **options), torch.tensor([positions])
    heads, width = encoding.dims.n_heads, encoding.dims.head_dim
    q = random(1, heads, 1, width, seed=1) if q is None else q
    k = random(1, heads, 1, width, seed=2).expand(1, heads, len(positions), width) if k is None else k
    with torch.no_grad():
        return scores(encoding, q.to(dtype), k.to(dtype), places[:, -1:], places)[0, :, 0], encoding


# All of them


@pytest.mark.parametrize("name", CAUSAL_ONLY)
def test_a_bidirectional_model_is_refused_with_the_reason(name):
    with pytest.raises(ConfigError, match=rf"pe={name} needs a causal mask.*{registry.scheme(name).causal_only}"):
        posbuild.build(f"pe={name}", "objective=masked")


@pytest.mark.parametrize("name", [*CAUSAL_ONLY, "fope", "pope"])
def test_an_odd_head_width_is_refused_by_what_turns_pairs(name):
    if name == "pope":
        assert build(name, dims(width=5)).key_width == 10
        return
    with pytest.raises(ConfigError, match=r"head width 5 .*even"):
        build(name, dims(width=5))


# xPos. Factors of the position overflow; taken from a centre, those of cached keys are of another centre.


def test_xpos_is_the_formula_of_the_paper_where_float64_holds_its_factors():
    """q zeta^(i/S), k zeta^(-j/S), turned, at positions to 131 071 with a scale base of 512: zeta^(p/S) is 5e-140."""
    places, width, base = torch.tensor([[0, 1, 511, 8192, 65_504, 131_000, 131_071]]), 8, 512
    q, k = random(1, 3, 7, width, seed=1), random(1, 3, 7, width, seed=2)
    encoding = build("xpos", dims(width=width), scale_base=float(base))
    pair = torch.arange(width // 2, dtype=torch.float64)
    angle = places[0, :, None] * 10_000.0 ** (-2 * pair / width)
    factor = ((2 * pair + 0.4 * width) / (1.4 * width)) ** (places[0, :, None] / base)
    turned = [
        torch.view_as_complex(x.unflatten(-1, (-1, 2))) * torch.polar(torch.ones_like(angle), angle) for x in (q, k)
    ]
    expected = ((turned[0] * factor) @ (turned[1] / factor).conj().transpose(-2, -1)).real / math.sqrt(width)
    with torch.no_grad():
        actual = scores(encoding, q, k, places, places)
    np.testing.assert_allclose(actual.tril(), expected.tril(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("scale_base", [1.0, 8.0, 512.0])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_xpos_at_the_borders_of_its_blocks_and_at_any_spread_of_positions(scale_base, dtype):
    """The faults to catch: overflow, and pairs of tokens on two sides of a border that fade from the wrong one."""
    size = dims(heads=2, width=64)
    rates = registry.scheme("xpos").options(scale_base=scale_base).decay_per_token(size)
    widths = block_widths(rates, torch.float64)
    assert len(widths) > 1 and max(rates) * widths[0] <= spans(torch.float64)[0]
    borders = {0, 1, 131_071} | {n * width + by for width in widths for n in (1, 2, 3) for by in (-40, -1, 0, 1)}
    places = sorted(place for place in borders if 0 <= place <= 131_071)
    for last in places[1::3]:
        seen = [place for place in places if place <= last]
        q, k = random(1, 2, 1, 64, seed=1, dtype=dtype), random(1, 2, len(seen), 64, seed=2, dtype=dtype)
        actual, encoding = of_last("xpos", seen, size, q, k, dtype, scale_base=scale_base)
        where = torch.tensor([seen])
        expected = paper_scores(encoding, "xpos", q.double(), k.double(), where[:, -1:], where)[0, :, 0]
        rtol, atol = (1e-9, 1e-9) if dtype is torch.float64 else (3e-7, 2e-6)
        np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol)


def test_blocks_of_xpos_serve_every_distance():
    """In each width a pair of channels either stays in range or has faded before it; beyond the last all have."""
    for dtype in (torch.float32, torch.float64):
        span, faded = spans(dtype)
        assert math.exp(span) < torch.finfo(dtype).max and math.exp(-faded) < torch.finfo(dtype).eps / 1000
        for width, base in ((2, 1.0), (16, 512.0), (64, 32.0), (256, 1e6)):
            rates = registry.scheme("xpos").options(scale_base=base).decay_per_token(dims(width=width))
            widths = block_widths(rates, dtype)
            assert max(rates) * widths[0] <= span and min(rates) * widths[-1] >= faded
            for narrow, wide in itertools.pairwise(widths):
                assert all(rate * wide <= span or rate * narrow >= faded for rate in rates)


def test_one_block_of_xpos_is_what_many_are(monkeypatch):
    """A compiled model and a GPU do not look where positions lie."""
    q, k, places = random(1, 3, 20, 64, seed=1), random(1, 3, 20, 64, seed=2), counted(20, 4070)  # a block ends at 4079
    encoding, found = build("xpos", dims(width=64), scale_base=8.0), []
    for _ in range(2):
        found += [scores(encoding, q, k, places - by, places - by).tril() for by in (0, 4070)]
        monkeypatch.setattr("posbuild.encodings.xpos.in_one_block", lambda width, *positions: False)
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_pairs_of_xpos_fade_with_distance_the_fast_ones_first(layout):
    """The fault to catch: growth, from factors that change places. Queries and keys hold one channel here."""
    size, places = dims(heads=1, width=8), list(range(0, 41, 8))
    layout = registry.scheme("xpos").options().layout.__class__[layout]
    shares = []
    for pair in range(4):
        channel = pair if layout.name == "half" else 2 * pair
        one = torch.zeros(1, 1, 1, 8, dtype=torch.float64)
        one[..., channel] = 1
        found = [
            of_last(name, places, size, one, one.expand(1, 1, 6, 8), layout=layout, **options)[0][0]
            for name, options in (("xpos", {"scale_base": 8.0}), ("rope", {}))
        ]
        shares.append(found[0] / found[1])
    shares = torch.stack(shares)
    assert (shares.diff(dim=1) > 0).all()
    np.testing.assert_allclose(shares[:, -1], 1, rtol=1e-12)  # the query's own key
    assert (shares[:, :-1].diff(dim=0) > 0).all()
    np.testing.assert_allclose(shares[:, -2], [(2 * c + 3.2) / 11.2 for c in range(4)], rtol=1e-12)  # 8 tokens back


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_xpos_in_half_precision_is_one_rounding_away_at_every_position(dtype):
    """The fault to catch: factors in float16, which overflow from position 4500 on at the scale base of 512."""
    places = [0, 4095, 65_535, 99_000, 99_900, 99_999, 100_000]
    q, k = random(1, 3, 1, 16, seed=1, dtype=dtype), random(1, 3, 7, 16, seed=2, dtype=dtype)
    encoding, where = build("xpos", dims(width=16), dtype, scale_base=512.0), torch.tensor([places])
    with torch.no_grad():
        actual = scores(encoding, q, k, where[:, -1:], where)
    expected = paper_scores(encoding, "xpos", q.double(), k.double(), where[:, -1:], where)
    assert actual.dtype == dtype
    np.testing.assert_allclose(actual.double(), expected, rtol=torch.finfo(dtype).eps, atol=1e-7)


def test_gradients_of_xpos_are_finite_over_a_long_text():
    """The fault to catch: an infinite factor of a hidden key, times a gradient of zero."""
    encoding, places = build("xpos", dims(width=8), torch.float32), torch.tensor([[*range(0, 131_072, 4000)]])
    q, k = (random(1, 3, places.shape[1], 8, seed=seed, dtype=torch.float32).requires_grad_() for seed in (1, 2))
    found = scores(encoding, q, k, places, places)
    assert found.isfinite().all()
    found.tril().sum().backward()
    assert q.grad.isfinite().all() and k.grad.isfinite().all() and q.grad.abs().max() > 0


def test_the_scale_base_of_xpos_is_half_the_train_length():
    options, size = registry.scheme("xpos").options, dims()
    assert options().resolved(size) == options(scale_base=size.train_length / 2)
    with pytest.raises(ConfigError, match=r"pe\.scale_base=0\.5 .*>= 1"):
        options(scale_base=0.5)


# ReRoPE, Leaky ReRoPE, Self-Extend


@pytest.mark.parametrize("name", WINDOWED)
@pytest.mark.parametrize("layout", ["half", "interleaved"])
def test_within_the_window_it_is_rope(name, layout):
    layout = registry.scheme("rope").options().layout.__class__[layout]
    places = list(range(95, 101))
    actual, _ = of_last(name, places, window=6, log_n=False, layout=layout)
    torch.testing.assert_close(actual, of_last("rope", places, layout=layout)[0], rtol=1e-12, atol=1e-12)
    further, _ = of_last(name, [94, *places], window=6, log_n=False, layout=layout)
    beyond = of_last("rope", [94, *places], layout=layout)[0]
    # ReRoPE and its leaky form agree with rope at the window itself; beyond it all differ.
    same = 1 if name == "self_extend" else 0
    torch.testing.assert_close(further[:, same:], beyond[:, same:], rtol=1e-12, atol=1e-12)
    assert (of_last(name, [80, 100], window=6, log_n=False)[0] - of_last("rope", [80, 100])[0])[:, 0].abs().min() > 1e-6


def test_all_distances_beyond_the_window_of_rerope_are_alike():
    found, _ = of_last("rerope", [0, 1, 50, 90, 91, 92, 93, 94, 100], window=7)
    for place in range(7):
        torch.testing.assert_close(found[:, place], found[:, 0], rtol=1e-12, atol=0)
    assert (found[:, 7] - found[:, 0]).abs().min() > 1e-6
    rope = of_last("rope", [93, 100])[0][:, 0]
    grown = max(1, math.log(101) / math.log(16))
    torch.testing.assert_close(found[:, 6], grown * rope, rtol=1e-12, atol=0)


def test_leaky_rerope_is_continuous_at_the_window_and_then_goes_slower():
    """From 7 on a token further is 1/4 of one: 11 back is as 8 back in rope, 15 as 9. With a factor of 1 it is rope."""
    given = {"window": 7, "factor": 4.0, "log_n": False}
    found, _ = of_last("leaky_rerope", [85, 89, 93, 94, 100], **given)
    expected, _ = of_last("rope", [91, 92, 93, 94, 100])
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    plain, _ = of_last("leaky_rerope", [0, 60, 93, 100], window=7, factor=1.0, log_n=False)
    torch.testing.assert_close(plain, of_last("rope", [0, 60, 93, 100])[0], rtol=1e-11, atol=1e-11)
    stopped, _ = of_last("leaky_rerope", [0, 60, 93, 100], window=7, factor=1e12, log_n=False)
    rectified, _ = of_last("rerope", [0, 60, 93, 100], window=7, log_n=False)
    torch.testing.assert_close(stopped, rectified, rtol=1e-9, atol=1e-9)


def test_self_extend_counts_in_groups_beyond_its_window():
    """Window 6, groups of 4, query at 102, group 25: shift 6 - 1 = 5, so 96 (group 24) is 6 away and 0 is 30."""
    places = [0, 3, 4, 95, 96, 97, 101, 102]
    found, _ = of_last("self_extend", places, window=6, group=4)
    away = [30, 30, 29, 7, 6, 5, 1, 0]
    torch.testing.assert_close(found, of_last("rope", [200 - d for d in away])[0], rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", WINDOWED)
def test_one_softmax_over_near_and_far_and_step_by_step_as_at_once(name):
    """The faults to catch: two softmaxes that are added, and a window counted from the number of new tokens."""
    model, x = small.build(name, options={"window": 5}), small.tokens(1, 24)
    cache = model.new_cache(1)
    with torch.no_grad():
        steps = torch.cat([model(token, cache=cache) for token in x.split(1, dim=1)], dim=1)
        torch.testing.assert_close(steps, model(x), atol=1e-5, rtol=0)
    encoding, heads, places = build(name, window=5), random(1, 3, 24, 4), counted(24)
    seen = encoding.at_scores(places, places, 0, encoding.prepare(places))
    q, k = encoding.at_queries(heads, places, 0, None), encoding.at_keys(heads, places, 0, None)
    assert torch.equal(q, heads) and torch.equal(k, heads)  # a cache holds keys as they came
    pattern = Pattern(places, places, causal=True)
    weights = exact.weights(q, k, pattern, seen, 0.5)
    logits = torch.tensor(paper_scores(encoding, name, heads, heads, places, places))
    expected = logits.masked_fill(torch.ones(24, 24, dtype=torch.bool).triu(1), -math.inf).softmax(-1)
    torch.testing.assert_close(weights, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", WINDOWED)
def test_queries_grow_with_the_logarithm_of_their_position_beyond_the_original_length(name):
    for last in (0, 7, 15, 16, 40, 100_000):
        grown, plain = (of_last(name, [0, last], log_n=choice)[0] for choice in (True, False))
        by = max(1.0, math.log(last + 1) / math.log(16))
        torch.testing.assert_close(grown, by * plain, rtol=1e-12, atol=0)
        assert (by == 1) == (last < 16)


def test_windows_keep_the_share_of_the_original_length_that_released_code_has():
    for train_length, eighth, quarter in ((4096, 512, 1024), (64, 8, 16), (1, 1, 1)):
        size = Dims(d_model=4, n_layers=1, n_heads=1, n_kv_heads=1, train_length=train_length, causal=True)
        for name, window in (("rerope", eighth), ("leaky_rerope", eighth), ("self_extend", quarter)):
            options = registry.scheme(name).options
            assert options().resolved(size) == options(window=window, original_length=max(train_length, 2))


# PoPE


@pytest.mark.parametrize("start", ["zero", "uniform"])
def test_phases_of_pope_learn_from_where_they_start(start):
    """The fault to catch: a clamp to [-2 pi, 0], which starts at its edge and has no gradient beyond it."""
    choice = registry.scheme("pope").options().start.__class__[start]
    encoding, places = started(build("pope", start=choice)), counted(9)
    q, k, weight = (random(1, 3, 9, width, seed=seed) for seed, width in ((1, 4), (2, 4), (3, 9)))

    def gradient(step):
        with torch.no_grad():
            encoding.phase += step
        found = sum((weight * scores(encoding, q, k, places, places, layer).tril()).sum() for layer in (0, 1))
        return torch.autograd.grad(found, encoding.phase)[0]

    assert (gradient(0) != 0).all()
    above = gradient(0.5)  # what a step of training may do
    assert (above != 0).all()
    torch.testing.assert_close(gradient(-2 * math.pi), above, rtol=1e-9, atol=1e-12)


def test_phases_of_pope_start_at_zero_or_evenly_over_the_circle():
    size = dims(heads=50, width=64)
    choices = registry.scheme("pope").options().start.__class__
    assert not started(build("pope", size, start=choices.zero)).phase.any()
    phase = started(build("pope", size, start=choices.uniform)).phase.detach()
    assert -2 * math.pi <= phase.min() < -6.2 and -0.1 < phase.max() <= 0
    # Of 6400 uniform numbers the mean is off by 2 pi / sqrt(12 · 6400), and five times that is never seen.
    assert float(phase.mean()) == pytest.approx(-math.pi, abs=5 * 2 * math.pi / math.sqrt(12 * 6400))
    assert phase.shape == (2, 50, 64)


def test_pope_takes_two_channels_for_one_and_its_cache_holds_them():
    """One number a key head and channel, and D frequencies: rope has half as many."""
    model = small.build("pope")  # 4 heads of 12 channels, 2 key heads
    assert model.encoding.phase.shape == (2, 2, 12) and model.encoding.key_width == 24
    cache = model.new_cache(3)
    assert cache.keys_NBGCD.shape[-1] == 24 and cache.values_NBGCD.shape[-1] == 12
    assert build("pope", dims(width=8)).radians == pytest.approx([10_000 ** (-c / 8) for c in range(8)])


def test_what_and_where_of_pope_do_not_mix():
    """The best distance of a channel is that of its phase, whatever query and key hold: in rope these move it."""
    encoding, places = build("pope", dims(heads=1, width=1)), counted(7)
    with torch.no_grad():
        encoding.phase.fill_(3.0)  # cos(-d + 3) is largest 3 tokens back
        for seed in range(20):
            q, k = random(1, 1, 1, 1, seed=seed), random(1, 1, 1, 1, seed=100 + seed).expand(1, 1, 7, 1)
            found = scores(encoding, q, k, places[:, -1:], places)[0, 0, 0]
            assert int(found.argmax()) == 6 - 3


# FoPE


@pytest.mark.parametrize(
    ("width", "train_length", "stay", "series"),
    [
        (64, 512, 16, 16),
        (128, 512, 31, 31),
        (64, 64, 9, 9),
        (32, 64, 5, 5),
        (8, 2000, 3, 2),
        (4, 4, 1, 1),
        (2, 16, 1, 1),
    ],
)
def test_frequencies_slower_than_one_turn_in_the_train_length_are_left_out(width, train_length, stay, series):
    """64 channels and 512 tokens are the released setting; there N is a quarter of the width by itself."""
    size = Dims(d_model=width, n_layers=1, n_heads=1, n_kv_heads=1, train_length=train_length, causal=True)
    options = registry.scheme("fope").options(spread=0.0)
    radians = options.radians_per_token(size)
    assert (len(radians), options.series(size)) == (stay, series)
    assert len(radians) == 1 or min(radians) >= 2 * math.pi / train_length
    slower = 10_000 ** (-2 * stay / width)
    assert slower < 2 * math.pi / train_length or stay == width // 2


@pytest.mark.parametrize("zero_sine", [False, True])
def test_pairs_of_fope_without_a_series_carry_no_position(zero_sine):
    """With one frequency each the others turn as in rope. The released sine of 1 doubles those that stand."""
    size = dims(heads=2, width=16)  # of 8 frequencies 0.39 and more stay: 1 alone
    encoding, rope, place = build("fope", size, spread=0.0, zero_sine=zero_sine), build("rope", size), counted(50, 7)
    assert encoding.radians == [1.0] and encoding.series == 1
    q, k = random(1, 2, 50, 16, seed=1), random(1, 2, 50, 16, seed=2)
    mine, theirs = (
        [hook(x, place, 0, each.prepare(place)) for hook, x in ((each.at_queries, q), (each.at_keys, k))]
        for each in (encoding, rope)
    )
    turning = encoding.series
    for one, other, came in zip(mine, theirs, (q, k), strict=True):
        for half in (0, 8):
            torch.testing.assert_close(one[..., half : half + turning], other[..., half : half + turning])
        still = [c for c in range(16) if c % 8 >= turning]
        products = (one[..., still] * one[..., still]).sum(-1), (came[..., still] ** 2).sum(-1)
        torch.testing.assert_close(products[0], (1 if zero_sine else 2) * products[1])
        assert zero_sine == torch.equal(one[..., still], came[..., still])


def test_fixed_coefficients_of_fope_are_drawn_by_a_number_and_by_nothing_else():
    """The fault to catch: a buffer, or a draw from global chance, which a cast, a load or a seed would change."""
    torch.manual_seed(1)
    one = build("fope")
    torch.manual_seed(2)
    same, other = build("fope"), build("fope", draw=1)
    assert torch.equal(one.cosines, same.cosines) and not torch.equal(one.cosines, other.cosines)
    assert not one.state_dict() and not list(one.parameters())
    assert torch.equal(build("fope").to(torch.bfloat16).cosines, one.cosines)
    assert not torch.equal(one.cosines[0], one.cosines[1]) and not torch.equal(one.cosines, one.sines)
    uniform = np.random.RandomState([3]).random_sample(4)
    expected = [math.sqrt(-2 * math.log(1 - u)) * math.cos(2 * math.pi * v) for u, v in (uniform[:2], uniform[2:])]
    assert registry.scheme("fope").options(draw=3).normal(2) == expected


@pytest.mark.parametrize("learn", [False, True])
def test_coefficients_of_fope_start_around_the_identity_by_the_deviation_of_xavier(learn):
    """torch's Xavier takes a tensor (heads, N, P) for one of N·P inputs and heads·P outputs; 0.3 of it."""
    size = Dims(d_model=1024, n_layers=4, n_heads=16, n_kv_heads=16, train_length=512, causal=True)
    encoding = started(build("fope", size, torch.float64, learn=learn))
    like = torch.empty(16, 16, 16, dtype=torch.float64)
    torch.nn.init.xavier_normal_(like, gain=0.3, generator=generator(0))
    for table in (encoding.cosines, encoding.sines):
        apart = table.detach() - torch.eye(16, dtype=torch.float64)
        assert float(apart.std()) == pytest.approx(float(like.std()), rel=0.05)
        assert abs(float(apart.mean())) < 5 * float(like.std()) / math.sqrt(apart.numel())


def test_fope_by_frequencies_that_outnumber_its_series():
    """Three frequencies, two series: every second one is the centre of a series, as in the released code."""
    size = Dims(d_model=8, n_layers=1, n_heads=1, n_kv_heads=1, train_length=2000, causal=True)
    encoding = build("fope", size, spread=0.0)
    assert encoding.cosines[0, 0].tolist() == [[1, 0], [0, 0], [0, 1]]


def test_query_heads_of_a_group_have_the_series_of_their_key_head():
    size = Dims(d_model=32, n_layers=1, n_heads=4, n_kv_heads=2, train_length=64, causal=True)
    encoding, place = build("fope", size), counted(3)
    alike = random(1, 1, 3, 8).expand(1, 4, 3, 8)
    turned = encoding.at_queries(alike, place, 0, encoding.prepare(place))
    assert torch.equal(turned[:, 0], turned[:, 1]) and torch.equal(turned[:, 2], turned[:, 3])
    assert not torch.allclose(turned[:, 1], turned[:, 2])
    keys = encoding.at_keys(alike[:, :2], place, 0, encoding.prepare(place))
    assert torch.equal(keys, turned[:, ::2])


def test_fope_depends_on_both_positions_and_not_on_the_distance_alone():
    assert not registry.scheme("fope").shift_invariant
    near, _ = of_last("fope", [0, 2])
    far, _ = of_last("fope", [10, 12])
    assert (near - far).abs().min() > 1e-6
    # Without sums, one frequency a pair, it does: a rotation.
    near, far = (of_last("fope", [start, start + 2], spread=0.0)[0] for start in (0, 10))
    torch.testing.assert_close(near, far, rtol=1e-12, atol=1e-12)


def test_references_of_windowed_schemes_agree_where_their_rules_do():
    """Three ways to write the same scores: by complex numbers, by cosines and sines, by a matrix."""
    q, k = random(1, 2, 1, 6, seed=1).numpy(), random(1, 2, 9, 6, seed=2).numpy()
    given = {"window": 4, "log_length": 3, "base": 50.0, "layout": "half", "fraction": 1.0}
    where = [[8]], [list(range(9))]
    leaky = reference("leaky_rerope").scores(q, k, *where, factor=1.0, **given)
    np.testing.assert_allclose(reference("self_extend").scores(q, k, *where, group=1, **given), leaky, rtol=1e-12)
    rectified = reference("rerope").scores(q, k, *where, **given)
    np.testing.assert_allclose(rectified[..., 4:], leaky[..., 4:], rtol=1e-12)
    far = reference("leaky_rerope").scores(q, k, *where, factor=1e15, **given)
    np.testing.assert_allclose(rectified, far, rtol=1e-9)


@pytest.mark.parametrize("name", [*CAUSAL_ONLY, "fope", "pope"])
def test_positions_may_be_fractions_or_negative(name):
    """As in training with drawn positions."""
    where = [-3.25, -1.0, 0.5, 7.125, 40.0, 40.625, 41.0]
    found, encoding = of_last(name, where)
    assert found.isfinite().all()
    shifted, _ = of_last(name, [place + 0.875 for place in where])
    invariant = registry.scheme(name).shift_invariant
    assert invariant == torch.allclose(found, shifted, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found[:, [4, 6]], of_last(name, [40, 41])[0])
    if name in WINDOWED:  # three eighths of a token away
        growth = (
            log_growth(torch.tensor(41.0), encoding.options.original(encoding.dims)) if encoding.options.log_n else 1.0
        )
        torch.testing.assert_close(found[:, 5], growth * of_last("rope", [40.625, 41.0])[0][:, 0])


def test_attention_with_keys_wider_than_values_is_that_of_the_exact_path():
    """As of PoPE; the kernels that hold no score for each pair of tokens take equal widths alone."""
    q, k, v = (random(2, heads, 9, width, seed=width) for heads, width in ((4, 8), (2, 8), (2, 3)))
    for causal in (True, False):
        pattern = Pattern(counted(9), counted(9), causal=causal)
        found = [attention(q, k, v, pattern, None, 0.3) for attention in (exact_attention, fused_attention)]
        assert found[1].shape == (2, 4, 9, 3)
        torch.testing.assert_close(found[1], found[0], rtol=1e-12, atol=1e-12)
