"""The settings of a run: dataclasses with types, ranges and effects, and the one way from composed YAML to them.

Imports no torch. What conf/ holds is checked against these classes, so a setting has one default and one meaning.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from posbuild import registry, tuned
from posbuild.declaration import Dims, Options, check_range, default_of, option, range_of, typed_form, written_type
from posbuild.errors import ConfigError, first_line, nearest
from posbuild.paths import absolute_path, expanded


class Norm(enum.Enum):
    rmsnorm = "rmsnorm"
    layernorm = "layernorm"


class Activation(enum.Enum):
    relu2 = "relu2"  # squared ReLU
    gelu = "gelu"
    swiglu = "swiglu"


class Schedule(enum.Enum):
    linear = "linear"
    cosine = "cosine"
    constant = "constant"


class WandbMode(enum.Enum):
    auto = "auto"
    online = "online"
    offline = "offline"


class ObjectiveName(enum.Enum):
    next_token = "next_token"
    masked = "masked"


class PositionsName(enum.Enum):
    plain = "plain"
    randomised = "randomised"
    shape = "shape"
    cape = "cape"
    pose = "pose"


class LoggerName(enum.Enum):
    wandb = "wandb"
    none = "none"


class Corpus(enum.Enum):
    sotu = "sotu"
    sanguo = "sanguo"
    stdlib = "stdlib"
    files = "files"
    hf = "hf"


@dataclass(kw_only=True)
class Section:
    """A group of settings; ranges are checked when it is built."""

    def __post_init__(self) -> None:
        name = type(self).__name__.removesuffix("Settings").lower()
        for item in dataclasses.fields(self):
            check_range(name, item, getattr(self, item.name))


@dataclass(kw_only=True)
class ObjectiveSettings(Section):
    name: ObjectiveName = option(
        ObjectiveName.next_token,
        "predict each next token (a causal model), or find masked tokens again from both sides (a bidirectional one)",
    )
    mask_prob: float = option(0.15, "masked: share of the tokens of a window that are to be found", above=0.0, most=0.9)
    mask_replace_prob: float = option(
        0.8, "masked: of these, the share that the mask token stands for in training", least=0.0, most=1.0
    )
    random_replace_prob: float = option(
        0.1,
        "masked: of these, the share that a random token stands for; the rest stay as they are",
        least=0.0,
        most=1.0,
    )

    def scored(self, length: int) -> int:
        """How many of `length` tokens are to be found: all, or the share that is masked, rounded and at least one."""
        return length if self.name is ObjectiveName.next_token else max(1, round(self.mask_prob * length))


@dataclass(kw_only=True)
class PositionsSettings(Section):
    name: PositionsName = option(
        PositionsName.plain,
        "the numbers that tokens get in training: plain ones, or draws of Numbering (posbuild/positions.py)",
    )
    largest: int = option(
        2048,
        "randomised: numbers are drawn below this, 2048 in the paper; no longer text can be read",
        unit="tokens",
        least=2,
    )
    max_shift: int | None = option(
        None, "shape: a window is shifted by 0 to this; null: the train length", unit="tokens", least=1
    )
    global_shift: float = option(
        5.0, "cape: a window is shifted by at most this, to either side; the paper's for text", unit="tokens", least=0.0
    )
    local_shift: float = option(
        0.5,
        "cape: each token is shifted by at most this; up to 0.5 the order is kept",
        unit="tokens",
        least=0.0,
        most=0.5,
    )
    scale: float = option(
        1.03, "cape: all distances of a window are stretched or shrunk by at most this factor", least=1.0
    )
    target_length: int | None = option(
        None, "pose: distances up to this are met; null: 16 train lengths", unit="tokens", least=2
    )

    def shift_in(self, train_length: int) -> int:
        """shape: the largest shift, in tokens."""
        return train_length if self.max_shift is None else self.max_shift

    def target_in(self, train_length: int) -> int:
        """pose: the target length, in tokens."""
        return 16 * train_length if self.target_length is None else self.target_length

    def end(self, train_length: int) -> int:
        """One more than the largest number that training draws, in tokens."""
        ends = {
            PositionsName.randomised: self.largest,
            PositionsName.shape: train_length + self.shift_in(train_length),
            PositionsName.pose: self.target_in(train_length),
        }
        return ends.get(self.name, train_length)

    def decisive(self, train_length: int) -> dict[str, Any]:
        """What decides the numbers, as plain values: what stands for a default is written out, what is not read is left out."""
        content = plain(self) | {
            "max_shift": self.shift_in(train_length),
            "target_length": self.target_in(train_length),
        }
        return {"name": self.name.name} | {name: content[name] for name in OF_POSITIONS[self.name]}


@dataclass(kw_only=True)
class ModelSettings(Section):
    name: str = option("tiny", "the preset, for names and tables")
    d_model: int = option(64, "width of token vectors", unit="channels", least=1)
    n_layers: int = option(4, "Transformer blocks", least=1)
    n_heads: int = option(4, "query heads; divides d_model", least=1)
    n_kv_heads: int | None = option(None, "key/value heads, shared by groups of query heads; null: n_heads", least=1)
    d_ff: int | None = option(
        None,
        "inner width of the feed-forward; null: 4 d_model, 8/3 d_model rounded to a multiple of 8 for swiglu",
        least=1,
    )
    norm: Norm = option(Norm.rmsnorm, "normalisation before each sub-layer and at the end")
    activation: Activation = option(Activation.relu2, "of the feed-forward; relu2 is the squared ReLU")
    bias: bool = option(False, "bias terms in the linear layers")
    tie_embeddings: bool = option(False, "one matrix for token vectors and output")
    dropout: float = option(
        0.0, "on token vectors and each sub-layer's output; attention weights are never dropped", least=0.0, most=0.9
    )
    causal: bool | None = option(
        None, "attend to the past only; false: bidirectional; null: as the objective needs it, true for next_token"
    )
    allow_orderless: bool = option(
        False, "build a bidirectional model even if the scheme cannot tell it the order of tokens"
    )
    score_scale: float | None = option(
        None, "factor on q·k; null: 1/sqrt(head width). Never in a comparison: every scheme has the same", above=0.0
    )

    @property
    def kv_heads(self) -> int:
        """Key/value heads."""
        return self.n_kv_heads or self.n_heads

    @property
    def inner_width(self) -> int:
        """Inner channels of the feed-forward; swiglu's third matrix makes up for its narrower ones."""
        gated = self.activation is Activation.swiglu
        return self.d_ff or (8 * round(self.d_model / 3) if gated else 4 * self.d_model)

    @property
    def scale(self) -> float:
        """The factor on q·k."""
        return self.score_scale or 1 / math.sqrt(self.d_model / self.n_heads)


