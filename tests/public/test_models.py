"""Whole models of transformers with random weights, copied: hidden vectors or logits, of texts four times as long as trained on.

The fault to catch: a part that is right by itself and stands in the wrong place of the model, or is told wrong positions.
Only models whose other parts posbuild has too can be copied.
"""

from __future__ import annotations

import pytest
import torch

from posbuild import registry
from posbuild.conformance.cases import TRAIN_LENGTH, typed
from posbuild.conformance.test_public import PART
from posbuild.declaration import Dims
from posbuild.model import Transformer
from posbuild.settings import Activation, ModelSettings, Norm

pytest.importorskip("transformers", minversion="5")

from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    MptConfig,
    MptForCausalLM,
    SmolLM3Config,
    SmolLM3ForCausalLM,
    T5Config,
    T5EncoderModel,
)

pytestmark = pytest.mark.part(PART)
WIDTH, LAYERS, HEADS, KEY_HEADS, INNER, WORDS = 32, 4, 4, 2, 48, 11
LENGTH = 4 * TRAIN_LENGTH + 5
TOKENS = torch.randint(WORDS, (2, LENGTH), generator=torch.Generator().manual_seed(0))
# Theirs normalise, turn and take softmax in float32: 2⁻²⁴ of numbers to some 16 and angles to 68, in each of four layers.
TOLERANCE = 2e-5


def awake(model):
    """Their model with weights so large that every part of it matters."""
    with torch.no_grad():
        for number, (_, parameter) in enumerate(sorted(model.named_parameters())):
            drawn = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(number))
            parameter.copy_(1 + 0.2 * drawn if parameter.dim() == 1 else drawn / parameter.shape[-1] ** 0.5)
    return model.double().eval()


def copied(name, options, weights, *, encoding=None, causal=True, **settings):
    """posbuild's model with these weights, and the scheme with its own."""
    sizes = {"d_model": WIDTH, "n_layers": LAYERS, "n_heads": HEADS, "d_ff": INNER, "causal": causal} | settings
    chosen = ModelSettings(**sizes)
    size = Dims(
        d_model=WIDTH,
        n_layers=LAYERS,
        n_heads=HEADS,
        n_kv_heads=chosen.kv_heads,
        train_length=TRAIN_LENGTH,
        causal=causal,
    )
    scheme = registry.encoding(name, registry.scheme(name).options(**typed(name, options)), size)
    model = Transformer(chosen, scheme, size, WORDS).double().eval()
    model.load_state_dict(weights | {f"encoding.{key}": value for key, value in (encoding or {}).items()})
    return model


def assert_same(name, options, weights, expected, *, logits=True, **settings):
    """Theirs; and far from it with every token at one place, or the scheme would not matter here."""
    model = copied(name, options, weights, **settings)
    with torch.no_grad():
        found, at_once = (
            (model if logits else model.vectors)(TOKENS, torch.full_like(TOKENS, 3) if still else None)
            for still in (False, True)
        )
    torch.testing.assert_close(found, expected, rtol=0, atol=TOLERANCE)
    if registry.scheme(name).options(**typed(name, options)).reads_positions():
        assert (at_once - expected).abs().amax() > 1000 * TOLERANCE


def theirs(model, **given):
    with torch.no_grad():
        return model(TOKENS, **given)[0]


# Llama and its like


def as_llama(model):
    """Weights of a model that has the blocks of Llama."""
    state = model.state_dict()
    found = {
        "embedding.weight": state["model.embed_tokens.weight"],
        "norm.weight": state["model.norm.weight"],
        "head.weight": state["lm_head.weight"],
    }
    for layer in range(LAYERS):
        at = {key: state[f"model.layers.{layer}.{key}.weight"] for key in PARTS_OF_LLAMA}
        q, k, v, out, gate, up, down, first, second = at.values()
        found |= {
            f"blocks.{layer}.attention_norm.weight": first,
            f"blocks.{layer}.attention.qkv.weight": torch.cat([q, k, v]),
            f"blocks.{layer}.attention.out.weight": out,
            f"blocks.{layer}.feed_forward_norm.weight": second,
            f"blocks.{layer}.feed_forward.wide.weight": torch.cat([gate, up]),
            f"blocks.{layer}.feed_forward.out.weight": down,
        }
    return found


