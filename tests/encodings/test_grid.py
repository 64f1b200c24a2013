"""Schemes for positions of several axes: all that the tests of text ask of a scheme, with coordinates in place of counts."""

from __future__ import annotations

import ast
import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import posbuild
from posbuild import cli, registry, show
from posbuild.conformance.cases import as_field, build, cases, choices_of, started
from posbuild.conformance.layer import generator, random
from posbuild.conformance.paper import arguments, reference
from posbuild.declaration import ActsOn, Dims
from posbuild.errors import ConfigError
from posbuild.model import Transformer, init_parameters, scores_of
from posbuild.settings import ModelSettings, options_of
from tests.reference.test_reference_is_independent import ALLOWED, FOLDER, imported

SCHEMES = [name for name, scheme in registry.all_schemes().items() if 1 not in scheme.axes]
TRAIN_LENGTH = 16
# The values of each option, the default first, from the references.
VALUES = {
    name: {
        option: [as_field(choices_of(name, option), value) for value in values]
        for option, values in reference(name).VALUES.items()
    }
    for name in SCHEMES
}


def dims(heads=2, width=24, causal=True, layers=2, kv_heads=None):
    """Heads so wide that two and three axes share them out, whole and by half."""
    return Dims(
        d_model=heads * width,
        n_layers=layers,
        n_heads=heads,
        n_kv_heads=kv_heads or heads,
        train_length=TRAIN_LENGTH,
        causal=causal,
    )


def axes(name, options):
    return registry.scheme(name).options(**options).number_of_axes()


every_scheme = pytest.mark.parametrize("name", SCHEMES)


def block(count, side=3, first=0):
    """Positions of a square or cube, row by row, (1, T, axes)."""
    return torch.cartesian_prod(*[torch.arange(first, first + side)] * count)[None]


def positions_of(rows, count):
    """Positions (1, T, axes) from coordinates (first, second): a third is their sum, at most 6."""
    return torch.tensor([[[*row, min(sum(row), 6)][:count] for row in rows]])


def expected_scores(encoding, name, q, k, q_positions, k_positions, layer=0):
    """The scores by the slow formula of the scheme, or q·k/√D."""
    q, k = q.detach().double().numpy(), k.detach().double().numpy()
    if not hasattr(reference(name), "scores"):
        return q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    rows = [each.expand(len(q), -1, -1).tolist() for each in (q_positions, k_positions)]
    return reference(name).scores(q, k, *rows, **arguments(encoding, name, layer))


# What is covered


@every_scheme
def test_a_scheme_has_the_axes_that_it_declares(name):
    assert {case.axes for case in cases() if case.name == name} == {*registry.scheme(name).axes}


def test_every_reference_is_of_a_scheme_and_borrows_nothing():
    files = sorted(path for path in (FOLDER / "grid").glob("*.py") if path.stem != "__init__")
    assert [f"grid/{path.stem}" for path in files] == SCHEMES
    for path in files:
        assert {*imported(path)} <= ALLOWED
        assert "arXiv:" in ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", [name for name in SCHEMES if registry.scheme(name).acts_on is ActsOn.queries_and_keys])
def test_query_heads_of_one_key_head_turn_as_it_does(name):
    """Four query heads in two groups: as if each key head were written out twice."""
    grouped, positions = build(name, dims(heads=4, width=8, kv_heads=2)), block(axes(name, {}), 2)
    written_out = build(name, dims(heads=4, width=8))
    with torch.no_grad():
        for own, one in zip(written_out.parameters(), grouped.parameters(), strict=True):
            own.copy_(one.repeat_interleave(2, dim=2))
    q, k = random(1, 4, positions.shape[1], 8, seed=1), random(1, 2, positions.shape[1], 8, seed=2)
    actual = scores_of(grouped, q, k, positions, positions, layer=1)
    expected = scores_of(written_out, q, k.repeat_interleave(2, dim=1), positions, positions, layer=1)
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)


# Shifts