@dataclass(kw_only=True)
class DataSettings(Section):
    name: Corpus = option(
        Corpus.sotu,
        "State of the Union addresses, the Chinese novel 三国演义, the Python standard library's source, files of one's own, "
        "or a Hugging Face dataset",
    )
    path: str | None = option(
        None,
        "data=files: a file, a folder or a glob of UTF-8 text; data=hf: the name of a dataset, or a folder that holds one",
    )
    config: str | None = option(None, "data=hf: which configuration of the dataset; null: the only or default one")
    split: str = option("train", "data=hf: which split of the dataset")
    column: str = option("text", "data=hf: the column that holds the text; each row of it is a document")
    limit: int = option(
        16_000_000, "data=hf: rows are read in turn until they hold so much text", unit="bytes", least=1
    )
    tokenizer: str | None = option(
        None, "a tokenizer.json of Hugging Face's tokenizers, whose entries are the tokens; null: a token is a byte"
    )
    validation_fraction: float = option(
        0.05, "share of the documents, drawn by a hash of their names, for validation", above=0.0, most=0.5
    )
    test_documents: int | None = option(
        None, "the longest documents are the test set; null: 12, or a tenth of the documents if fewer than 120", least=1
    )

    def tokenizer_content(self) -> bytes | None:
        """What is in the tokenizer file; None where tokens are bytes. Raises ConfigError if it cannot be read."""
        if self.tokenizer is None:
            return None
        try:
            return Path(self.tokenizer).read_bytes()
        except OSError as error:
            raise ConfigError(
                f"data.tokenizer={self.tokenizer} cannot be read ({error.strerror}). Give a tokenizer.json of Hugging Face's "
                "tokenizers, or leave it out: then a token is a byte."
            ) from None

    def decisive(self) -> dict[str, Any]:
        """What decides the tokens, as plain values: the tokenizer by what is in its file, wherever that lies."""
        content = plain(self)
        if self.name is not Corpus.hf:
            for name in OF_HF:
                del content[name]
        file = self.tokenizer_content()
        del content["tokenizer"]
        return content if file is None else content | {"tokenizer": hashlib.sha256(file).hexdigest()}