PARTS_OF_LLAMA = (
    *(f"self_attn.{part}_proj" for part in "qkvo"),
    *(f"mlp.{part}_proj" for part in ("gate", "up", "down")),
    "input_layernorm",
    "post_attention_layernorm",
)
SIZES = {
    "vocab_size": WORDS,
    "hidden_size": WIDTH,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KEY_HEADS,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": TRAIN_LENGTH,
    "tie_word_embeddings": False,
    "attn_implementation": "eager",
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
}
SWIGLU = {"n_kv_heads": KEY_HEADS, "activation": Activation.swiglu}
BASE = {"rope_theta": 100.0}  # pairs that turn once in 6, 20, 63 and 199 tokens, so that each is another case
ORIGINAL = BASE | {"original_max_position_embeddings": TRAIN_LENGTH}
LONG = [1.0, 1.5, 2.0, 3.0]
# Of each scheme: rope_parameters of Llama, and the options here.
OF_LLAMA = {
    "rope": (BASE | {"rope_type": "default"}, {}),
    "rope_linear": (BASE | {"rope_type": "linear", "factor": 4.0}, {"factor": 4.0}),
    "rope_proportional": (
        BASE | {"rope_type": "proportional", "partial_rotary_factor": 0.5},
        {"share": 0.5},
    ),
    "rope_by_parts": (ORIGINAL | {"rope_type": "yarn", "factor": 4.0, "attention_factor": 1.0}, {"factor": 4.0}),
    "yarn": (ORIGINAL | {"rope_type": "yarn", "factor": 4.0}, {"factor": 4.0}),
    "llama3": (
        ORIGINAL | {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
        {"factor": 8.0},
    ),
    "rope_dynamic_ntk": (BASE | {"rope_type": "dynamic", "factor": 2.0}, {"factor": 2.0}),
    "longrope": (
        ORIGINAL | {"rope_type": "longrope", "factor": 4.0, "short_factor": [1.0] * 4, "long_factor": LONG},
        {"factor": 4.0, "long": LONG},
    ),
}


@pytest.mark.public("transformers", *OF_LLAMA)
@pytest.mark.parametrize("name", OF_LLAMA)
def test_llama(name):
    parameters, options = OF_LLAMA[name]
    model = awake(LlamaForCausalLM(LlamaConfig(**SIZES, rope_parameters=parameters)))
    assert_same(name, {"base": 100.0} | options, as_llama(model), theirs(model), **SWIGLU)


@pytest.mark.public("transformers", "none", "rnope")
@pytest.mark.parametrize(("name", "without"), [("rnope", [1, 1, 1, 0]), ("none", [0, 0, 0, 0])])
def test_smollm3(name, without):
    """Its list no_rope_layers has 1 for a layer WITH rope."""
    config = SmolLM3Config(**SIZES, rope_parameters=BASE | {"rope_type": "default"}, no_rope_layers=without)
    model = awake(SmolLM3ForCausalLM(config))
    options = {"base": 100.0, "interval": 4} if name == "rnope" else {}
    assert_same(name, options, as_llama(model), theirs(model), **SWIGLU)


@pytest.mark.public("transformers", "window")
def test_window_of_mistral():
    """Rope within the last five tokens; it keeps no first ones."""
    config = MistralConfig(**SIZES, rope_parameters={"rope_theta": 10_000.0, "rope_type": "default"}, sliding_window=5)
    model = awake(MistralForCausalLM(config))
    options = {"width": 5, "sinks": 0, "over": "rope"}
    assert_same("window", options, as_llama(model), theirs(model), **SWIGLU)


# MPT


@pytest.mark.public("transformers", "alibi")
def test_mpt():
    """Its norms have no shift. It builds biases for max_seq_len tokens and no more."""
    config = MptConfig(
        d_model=WIDTH, n_heads=HEADS, n_layers=LAYERS, expansion_ratio=2, max_seq_len=LENGTH, vocab_size=WORDS
    )
    model = awake(MptForCausalLM(config))
    state, shift = model.state_dict(), torch.zeros(WIDTH, dtype=torch.float64)
    words = state["transformer.wte.weight"]
    weights = {"embedding.weight": words, "head.weight": words}
    weights |= {"norm.weight": state["transformer.norm_f.weight"], "norm.bias": shift}
    for layer in range(LAYERS):
        ours, of = f"blocks.{layer}.", f"transformer.blocks.{layer}."
        weights |= {
            f"{ours}attention_norm.weight": state[f"{of}norm_1.weight"],
            f"{ours}attention_norm.bias": shift,
            f"{ours}attention.qkv.weight": state[f"{of}attn.Wqkv.weight"],
            f"{ours}attention.out.weight": state[f"{of}attn.out_proj.weight"],
            f"{ours}feed_forward_norm.weight": state[f"{of}norm_2.weight"],
            f"{ours}feed_forward_norm.bias": shift,
            f"{ours}feed_forward.wide.weight": state[f"{of}ffn.up_proj.weight"],
            f"{ours}feed_forward.out.weight": state[f"{of}ffn.down_proj.weight"],
        }
    settings = {"norm": Norm.layernorm, "activation": Activation.gelu, "d_ff": 4 * WIDTH}
    assert_same("alibi", {}, weights, theirs(model), **settings)


# GPT-2


@pytest.mark.public("transformers", "learned")
def test_gpt2():
    """A table for the whole text. Its linear layers have their weights the other way round."""
    config = GPT2Config(
        n_embd=WIDTH,
        n_layer=LAYERS,
        n_head=HEADS,
        n_inner=INNER,
        n_positions=LENGTH,
        vocab_size=WORDS,
        activation_function="gelu",
        attn_implementation="eager",
        bos_token_id=None,
        eos_token_id=None,
    )
    model = awake(GPT2LMHeadModel(config))
    state = model.state_dict()
    weights = {f"{ours}.weight": state["transformer.wte.weight"] for ours in ("embedding", "head")}
    weights |= {f"norm.{part}": state[f"transformer.ln_f.{part}"] for part in ("weight", "bias")}
    for layer in range(LAYERS):
        for ours, of in {
            "attention_norm": "ln_1",
            "attention.qkv": "attn.c_attn",
            "attention.out": "attn.c_proj",
            "feed_forward_norm": "ln_2",
            "feed_forward.wide": "mlp.c_fc",
            "feed_forward.out": "mlp.c_proj",
        }.items():
            weight, bias = (state[f"transformer.h.{layer}.{of}.{part}"] for part in ("weight", "bias"))
            weights[f"blocks.{layer}.{ours}.weight"] = weight.mT if weight.dim() == 2 else weight
            weights[f"blocks.{layer}.{ours}.bias"] = bias
    settings = {"norm": Norm.layernorm, "activation": Activation.gelu, "bias": True}
    table = {"table": state["transformer.wpe.weight"]}
    assert_same("learned", {"max_positions": LENGTH}, weights, theirs(model), encoding=table, **settings)


# T5


@pytest.mark.public("transformers", "t5")
def test_t5_encoder():
    """Its vectors after the last norm, with a gated feed-forward; q·k as it is. One table for all layers."""
    config = T5Config(
        vocab_size=WORDS,
        d_model=WIDTH,
        d_kv=WIDTH // HEADS,
        d_ff=INNER,
        num_layers=LAYERS,
        num_heads=HEADS,
        relative_attention_num_buckets=8,
        relative_attention_max_distance=20,
        feed_forward_proj="gated-silu",
    )
    model = awake(T5EncoderModel(config))
    state = model.state_dict()
    words = state["shared.weight"]
    weights = {"embedding.weight": words, "head.weight": words, "norm.weight": state["encoder.final_layer_norm.weight"]}
    for layer in range(LAYERS):
        ours, of = f"blocks.{layer}.", f"encoder.block.{layer}.layer."
        qkv = [state[f"{of}0.SelfAttention.{part}.weight"] for part in "qkv"]
        wide = [state[f"{of}1.DenseReluDense.wi_{part}.weight"] for part in (0, 1)]
        weights |= {
            f"{ours}attention_norm.weight": state[f"{of}0.layer_norm.weight"],
            f"{ours}attention.qkv.weight": torch.cat(qkv),
            f"{ours}attention.out.weight": state[f"{of}0.SelfAttention.o.weight"],
            f"{ours}feed_forward_norm.weight": state[f"{of}1.layer_norm.weight"],
            f"{ours}feed_forward.wide.weight": torch.cat(wide),
            f"{ours}feed_forward.out.weight": state[f"{of}1.DenseReluDense.wo.weight"],
        }
    table = {"table": state["encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"]}
    options = {"buckets": 8, "max_distance": 20}
    settings = {"activation": Activation.swiglu, "causal": False, "score_scale": 1.0}
    assert_same("t5", options, weights, theirs(model), logits=False, encoding=table, **settings)