def test_liere_knows_offsets_alone_where_its_matrices_commute():
    """With blocks of two channels they are rotations of a plane, as in RoPE-Mixed; with wider ones they are not."""
    q = random(1, 2, 4, 24)
    for channels, bound in ((2, (0, 1e-12)), (3, (1e-2, 100))):
        encoding = build("grid/liere", dims(), generator_dim=channels)
        with torch.no_grad():
            here, there = (scores_of(encoding, q, q, at, at) for at in (block(2, 2), block(2, 2, first=5)))
        assert bound[0] <= (there - here).abs().max() <= bound[1]


def test_liere_in_blocks_of_two_is_rope_mixed_of_the_same_frequencies():
    """exp([[0, u], [-u, 0]]) turns the other way, by which no score changes sign: u and -u are frequencies f and -f."""
    liere = build("grid/liere", dims(), generator_dim=2, span=2)
    mixed = build("grid/rope_mixed", dims())
    with torch.no_grad():
        mixed.freqs.copy_(-liere.generators[..., 0])
    q, k, positions = random(1, 2, 9, 24, seed=1), random(1, 2, 9, 24, seed=2), block(2)
    for layer in (0, 1):
        one, other = (scores_of(encoding, q, k, positions, positions, layer) for encoding in (liere, mixed))
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


# Order


# Precision and state

FAR = [(0, 0), (1, 255), (257, 256), (4096, 1), (32769, 65505), (131071, 131070), (131071, 131071)]


def far(count):
    return torch.tensor([[[*row, row[1]][:count] for row in FAR]])


# In a model


def model_of(name, causal=True, options=None, **changes):
    settings = ModelSettings(**({"d_model": 48, "n_layers": 2, "n_heads": 4, "causal": causal} | changes))
    size = Dims(
        d_model=settings.d_model,
        n_layers=settings.n_layers,
        n_heads=settings.n_heads,
        n_kv_heads=settings.kv_heads,
        train_length=TRAIN_LENGTH,
        causal=causal,
    )
    encoding = registry.encoding(name, options_of(name, options or {}), size)
    model = Transformer(settings, encoding, size, vocab_size=7)
    init_parameters(model, seed=0)
    return model


def awake(model):
    """Parameters that start at zero would hide faults."""
    for number, parameter in enumerate(model.parameters()):
        if not parameter.any():
            torch.nn.init.normal_(parameter, std=0.2, generator=generator(number))
    return model.double().eval()


@every_scheme
def test_positions_are_asked_for_and_of_the_scheme_s_own_axes(name):
    model, count = model_of(name), axes(name, {})
    tokens = torch.zeros(1, 4, dtype=torch.int64)
    for given, said in (
        (None, "None"),
        (torch.arange(4)[None], r"\(1, 4\)"),
        (torch.zeros(1, 4, count + 1, dtype=torch.int64), rf"\(1, 4, {count + 1}\)"),
        (torch.zeros(4, count, dtype=torch.int64), rf"\(4, {count}\)"),
    ):
        with pytest.raises(
            ConfigError, match=rf"positions of the shape \(B or 1, T, {count}\), and those given have {said}"
        ):
            model(tokens, given)
    with pytest.raises(ConfigError, match=r"of the shape \(B or 1, T\), and those given have \(1, 4, 2\)"):
        model_of("rope")(tokens, torch.zeros(1, 4, 2, dtype=torch.int64))


def test_a_text_scheme_counts_as_before():
    model = awake(model_of("rope"))
    tokens = torch.randint(7, (1, 5), generator=generator(6))
    assert torch.equal(model(tokens), model(tokens, torch.arange(5)[None]))


# From Python and from the command line