@dataclass(kw_only=True)
class TrainSettings(Section):
    length: int = option(64, "train length: tokens of a training window", unit="tokens", least=4)
    steps: int = option(3200, "optimiser steps", least=1)
    batch_size: int = option(16, "windows in a batch, over all devices", least=1)
    accumulate: int = option(1, "batches whose gradients are added up for one step", least=1)
    compile: bool = option(False, "torch.compile the model")
    workers: int = option(0, "processes that prepare batches", least=0)
    log_every: int = option(50, "steps between two lines of the log", least=1)
    checkpoint_every: int = option(400, "steps between two checkpoints", least=1)
    validation_windows: int = option(256, "validation windows behind each validation loss", least=1)


@dataclass(kw_only=True)
class OptimSettings(Section):
    lr: float = option(3e-3, "peak rate of AdamW", above=0.0)
    pe_lr_mult: float | None = option(
        None, "times lr for the encoding's own parameters; null: what its declaration states, else 1", above=0.0
    )
    pe_lr_mult_grid: list[float] | None = option(
        None,
        "values of pe_lr_mult that a launch goes on to try, at the best lr of each scheme that learns something; null: it "
        "does not tune. For a sweep over lr, as in experiment=tune",
        above=0.0,
    )
    tuned: str | None = option(
        None, "folder of a study by experiment=tune: lr and pe_lr_mult are those that it found best for the scheme"
    )
    beta1: float = option(0.9, "AdamW's first decay", least=0.0, most=0.9999)
    beta2: float = option(0.99, "AdamW's second decay", least=0.0, most=0.99999)
    weight_decay: float = option(
        0.1, "on matrices of the blocks; never on embeddings, norms, biases or the encoding", least=0.0
    )
    clip: float | None = option(1.0, "largest norm of the gradient; null: no clipping", above=0.0)
    warmup: int = option(100, "steps over which the rate grows from lr/warmup to lr; 0: none", unit="steps", least=0)
    schedule: Schedule = option(
        Schedule.linear, "linear or cosine to final_lr; constant until the last decay_fraction, then linear to final_lr"
    )
    final_lr: float = option(0.0, "rate at the end, times lr", least=0.0, most=1.0)
    decay_fraction: float = option(0.2, "constant: share of the steps in the final decay", above=0.0, most=1.0)


@dataclass(kw_only=True)
class EvalSettings(Section):
    name: str = option("default", "the preset")
    lengths: list[int] | None = option(
        None, "lengths of the length curve; null: multiples of the train length", unit="tokens", least=1
    )
    multiples: list[int] = option([1, 2, 4, 8, 16], "lengths in train lengths", least=1)
    whole_window_tokens: int = option(
        16_384, "least scored tokens a length, whole windows; 0: not measured", unit="tokens", least=0
    )
    fixed_targets: int = option(4096, "scored tokens a length, fixed targets; 0: not measured", unit="tokens", least=0)
    window_control: bool = option(True, "also the length curve with attention cut to the train length")
    recall_passages: int = option(64, "passages behind each recall figure; 0: not measured", least=0)
    order_windows: int = option(512, "windows behind each use-of-order figure; 0: not measured", least=0)
    pseudo_targets: int = option(
        512,
        "objective=masked: tokens behind each pseudo-perplexity, each masked alone; 0: not measured",
        unit="tokens",
        least=0,
    )
    probes: bool = option(True, "what the encoding itself does, without training and as trained")
    cost_rounds: int = option(
        5, "rounds in which this model and one without encoding are timed in turn; 0: cost is not measured", least=0
    )
    batch_tokens: int = option(16_384, "tokens in a batch of the evaluation", unit="tokens", least=1)


