"""Rotary schemes against transformers and x-transformers: frequencies, rotated queries and keys, layers, temperature."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from posbuild.conformance.cases import build, dims
from posbuild.conformance.layer import random
from posbuild.conformance.rows import turns
from posbuild.conformance.test_public import PART
from posbuild.schemes.rope import Pairing
from tests.public.common import turned

pytest.importorskip("transformers", minversion="5")
x_transformers = pytest.importorskip("x_transformers.x_transformers")

from transformers import Gemma3TextConfig, LlamaConfig, SmolLM3Config  # noqa: E402
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS  # noqa: E402
from transformers.models.gemma3 import modeling_gemma3 as gemma3  # noqa: E402
from transformers.models.llama import modeling_llama as llama  # noqa: E402
from transformers.models.llama4 import modeling_llama4 as llama4  # noqa: E402
from transformers.models.llama4.configuration_llama4 import Llama4TextConfig  # noqa: E402

pytestmark = pytest.mark.part(PART)
HEADS, LENGTH = 2, 512  # the original length
LONG = [1.0 + number / 4 for number in range(32)]

# Of each scheme in transformers: its name there, its settings there, and the options here.
SAME = {
    "rope_linear": ("linear", {"factor": 4.0}, {"factor": 4.0}),
    "yarn": ("yarn", {"factor": 4.0}, {"factor": 4.0}),
    "llama3": (
        "llama3",
        {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
        {"factor": 8.0},
    ),
    "rope_proportional": ("proportional", {"partial_rotary_factor": 0.25}, {"share": 0.25}),
    "rope_dynamic_ntk": ("dynamic", {"factor": 2.0}, {"factor": 2.0}),
    "longrope": (
        "longrope",
        {"factor": 4.0, "short_factor": [1.0] * 32, "long_factor": LONG},
        {"factor": 4.0, "long": LONG},
    ),
}
CASES = [(name, *case) for name, case in SAME.items()] + [
    ("rope_by_parts", "yarn", {"factor": 8.0, "attention_factor": 1.0}, {"factor": 8.0}),
    (
        "rope_by_parts",
        "yarn",
        {"factor": 8.0, "attention_factor": 1.0, "beta_fast": 8, "beta_slow": 2},
        {"factor": 8.0, "low": 2.0, "high": 8.0},
    ),
    ("yarn", "yarn", {"factor": 32.0, "rope_theta": 100.0}, {"factor": 32.0, "base": 100.0}),
    ("rope_proportional", "proportional", {"partial_rotary_factor": 0.9}, {"share": 0.9}),
]


def config_of(kind, settings, width):
    original = {} if kind in ("linear", "proportional", "dynamic") else {"original_max_position_embeddings": LENGTH}
    return LlamaConfig(
        hidden_size=HEADS * width,
        num_attention_heads=HEADS,
        max_position_embeddings=LENGTH,
        rope_parameters={"rope_type": kind, "rope_theta": 10_000.0} | original | settings,
    )


def ours(name, options, width):
    original = {"original_length": LENGTH} if name not in ("rope_linear", "rope_proportional") else {}
    return build(name, dims(heads=HEADS, width=width), **original, **options)


@pytest.mark.public("transformers", *SAME, "rope_by_parts")
@pytest.mark.parametrize(("name", "kind", "settings", "options"), CASES)
@pytest.mark.parametrize("width", [64, 128])
def test_frequencies_of_transformers(name, kind, settings, options, width):
    """Within the original length, and in a text of twice that."""
    if name == "longrope" and width != 64:
        return
    for length in (LENGTH, 2 * LENGTH):
        theirs, magnitude = ROPE_INIT_FUNCTIONS[kind](
            config_of(kind, settings, width), torch.device("cpu"), seq_len=length
        )
        radians, lengthened = turns(ours(name, options, width), length)
        np.testing.assert_allclose(radians, theirs, rtol=2e-6, atol=1e-12)
        np.testing.assert_allclose(lengthened, magnitude, rtol=1e-12)


@pytest.mark.public("transformers", *SAME)
@pytest.mark.parametrize("name", SAME)
@pytest.mark.parametrize("length", [LENGTH, 2 * LENGTH])
def test_rotated_queries_and_keys_of_transformers(name, length):
    """Theirs form angles in float32, off by 1024 · 2⁻²⁴ at the end, for numbers up to 5 here, lengthened by 1.14: 3.5e-4."""
    kind, settings, options = SAME[name]
    positions = torch.arange(length)[None]
    module = llama.LlamaRotaryEmbedding(config_of(kind, settings, 64))
    x = random(1, HEADS, length, 64)
    theirs = llama.apply_rotary_pos_emb(x, x, *module(x, positions))
    for one, other in zip(turned(ours(name, options, 64), x, x, positions), theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=3.5e-4)


@pytest.mark.public("transformers", "rope_dynamic_ntk")
def test_keys_of_transformers_in_a_cache_are_turned_for_another_length():
    """What a cache of turned keys holds in transformers: the key at 100, turned in a text of 512 and never again."""
    config = config_of("dynamic", {"factor": 2.0}, 64)
    module, key, position = llama.LlamaRotaryEmbedding(config), random(1, HEADS, 1, 64), torch.tensor([[100]])
    cached = llama.apply_rotary_pos_emb(key, key, *module(key, position))[1]
    encoding = ours("rope_dynamic_ntk", {"factor": 2.0}, 64)
    at_once = torch.tensor([[100, 4 * LENGTH - 1]])
    right = encoding.at_keys(key.expand(-1, -1, 2, -1), at_once, 0, encoding.prepare(at_once))[:, :, :1]
    assert (cached - right).abs().max() > 0.5
    torch.testing.assert_close(
        encoding.at_keys(key, position, 0, encoding.prepare(position)), cached, rtol=0, atol=1e-4
    )


@pytest.mark.public("x-transformers", "rope_linear", "rope_ntk")
@pytest.mark.parametrize("name", ["rope_linear", "rope_ntk"])
def test_position_interpolation_and_ntk_of_x_transformers(name):
    """Interleaved; `interpolation_factor` and `base_rescale_factor` there."""
    factors = {"interpolation_factor" if name == "rope_linear" else "base_rescale_factor": 4.0}
    angles, _ = x_transformers.RotaryEmbedding(16, **factors).forward(torch.arange(LENGTH))
    encoding = build(name, dims(heads=HEADS, width=16), factor=4.0, layout=Pairing.interleaved)
    positions, x = torch.arange(LENGTH)[None], random(1, HEADS, LENGTH, 16)
    shared = encoding.prepare(positions)
    theirs = x_transformers.apply_rotary_pos_emb(x, angles)
    torch.testing.assert_close(encoding.at_keys(x, positions, 0, shared), theirs, rtol=0, atol=1e-4)


# Layers


@pytest.mark.public("transformers", "rnope", "irope")
@pytest.mark.parametrize("config", [Llama4TextConfig, SmolLM3Config])
@pytest.mark.parametrize("name", ["rnope", "irope"])
def test_the_layers_without_rope_are_those_of_released_models(name, config):
    """Their list no_rope_layers has 1 for a layer WITH rope. Llama 4 and SmolLM3."""
    encoding, x, places = build(name, dims(layers=12)), random(1, 3, 2, 4), torch.tensor([[5, 6]])
    turning = [not torch.equal(turned(encoding, x, x, places, layer)[1], x) for layer in range(12)]
    assert turning == [bool(turns) for turns in config(num_hidden_layers=12).no_rope_layers]


@pytest.mark.public("transformers", "rope_local_global")
def test_the_global_layers_of_gemma_3():
    """Frequencies by layer; the head width is 16 here."""
    config = Gemma3TextConfig(hidden_size=32, num_attention_heads=2, head_dim=16, num_hidden_layers=13)
    module, encoding = (
        gemma3.Gemma3RotaryEmbedding(config),
        build("rope_local_global", dims(heads=2, width=16, layers=13)),
    )
    positions, x = torch.arange(LENGTH)[None], random(1, 2, LENGTH, 16)
    for layer, kind in enumerate(config.layer_types):
        theirs = gemma3.apply_rotary_pos_emb(x, x, *module(x, positions, kind))
        for one, other in zip(turned(encoding, x, x, positions, layer), theirs, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-4)


@pytest.mark.public("transformers", "irope")
@pytest.mark.parametrize("layer", [2, 3])
def test_attention_of_llama_4_with_its_temperature(layer):
    """Layers with and without rope, lengths of 8 tokens; its normalisation of queries and keys is off."""
    config = Llama4TextConfig(
        hidden_size=32,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=16,
        num_hidden_layers=4,
        floor_scale=8,
        attn_scale=0.5,
        use_qk_norm=False,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        attn_implementation="eager",
    )
    theirs = llama4.Llama4TextAttention(config, layer).double()
    x, positions = random(1, 40, 32), torch.arange(40)[None]
    mask = torch.full((40, 40), -math.inf, dtype=torch.float64).triu(1)[None, None]
    with torch.no_grad():
        expected, _ = theirs(x, llama4.Llama4TextRotaryEmbedding(config)(x, positions), mask)
        q, k, v = (
            part(x).unflatten(-1, (2, 16)).transpose(1, 2) for part in (theirs.q_proj, theirs.k_proj, theirs.v_proj)
        )
        size = dims(heads=2, width=16, layers=4)
        encoding = build("irope", size, original_length=8, temperature=0.5, layout=Pairing.interleaved)
        shared = encoding.prepare(positions)
        q, k = encoding.at_queries(q, positions, layer, shared), encoding.at_keys(k, positions, layer, shared)
        gathered = (q @ k.transpose(-2, -1) / 4 + mask).softmax(dim=-1) @ v
        actual = theirs.o_proj(gathered.transpose(1, 2).flatten(-2))
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5)  # theirs turn in float32