def test_scores_and_codes_from_python():
    q, positions = random(1, 2, 4, 24), block(2, 2)[0]
    for name in SCHEMES:
        count = axes(name, {})
        at = positions if count == 2 else torch.cat([positions, positions[:, :1]], dim=1)
        if registry.scheme(name).acts_on is ActsOn.input:
            codes = posbuild.codes(name, at, 48)
            assert codes.shape == (4, 48) and len(codes.unique(dim=0)) == 4
            with pytest.raises(ConfigError, match="of the shape"):
                posbuild.codes(name, at[:, 0], 48)
            continue
        scores = posbuild.scores(name, q, q, at, at)
        assert scores.shape == (1, 2, 4, 4)
        assert torch.equal(scores, posbuild.scores(name, q, q, at[None], at[None]))
        with pytest.raises(ConfigError, match="of the shape"):
            posbuild.scores(name, q, q, at[:, 0], at[:, 0])
    with pytest.raises(ConfigError, match="defined for 14 x 14 positions"):
        posbuild.codes("grid/axial_learned", positions + 13, 48)
    with pytest.raises(ConfigError, match="defined for 7 x 7 positions"):
        posbuild.scores("grid/swin", q, q, positions + 6, positions)


@every_scheme
def test_training_on_text_is_refused(name):
    with pytest.raises(ConfigError, match=f"pe={name} encodes positions of .* axes, and text has one"):
        posbuild.build(f"pe={name}")


def test_list_shows_schemes_by_their_axes(capsys, monkeypatch):
    def names(*arguments):
        monkeypatch.setattr("sys.argv", ["posbuild", "list", *arguments])
        assert cli.main() == 0
        return {line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]}

    assert names("--axes", "1") == names() == {*registry.schemes()}
    assert names("--axes", "2") == {name for name in SCHEMES if 2 in registry.scheme(name).axes}
    assert names("--axes", "3") == {*SCHEMES} - {"grid/swin", "grid/rope_mixed"}
    assert names("--axes", "2", "--beyond", "--learned") == {"grid/rope_mixed", "grid/liere"}


@every_scheme
def test_show_says_how_many_axes_and_draws(name):
    scheme = registry.scheme(name)
    text = show.description(scheme)
    assert f"on {' or '.join(map(str, scheme.axes))} axes" in text
    drawn_rows = show.picture(scheme).splitlines()[1:]
    assert len(drawn_rows) == show.TOKENS and len({*"".join(drawn_rows)} - {" "}) > 1
    assert "axes" not in show.description(registry.scheme("rope"))


# Single schemes


def test_axial_rope_turns_half_of_the_pairs_by_each_axis():
    """As rope of half the width on each half of the channels, whose base is the same."""
    axial, rope = (
        build("grid/axial_rope", dims()),
        build("rope", dims(width=12), base=100.0, layout=VALUES["grid/axial_rope"]["layout"][0]),
    )
    k, positions = random(1, 2, 9, 24), block(2, first=40)
    turned = axial.at_keys(k, positions, 0, axial.prepare(positions))
    for axis, channels in enumerate((slice(0, 12), slice(12, 24))):
        alone = positions[..., axis]
        torch.testing.assert_close(turned[..., channels], rope.at_keys(k[..., channels], alone, 0, rope.prepare(alone)))


@pytest.mark.parametrize("interleave", [False, True])
@pytest.mark.parametrize("layout", VALUES["grid/mrope"]["layout"])
def test_mrope_of_text_is_rope(interleave, layout):
    """The same number on all axes."""
    mrope, rope = (
        build("grid/mrope", dims(), interleave=interleave, layout=layout),
        build("rope", dims(), base=1e6, layout=layout),
    )
    q, positions = random(1, 2, 7, 24), torch.tensor([[0, 1, 2, 9, 500, 70_000, 131_071]])
    on_each = positions[..., None].expand(-1, -1, 3)
    torch.testing.assert_close(
        scores_of(mrope, q, q, on_each, on_each), scores_of(rope, q, q, positions, positions), rtol=0, atol=1e-12
    )