@dataclass(kw_only=True)
class TrainerSettings(Section):
    """What is passed on to Lightning's Trainer, by Lightning's names. What doubles a setting of posbuild is in `DOUBLED`."""

    accelerator: str = option("auto", "auto, cpu, gpu, mps, ...; auto takes a GPU where there is one")
    devices: Any = option(1, "devices of one run: a number, a list of their indices, or auto for all")
    strategy: str = option("auto", "how several devices share a run: auto or ddp")
    precision: str | None = option(None, "32-true, bf16-mixed, ...; null: bf16-mixed on a GPU, else 32-true")
    deterministic: Any = option(
        False, "true: refuse operations that are not deterministic; warn: name them; false: neither"
    )
    benchmark: bool | None = option(None, "let cuDNN time its algorithms; null: Lightning decides")
    detect_anomaly: bool = option(False, "name the operation behind a gradient that is not a number; slow")
    profiler: str | None = option(None, "simple or advanced: where the time goes")
    enable_progress_bar: bool | None = option(
        None, "null: a bar in a terminal, a line every train.log_every steps elsewhere"
    )
    enable_model_summary: bool = option(False, "Lightning's table of the model's modules")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_device_choice(self.devices):
            raise ConfigError(
                f"trainer.devices={typed_form(self.devices)} names no devices: give a number of 1 or more, a list of "
                "different indices such as [0,1], or auto for all. Default: 1."
            )
        if self.deterministic not in (True, False, "warn"):
            raise ConfigError(
                f"trainer.deterministic={typed_form(self.deterministic)} must be true, false or warn. Default: false."
            )


def is_device_choice(value: Any) -> bool:
    """Whether devices can be taken by this: a number (-1: all), a list of their indices, or auto."""
    if isinstance(value, list):
        whole = all(type(index) is int and index >= 0 for index in value)
        return bool(value) and whole and len({*value}) == len(value)
    return value == "auto" or (type(value) is int and (value >= 1 or value == -1))


@dataclass(kw_only=True)
class LoggerSettings(Section):
    name: LoggerName = option(LoggerName.wandb, "Weights & Biases, or none")
    mode: WandbMode = option(WandbMode.auto, "auto: online with an API key, else offline; WANDB_MODE wins")
    project: str = option("posbuild", "wandb project")
    entity: str | None = option(None, "wandb team or user; null: the account's own")


@dataclass(kw_only=True)
class Settings:
    """All settings of one run, resolved and checked."""

    scheme: str
    pe: Options
    model: ModelSettings
    data: DataSettings
    train: TrainSettings
    optim: OptimSettings
    eval: EvalSettings
    trainer: dict[str, Any]
    logger: LoggerSettings
    objective: ObjectiveSettings = field(default_factory=ObjectiveSettings)
    positions: PositionsSettings = field(default_factory=PositionsSettings)
    seed: int = 0
    study: str | None = None
    resume: str | None = None

    def __post_init__(self) -> None:
        if self.model.causal is None:
            self.model = dataclasses.replace(self.model, causal=not self.masked)

    @property
    def masked(self) -> bool:
        """Whether the model is trained on masked tokens."""
        return self.objective.name is ObjectiveName.masked

    @property
    def dims(self) -> Dims:
        model = self.model
        return Dims(
            d_model=model.d_model,
            n_layers=model.n_layers,
            n_heads=model.n_heads,
            n_kv_heads=model.kv_heads,
            train_length=self.train.length,
            causal=bool(model.causal),
        )

    @property
    def pe_lr_mult(self) -> float:
        """What the rate of the encoding's own parameters is multiplied by."""
        return registry.scheme(self.scheme).pe_lr_mult if self.optim.pe_lr_mult is None else self.optim.pe_lr_mult

    @property
    def eval_lengths(self) -> list[int]:
        """Lengths of the length curve in tokens, ascending, each once."""
        chosen = self.eval.lengths
        return sorted({each * self.train.length for each in self.eval.multiples} if chosen is None else {*chosen})

    def plain(self) -> dict[str, Any]:
        """Every setting as plain values, as they stand in the record and in wandb; `from_plain` reads them back."""
        content = {item.name: getattr(self, item.name) for item in dataclasses.fields(self)}
        content["pe"] = {"name": content.pop("scheme"), **plain(self.pe)}
        return {name: plain(value) for name, value in content.items()}

    @property
    def decisive(self) -> dict[str, Any]:
        """The settings that decide what training gives, as plain values: what stands for a default is written out, and
        what has no effect beside the others is left out.

        trainer.precision counts as it was asked for: null is one and the same on every machine, though a GPU takes
        bf16-mixed for it and a CPU 32-true. The record says which it was.
        """
        model, optim = self.model, self.optim
        content = {name: plain(getattr(self, name)) for name in ("scheme", "model", "train", "optim", "seed")}
        content["data"] = self.data.decisive()
        content["pe"] = plain(self.pe.resolved(self.dims))
        content["model"] |= {"n_kv_heads": model.kv_heads, "d_ff": model.inner_width, "score_scale": model.scale}
        content["optim"]["pe_lr_mult"] = self.pe_lr_mult if self.pe.has_parameters() else None
        if optim.schedule is not Schedule.constant:
            del content["optim"]["decay_fraction"]
        if self.masked:
            content["objective"] = plain(self.objective)
        if self.positions.name is not PositionsName.plain:
            content["positions"] = self.positions.decisive(self.train.length)
        precision = self.trainer["precision"]
        content["precision"] = PRECISIONS.get(precision, precision)
        for section, name in WITHOUT_EFFECT:
            del content[section][name]
        return content

    @property
    def hash(self) -> str:
        """Eight hexadecimal digits over the settings that decide what training gives."""
        return hashlib.sha256(json.dumps(self.decisive, sort_keys=True).encode()).hexdigest()[:8]

    @property
    def run_name(self) -> str:
        """Name of the run folder."""
        return f"{self.scheme.replace('/', '-')}_s{self.seed}_{self.hash}"


