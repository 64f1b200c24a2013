"""ALiBi: a penalty on the scores that grows with distance, with a fixed slope for each head."""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace

from posbuild.declaration import ActsOn, Dims, Options, Paper, Scheme, option
from posbuild.errors import ConfigError


class Form(enum.Enum):
    """causal: -slope (i - j). symmetric: -slope |i - j|. asymmetric: other slopes for keys after the query than before it.
    split: half of the heads see the keys up to the query alone, the others those from it on."""

    causal = "causal"
    symmetric = "symmetric"
    asymmetric = "asymmetric"
    split = "split"


@dataclass(kw_only=True)
class AlibiOptions(Options):
    form: Form | None = option(
        None,
        "for a bidirectional model: symmetric, which cannot tell left from right, asymmetric, with slopes of its own to the "
        "right, or split, where half of the heads look to each side; null: symmetric there, causal behind a causal mask",
        choices=Form,
    )
    learn_slopes: bool = option(False, "learn the slopes (kept positive), starting at the fixed ones")
    per_head: bool = option(True, "a slope for each head, or one for all: the geometric mean of the heads' slopes")

    def form_in(self, dims: Dims) -> Form:
        """The form in a model of these sizes."""
        return self.form or (Form.causal if dims.causal else Form.symmetric)

    def resolved(self, dims: Dims) -> AlibiOptions:
        """Behind a causal mask the symmetric form is the causal one."""
        form = self.form_in(dims)
        return replace(self, form=Form.causal if dims.causal and form is Form.symmetric else form)

    def has_parameters(self) -> bool:
        return self.learn_slopes

    def check(self, dims: Dims) -> None:
        if self.form is Form.causal and not dims.causal:
            raise ConfigError(
                "pe.form=causal rewards keys after the query, which a bidirectional model does not mask. "
                "Use pe.form=symmetric, or pe.form=asymmetric or split, which tell left from right."
            )
        if self.form in (Form.asymmetric, Form.split) and dims.causal:
            raise ConfigError(
                f"pe.form={self.form.name} has slopes for keys after the query, which a causal model masks. Use pe.form=causal."
            )
        if self.form is Form.split and dims.n_heads % 2:
            raise ConfigError(
                f"pe.form=split has half of the heads look to each side, and model.n_heads={dims.n_heads} is odd. Use an even "
                "number of heads, or pe.form=asymmetric."
            )


def slopes(n_heads: int) -> list[float]:
    """The slopes of the heads, positive (paper, section 3).

    2^(-8h/H) for h = 1..H if H is a power of two; else those of the power of two below, then every second one of twice that
    power, as in the authors' code.
    """
    below = 1 << (n_heads.bit_length() - 1)
    even = [2.0 ** (-8 * h / below) for h in range(1, below + 1)]
    return even if below == n_heads else even + slopes(2 * below)[0::2][: n_heads - below]


SCHEME = Scheme(
    name="alibi",
    summary="a fixed penalty on the scores, linear in distance, with a slope for each head",
    options=AlibiOptions,
    maths="posbuild.encodings.alibi:Alibi",
    acts_on=ActsOn.scores,
    learns="nothing (slopes with learn_slopes)",
    beyond="any length; loss stays flat, far tokens are recalled little",
    cost="a bias by distance",
    used_by=("BLOOM", "MPT", "Falcon-RW"),
    paper=Paper(
        title="Train Short, Test Long: Attention with Linear Biases Enables Input Length Extrapolation",
        authors="Press et al.",
        year=2022,
        arxiv="2108.12409",
        where="section 3",
    ),
    compared_with=("transformers", "x-transformers"),
    shift_invariant=True,
)