@pytest.mark.parametrize(
    ("interleave", "pairs", "sections"),
    [
        (False, 64, [16, 24, 24]),
        (True, 64, [24, 20, 20]),
        (False, 3, [1, 1, 1]),
        (True, 3, [1, 1, 1]),
        (False, 4, [2, 1, 1]),
    ],
)
def test_mrope_sections_of_the_released_models(interleave, pairs, sections):
    """16, 24, 24 in Qwen2-VL; 24, 20, 20 in Qwen3-VL."""
    size = dims(heads=1, width=2 * pairs)
    options = registry.scheme("grid/mrope").options(interleave=interleave)
    options.check(size)
    assert options.resolved(size).sections == sections
    of_pair = options.axis_of_pair(size)
    assert [of_pair.count(axis) for axis in range(3)] == sections
    assert of_pair == (sorted(of_pair) if not interleave else reference("grid/mrope").axes(sections, True))


def test_swin_offsets_have_the_numbers_of_the_released_code():
    """microsoft/Swin-Transformer@f82860b, relative_position_index of a window of 3: nine cells, row by row."""
    encoding = build("grid/swin", dims(heads=1, layers=1), window=3)
    with torch.no_grad():
        encoding.table.copy_(torch.arange(25.0).view(1, 25, 1))
        index = encoding.prepare(block(2))[0].dense(block(2), block(2), torch.float64)[0, 0]
    assert index.int().tolist() == reference("grid/swin").INDEX_AS_RELEASED


def test_swin_starts_as_released():
    """Normal, standard deviation 0.02."""
    encoding = started(registry.encoding("grid/swin", options_of("grid/swin", {}), dims(layers=12)))
    assert encoding.table.shape == (12, 169, 2)
    table = encoding.table.detach()
    assert abs(float(table.std()) - 0.02) < 1e-3 and abs(float(table.mean())) < 1e-3


def test_rope_mixed_starts_as_released():
    """As init_random_2d_freqs for the angles drawn; each head and layer has one of its own, or none."""
    encoding = started(registry.encoding("grid/rope_mixed", options_of("grid/rope_mixed", {}), dims(width=8)).double())
    angles = torch.atan2(encoding.freqs[1, :, :, 0], encoding.freqs[0, :, :, 0])
    assert len(angles.flatten().unique()) == 4
    for layer, head in np.ndindex(2, 2):
        expected = reference("grid/rope_mixed").start(float(angles[layer, head]), 8)
        np.testing.assert_allclose(encoding.freqs[:, layer, head].detach(), expected, rtol=0, atol=1e-12)
    row = reference("grid/rope_mixed").STARTS_AS_RELEASED
    for angle, freqs in zip(row["angles"], row["freqs"], strict=True):
        np.testing.assert_allclose(reference("grid/rope_mixed").start(angle, 8), freqs, rtol=0, atol=1e-6)
    straight = started(build("grid/rope_mixed", dims(width=8), rotate=False))
    assert straight.freqs[0, ..., :2].abs().min() > 0.3 and straight.freqs[0, ..., 2:].abs().max() < 1e-12


def test_rope_mixed_angles_are_exact_far_away():
    """A frequency of float32 times position 131071 to twelve digits: in float32 the angle is off by 4e-3, in bf16 by 300."""
    encoding = build("grid/rope_mixed", dims(heads=1, width=4, layers=1), dtype=torch.float32)
    with torch.no_grad():
        encoding.freqs.copy_(torch.tensor([[[[0.7, 0.1]]], [[[0.3, 0.9]]]]))
    position = torch.tensor([[[131_071, 131_070]]])
    for autocast in (False, True):
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            cos, _ = encoding.prepare(position)[0]
        exact = encoding.freqs.detach().double()
        angle = 131_071 * exact[0, 0, 0] + 131_070 * exact[1, 0, 0]
        np.testing.assert_allclose(cos[0, 0, 0, ::2], angle.cos(), rtol=0, atol=1e-12)


def test_liere_forms_a_rotation_for_each_distinct_position_once(monkeypatch):
    formed = []
    exponential = torch.matrix_exp
    monkeypatch.setattr(torch, "matrix_exp", lambda exponent: formed.append(len(exponent)) or exponential(exponent))
    encoding, positions = build("grid/liere", dims()), block(2).repeat(4, 1, 1)
    encoding.prepare(torch.cat([positions, positions + 1], dim=1))
    assert formed == [14, 14]  # of each layer: 9 cells and 9 cells, 4 of them the same