SECTIONS: dict[str, type[Section]] = {
    "objective": ObjectiveSettings,
    "positions": PositionsSettings,
    "model": ModelSettings,
    "data": DataSettings,
    "train": TrainSettings,
    "optim": OptimSettings,
    "eval": EvalSettings,
    "trainer": TrainerSettings,
    "logger": LoggerSettings,
}

# Settings of names, checks and convenience: training gives the same whatever they are.
WITHOUT_EFFECT = (
    ("model", "name"),
    ("model", "allow_orderless"),
    ("train", "workers"),
    ("train", "log_every"),
    ("train", "checkpoint_every"),
    ("optim", "pe_lr_mult_grid"),
    ("optim", "tuned"),
)

# Lightning's short names of precisions.
PRECISIONS = {"64": "64-true", "32": "32-true", "16": "16-mixed", "bf16": "bf16-mixed"}

# Groups that runs from before there was a choice do not have in their settings.
ADDED = ("objective", "positions")

# Settings that only data=hf, or only objective=masked, reads.
OF_HF = ("config", "split", "column", "limit")
OF_MASKED = ("mask_prob", "mask_replace_prob", "random_replace_prob")
# Settings that each choice of position numbers reads.
OF_POSITIONS: dict[PositionsName, tuple[str, ...]] = {
    PositionsName.plain: (),
    PositionsName.randomised: ("largest",),
    PositionsName.shape: ("max_shift",),
    PositionsName.cape: ("global_shift", "local_shift", "scale"),
    PositionsName.pose: ("target_length",),
}

# Types of settings, in words.
TYPES = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "a text",
    "list[int]": "a list of whole numbers",
    "list[float]": "a list of numbers",
}

LARGEST_SEED = 2**32 - 1  # that every random generator takes

# Lightning's own names for what posbuild sets itself: one choice has one place.
DOUBLED = {
    "max_steps": "train.steps",
    "min_steps": "train.steps",
    "max_epochs": "train.steps",
    "min_epochs": "train.steps",
    "accumulate_grad_batches": "train.accumulate",
    "gradient_clip_val": "optim.clip",
    "gradient_clip_algorithm": "optim.clip",
    "log_every_n_steps": "train.log_every",
    "val_check_interval": "train.steps",
    "check_val_every_n_epoch": "train.steps",
    "logger": "logger",
    "default_root_dir": "study",
}


