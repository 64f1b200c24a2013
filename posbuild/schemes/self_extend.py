"""Self-Extend: rope within a neighbour window w, and positions in groups of g beyond it: i//g - j//g + w - w//g.

It was made to be applied to a model trained with rope, with one softmax over the scores of both kinds. The released
code uses w = 1024 where the original length is 4096, and g = 8; the default window keeps that share. Where g does not
divide w the files of the released code differ: those of LLaMA and Mistral shift by w - w/g, a fraction of a token (but for
flash attention of one query), those of Phi and newer ones by w - w//g, as here. Its setting `scale_base`, off unless it is given, is `log_n` with that length for the original
one.
"""

from __future__ import annotations

from dataclasses import dataclass

from posbuild.declaration import ActsOn, Dims, Paper, Scheme, option
from posbuild.schemes.rerope import NEEDS_A_MASK, NearFarOptions


@dataclass(kw_only=True)
class SelfExtendOptions(NearFarOptions):
    window: int | None = option(
        None,
        "distances below it are those of rope; null: a quarter of original_length, as 1024 of 4096 in the released code",
        unit="tokens",
        least=1,
    )
    group: int = option(8, "beyond the window this many tokens in a row share a position", unit="tokens", least=1)

    def window_in(self, dims: Dims) -> int:
        return max(self.original(dims) // 4, 1) if self.window is None else self.window


SCHEME = Scheme(
    name="self_extend",
    summary="rope with positions in groups beyond a window of neighbours",
    options=SelfExtendOptions,
    maths="posbuild.encodings.self_extend:SelfExtend",
    acts_on=ActsOn.attention,
    learns="nothing",
    beyond="any length; distances grow a group slower beyond the window",
    cost="two products of queries and keys in each layer, and keys turned twice for each chunk of queries",
    used_by=("none known; applied to LLaMA 2, Mistral, Phi-2 and Gemma after training",),
    paper=Paper(
        title="LLM Maybe LongLM: Self-Extend LLM Context Window Without Tuning",
        authors="Jin et al.",
        year=2024,
        arxiv="2401.01325",
        where="section 3.2; defaults as in the released code, datamllab/LongLM",
    ),
    compared_with=("datamllab/LongLM",),
    causal_only=NEEDS_A_MASK,
)