def test_liere_rotations_keep_lengths():
    encoding, positions = build("grid/liere", dims(), dtype=torch.float32), far(2)
    k = random(1, 2, len(FAR), 24, dtype=torch.float32)
    with torch.no_grad():
        turned = encoding.at_keys(k, positions, 0, encoding.prepare(positions))
    torch.testing.assert_close(turned.norm(dim=-1), k.norm(dim=-1), rtol=3e-6, atol=0)


@pytest.mark.parametrize("join", VALUES["grid/axial_learned"]["join"])
@pytest.mark.parametrize("combine", VALUES["grid/axial_learned"]["combine"])
@pytest.mark.parametrize("extent", [(14, 14), (7, 21), (28, 5), (1, 14)])
def test_axial_tables_resize_as_the_grid_of_codes_does(extent, join, combine):
    """torch's bicubic interpolation of all codes as one image, which DeiT and MAE apply to a table of all places."""
    encoding = build("grid/axial_learned", dims(), extent=[14, 10], join=join, combine=combine)
    resized = encoding.resized(extent)
    assert resized.options.extent == [*extent] and encoding.options.extent == [14, 10]
    grid, new = (torch.cartesian_prod(*map(torch.arange, sizes)) for sizes in ((14, 10), extent))
    with torch.no_grad():
        image = encoding.codes(grid).unflatten(0, (14, 10)).permute(2, 0, 1)[None]
        expected = F.interpolate(image, size=extent, mode="bicubic")[0].permute(1, 2, 0).flatten(0, 1)
        torch.testing.assert_close(resized.codes(new), expected, rtol=1e-12, atol=1e-12)
        if resized.projection is not None:
            assert torch.equal(resized.projection, encoding.projection)


# A task on a grid

SIDE, SYMBOLS = 6, 4


def solved(name):
    """The share of cells whose symbol up and left of them a small model names after training, (chance: 1 in 4)."""
    settings = ModelSettings(d_model=48, n_layers=1, n_heads=2, causal=False, bias=True, allow_orderless=True)
    size = dims(causal=False, layers=1)
    options = {  # of the size of the task: waves as long as six cells, codes as large as the token vectors
        "grid/liere": {"span": SIDE, "generator_dim": 6},
        "grid/mrope": {"base": 10.0, "interleave": True},
        "grid/axial_sinusoidal": {"scale": 1.0},
        "grid/axial_learned": {"init_std": 0.5},
    }
    encoding = registry.encoding(name, options_of(name, options.get(name, {})), size)
    model = Transformer(settings, encoding, size, SYMBOLS)
    init_parameters(model, seed=0)
    cells = torch.cartesian_prod(torch.arange(SIDE), torch.arange(SIDE))[None]
    count = encoding.options.number_of_axes()
    positions = {1: None, 2: cells, 3: F.pad(cells, (1, 0))}[count]  # a picture is one moment
    optimizer, draws = torch.optim.Adam(model.parameters(), lr=1e-2), torch.Generator().manual_seed(1)
    for step in range(STEPS + 1):
        symbols = torch.randint(SYMBOLS, (32, SIDE, SIDE), generator=draws)
        logits = model(symbols.flatten(1), positions).unflatten(1, (SIDE, SIDE))[:, 1:, 1:]
        targets = symbols[:, :-1, :-1]
        if step == STEPS:
            return float((logits.argmax(-1) == targets).float().mean())
        optimizer.zero_grad()
        F.cross_entropy(logits.flatten(0, 2), targets.flatten()).backward()
        optimizer.step()


STEPS = 150


@pytest.mark.parametrize("name", SCHEMES)
def test_a_model_learns_to_look_up_and_left(name):
    assert solved(name) > 0.6


def test_a_model_without_positions_does_not():
    assert solved("none") < 0.4
