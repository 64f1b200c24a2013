"""KERPLE, logarithmic: a learned penalty on the scores that grows with the logarithm of the distance."""

from __future__ import annotations

from dataclasses import dataclass

from posbuild.declaration import ActsOn, Options, Paper, Scheme, option


@dataclass(kw_only=True)
class KerpleLogOptions(Options):
    divided: bool = option(
        False,
        "divide the bias by the root of the head width, as the scores are, by equation 1 of the paper; the authors' code "
        "does not",
    )


SCHEME = Scheme(
    name="kerple_log",
    summary="a learned penalty on the scores, by the logarithm of the distance",
    options=KerpleLogOptions,
    maths="posbuild.encodings.kerple_log:KerpleLog",
    acts_on=ActsOn.scores,
    learns="2 x heads numbers",
    beyond="any length; far distances differ little",
    cost="a bias by distance",
    used_by=("none known",),
    paper=Paper(
        title="KERPLE: Kernelized Relative Positional Embedding for Length Extrapolation",
        authors="Chi et al.",
        year=2022,
        arxiv="2205.09921",
        where="equation 1 and the logarithmic variant of section 4; scale and start as in the released code",
    ),
    compared_with=("chijames/KERPLE",),
    shift_invariant=True,
)