def plain(value: Any) -> Any:
    """Dataclasses and enums to dicts and strings."""
    if dataclasses.is_dataclass(value):
        return {item.name: plain(getattr(value, item.name)) for item in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


structured = functools.cache(OmegaConf.structured)  # the schema of a class; merging into it leaves it as it is


def typed(section: str, kind: type, values: Mapping[str, Any], owner: str = "") -> Any:
    """An object of the dataclass `kind` from plain values. Raises ConfigError for an unknown key, a wrong type or range."""
    known = {item.name: item for item in dataclasses.fields(kind)}
    values = {key: alone_as_list(kind, key, value) for key, value in values.items()}
    for key, value in values.items():
        if key not in known:
            choice = nearest(key, known) if known else "It has no options."
            raise ConfigError(f"{section}.{key}={typed_form(value)} is not a setting{owner}. {choice}")
        if isinstance(value, float) and math.isinf(value):
            raise ConfigError(f"{section}.{key}={value} must be a finite number. Default: {default_of(known[key])}.")
        items = value if isinstance(value, list) else [value]
        if written_type(known[key]).startswith("list[") and any(isinstance(each, list | dict) for each in items):
            raise ConfigError(
                f"{section}.{key}={typed_form(value)} must be a flat list. Default: {default_of(known[key])}."
            )
    try:
        return OmegaConf.to_object(OmegaConf.merge(structured(kind), values))
    except OmegaConfBaseException as error:
        key = str(error.full_key).partition("[")[0].partition(".")[0]
        item = known[key]
        why = (
            f"is not a choice: use {range_of(item)}"
            if item.metadata["choices"]
            else f"has the wrong type: it must be {TYPES[written_type(item).removesuffix(' | None')]}"
        )
        raise ConfigError(f"{section}.{key}={typed_form(values[key])} {why}. Default: {default_of(item)}.") from None


def alone_as_list(kind: type, key: str, value: Any) -> Any:
    """A number where a list is asked for means a list of one: `eval.lengths=64`."""
    annotation = next((written_type(item) for item in dataclasses.fields(kind) if item.name == key), "")
    return [value] if annotation.startswith("list[") and type(value) in (int, float) else value


def options_of(scheme: str, values: Mapping[str, Any]) -> Options:
    """The options object of a scheme from plain values."""
    return typed("pe", registry.scheme(scheme).options, values, owner=f" of pe={scheme}")


def from_config(config: DictConfig) -> Settings:
    """Settings from what Hydra composed, its own node left out. Raises ConfigError.

    Relative paths of data are taken from the present folder, so that they still mean the same when a run is read elsewhere;
    the name of a Hugging Face dataset stays one. With `optim.tuned` rate and multiplier become those that the study found
    best: a run that is read back has the numbers.
    """
    own = OmegaConf.masked_copy(config, [str(name) for name in config if name != "hydra"])
    try:
        content = OmegaConf.to_container(own, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        key = getattr(error, "full_key", None)
        raise ConfigError(f"{key}: " * bool(key) + f"{first_line(error)}.") from None
    settings = from_plain(content)  # type: ignore[arg-type]
    data = settings.data
    if data.path and (data.name is not Corpus.hf or expanded(data.path).is_dir()):
        data.path = absolute_path(data.path, Path.cwd())
    if data.tokenizer is not None:
        data.tokenizer = str(expanded(data.tokenizer))
        data.tokenizer_content()  # the name of the run folder depends on it: that it cannot be read is said here
    if settings.optim.tuned is not None:
        pe = settings.plain()["pe"]
        settings.optim.lr, settings.optim.pe_lr_mult = tuned.best(settings.optim.tuned, pe)
        settings.optim.tuned = str(expanded(settings.optim.tuned))
    return settings


def from_plain(content: Mapping[str, Any]) -> Settings:
    """Settings from plain values: the opposite of `Settings.plain`.

    Raises ConfigError for an unknown name, a wrong type or range. Whether the settings can work together, `check` says.
    """
    known = [item.name for item in dataclasses.fields(Settings) if item.name != "scheme"]
    for key, value in content.items():
        if key not in known:
            raise ConfigError(f"{key}={typed_form(value)} is not a setting. {nearest(key, known)}")
    for key in known:
        if key not in content and key not in ("pe", "study", "resume", *ADDED):
            raise ConfigError(f"{key} is missing from the settings.")
    pe = content.get("pe")
    if not isinstance(pe, Mapping) or "name" not in pe:
        raise ConfigError(
            f"pe={'null' if pe is None else pe} names no scheme. For a model without encoding use pe=none."
        )
    scheme = registry.scheme(str(pe["name"])).name
    options = options_of(scheme, {key: value for key, value in pe.items() if key != "name"})
    sections: dict[str, Any] = {}
    for name, kind in SECTIONS.items():
        values = content.get(name, {} if name in ADDED else None)
        if name == "trainer" and isinstance(values, Mapping):
            refuse_doubles(values)
        if not isinstance(values, Mapping):
            raise ConfigError(
                f"{name}={'null' if values is None else values} is not a group of settings. Choose one of conf/{name}/, or leave it out."
            )
        sections[name] = typed(name, kind, values)
    return Settings(
        scheme=scheme,
        pe=options,
        trainer=plain(sections.pop("trainer")),
        seed=seed_of(content["seed"]),
        study=word("study", content.get("study")),
        resume=word("resume", content.get("resume")),
        **sections,
    )


def refuse_doubles(trainer: Mapping[str, Any]) -> None:
    """Raise ConfigError for what posbuild sets in the Trainer itself."""
    for key, value in trainer.items():
        if key in DOUBLED:
            raise ConfigError(f"trainer.{key}={typed_form(value)} doubles {DOUBLED[key]}. Set {DOUBLED[key]} instead.")


def seed_of(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= LARGEST_SEED:
        raise ConfigError(f"seed={typed_form(value)} must be a whole number from 0 to {LARGEST_SEED}.")
    return value


def word(name: str, value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float | None):
        raise ConfigError(f"{name}={typed_form(value)} must be a text.")
    return None if value is None else str(value)


def check(settings: Settings) -> None:
    """Raise ConfigError for settings that are right each for itself and cannot work together."""
    model, declared = settings.model, registry.scheme(settings.scheme)
    if 1 not in declared.axes:
        raise ConfigError(
            f"pe={settings.scheme} encodes positions of {' or '.join(map(str, declared.axes))} axes, and text has one: a token has no row and column. "
            "Choose a scheme for text (posbuild list), or give it positions in Python (posbuild.scores, posbuild.codes, Transformer)."
        )
    if model.d_model % model.n_heads:
        raise ConfigError(
            f"model.d_model={model.d_model} does not divide into model.n_heads={model.n_heads} heads. Use a multiple of {model.n_heads}."
        )
    if model.n_heads % model.kv_heads:
        raise ConfigError(
            f"model.n_kv_heads={model.n_kv_heads} does not divide model.n_heads={model.n_heads}: each key/value head serves a whole group."
        )
    check_objective(settings)
    both_sides = "objective=masked" if settings.masked else "model.causal=false"
    registry.check_mask(settings.scheme, bool(model.causal), both_sides)
    if not model.causal and declared.orderless and not model.allow_orderless:
        raise ConfigError(
            f"pe={settings.scheme} in a bidirectional model ({both_sides}) leaves it blind to the order of tokens. "
            "Choose another scheme, or set model.allow_orderless=true to see just that."
        )
    settings.pe.check(settings.dims)
    if settings.optim.warmup > settings.train.steps:
        raise ConfigError(
            f"optim.warmup={settings.optim.warmup} is longer than train.steps={settings.train.steps}. Use {settings.train.steps} or less."
        )
    if settings.optim.tuned is not None and settings.optim.pe_lr_mult_grid is not None:
        raise ConfigError(
            f"optim.tuned={settings.optim.tuned} beside optim.pe_lr_mult_grid={typed_form(settings.optim.pe_lr_mult_grid)}: a study "
            "tunes, as experiment=tune does, or trains with what was found. Leave one out."
        )
    if not settings.eval_lengths:
        raise ConfigError(
            "eval.multiples=[] is empty. Give at least one, such as eval.multiples=[1,2], or eval.lengths=[64,128] in tokens."
            if settings.eval.lengths is None
            else "eval.lengths=[] is empty. Give at least one length in tokens, such as eval.lengths=[64,128], or null for eval.multiples."
        )
    check_positions(settings)
    check_data(settings.data)


def check_positions(settings: Settings) -> None:
    """Raise ConfigError for position numbers that the scheme cannot take, or for settings that are not read."""
    chosen, length, name = settings.positions, settings.train.length, settings.positions.name
    for owner, names in OF_POSITIONS.items():
        if owner is not name:
            refuse_unread("positions", chosen, names, owner.name)
    if name is not PositionsName.plain and not settings.pe.reads_positions():
        raise ConfigError(
            f"positions={name.name} changes nothing with pe={settings.scheme}, which goes by the order of the tokens and reads no "
            "position numbers. Leave it out, or choose another scheme."
        )
    if name is PositionsName.shape and registry.scheme(settings.scheme).shift_invariant:
        raise ConfigError(
            f"positions=shape shifts all tokens of a window alike, and pe={settings.scheme} goes by their distances: it changes "
            "nothing. Leave it out, or choose another scheme, such as pe=sinusoidal."
        )
    if name is PositionsName.cape and not settings.pe.takes_fractions():
        raise ConfigError(
            f"positions=cape numbers tokens by fractions, and pe={settings.scheme} looks whole numbers up in a table. Choose "
            "positions=shape, or a scheme that computes, such as pe=sinusoidal or pe=rope."
        )
    end, longest = chosen.end(length), settings.pe.longest(settings.dims)
    if longest is not None and end > longest:
        raise ConfigError(
            f"positions={name.name} draws numbers up to {end - 1}, and pe={settings.scheme} is defined for 0 to {longest - 1}. "
            "Enlarge the table of the scheme, or choose a scheme without one."
        )
    if end < length:
        setting = {PositionsName.randomised: "largest", PositionsName.pose: "target_length"}[name]
        raise ConfigError(
            f"positions.{setting}={end} leaves no number for each of the {length} tokens of a window (train.length). Use "
            f"{length} or more."
        )


def check_data(data: DataSettings) -> None:
    """Raise ConfigError for settings of data that do not go together."""
    if data.name is Corpus.files and not data.path:
        raise ConfigError(
            "data=files needs data.path: a file, a folder or a glob of UTF-8 text, such as data.path='texts/*.txt'."
        )
    if data.name is Corpus.hf and not data.path:
        raise ConfigError(
            "data=hf needs data.path: the name of a Hugging Face dataset, such as data.path=Salesforce/wikitext, or a folder "
            "that holds one."
        )
    if data.name not in (Corpus.files, Corpus.hf) and data.path:
        raise ConfigError(
            f"data.path={data.path} is read by data=files and data=hf only; data={data.name.name} has its own text. Add one "
            "of them."
        )
    if data.name is not Corpus.hf:
        refuse_unread("data", data, OF_HF, "hf")


def check_objective(settings: Settings) -> None:
    """Raise ConfigError for an objective that does not fit the model, or for settings that it does not read."""
    chosen = settings.objective
    if settings.masked and settings.model.causal:
        raise ConfigError(
            "model.causal=true with objective=masked would hide what stands after a masked token, from which it is to be "
            "found. Leave model.causal out, or use objective=next_token."
        )
    if chosen.mask_replace_prob + chosen.random_replace_prob > 1 + 1e-9:
        raise ConfigError(
            f"objective.mask_replace_prob={chosen.mask_replace_prob} and objective.random_replace_prob="
            f"{chosen.random_replace_prob} are more than 1 together. What they leave is the share of tokens that stay."
        )
    if not settings.masked:
        refuse_unread("objective", chosen, OF_MASKED, "masked")


def refuse_unread(group: str, chosen: Any, names: Sequence[str], reader: str) -> None:
    """Raise ConfigError if one of these settings differs from its default: another choice of the group would read it."""
    for item in dataclasses.fields(chosen):
        value = getattr(chosen, item.name)
        if item.name in names and value != item.default:
            raise ConfigError(
                f"{group}.{item.name}={typed_form(value)} is read by {group}={reader} only, and this is "
                f"{group}={chosen.name.name}. Add {group}={reader}, or leave it out."
            )


def check_trainable(settings: Settings) -> None:
    """Raise ConfigError for settings of a model that can be built and cannot be trained, or not even built."""
    check(settings)
    if not settings.model.causal and not settings.masked:
        raise ConfigError(
            "model.causal=false with objective=next_token would show every token its answer. Train a bidirectional model with "
            "objective=masked, or leave model.causal out."
        )
