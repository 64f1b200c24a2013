"""What `posbuild list`, `posbuild show` and `--help` print, in words. Only a picture imports torch."""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib.util
import re
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import posbuild
from posbuild import registry
from posbuild.declaration import ANY, ActsOn, Dims, Scheme, default_of, range_of
from posbuild.errors import ConfigError, nearest
from posbuild.paths import shown

if TYPE_CHECKING:
    from torch import Tensor

COLUMNS = ("scheme", "acts on", "learns", "beyond the train length", "cost", "used by", "paper")


def facts(scheme: Scheme) -> tuple[str, ...]:
    """One cell a column of COLUMNS."""
    used_by, source = ", ".join(scheme.used_by), scheme.paper.short + beside_paper(scheme)
    return (scheme.name, scheme.acts_on.value, scheme.learns, scheme.beyond, scheme.cost, used_by, source)


def beside_paper(scheme: Scheme) -> str:
    """What a table says after the paper of a scheme that was found equal to no code of others."""
    return "" if scheme.compared_with else f"; checked {against(scheme)}"


def against(scheme: Scheme) -> str:
    """What its maths was compared with, in words."""
    if scheme.compared_with:
        return f"against the paper and {', '.join(scheme.compared_with)}"
    own = registry.declared()[scheme.name][1].startswith("posbuild.schemes.")
    return "against the paper only" if own or scheme.reference else "against nothing: it names no reference"


def chosen(
    acts_on: str | None = None,
    *,
    axes: int = 1,
    beyond: bool = False,
    bidirectional: bool = False,
    learned: bool = False,
) -> list[Scheme]:
    """The schemes for positions of so many axes that, with their default options, act there, are defined beyond the train
    length, tell the order of tokens without a causal mask, and learn parameters, as far as each is asked for. Raises
    ConfigError for an unknown place.
    """
    places = [place.value for place in ActsOn]
    if acts_on is not None and acts_on not in places:
        raise ConfigError(f"--acts-on {acts_on}: no scheme acts there. {nearest(acts_on, places)}")
    return [
        scheme
        for scheme in registry.all_schemes().values()
        if axes in scheme.axes
        and acts_on in (None, scheme.acts_on.value)
        and not (beyond and scheme.options().sizes(ANY) is not None)
        and not (bidirectional and (scheme.causal_only or scheme.orderless))
        and not (learned and not scheme.options().has_parameters())
    ]


def table(schemes: Sequence[Scheme], width: int | None = None) -> str:
    """These schemes: a line each where `width` columns hold that (None: any), else a paragraph each."""
    if not schemes:
        return "no scheme is all of that"
    rows = [COLUMNS, *map(facts, schemes)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    if width is None or max(map(len, lines)) <= width:
        return "\n".join(lines)
    paragraphs = []
    labels = ("acts on", "learns", "beyond L", "cost", "used by", "paper")
    for scheme in schemes:
        name, *cells = facts(scheme)
        paragraphs.append(filled(f"{name}  {scheme.summary}", width, 4))
        paragraphs += [filled(f"    {label:10}{cell}", width, 14) for label, cell in zip(labels, cells, strict=True)]
        paragraphs.append("")
    return "\n".join([*paragraphs, "L is the train length. One scheme in full: posbuild show NAME"])


def filled(text: str, width: int, indent: int) -> str:
    """The text in lines of at most `width` columns, where its words let it; further lines start after `indent` blanks."""
    return textwrap.fill(text, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)


def markdown(schemes: Sequence[Scheme]) -> str:
    """The table of these schemes for the README."""
    rows = []
    for scheme in schemes:
        name, *middle, paper = facts(scheme)
        if scheme.paper.arxiv:
            paper = f"[{scheme.paper.authors} {scheme.paper.year}](https://arxiv.org/abs/{scheme.paper.arxiv})"
            paper += beside_paper(scheme)
        rows.append((f"`{name}`", *middle, paper))
    return "\n".join(f"| {' | '.join(row)} |" for row in (COLUMNS, ["---"] * len(COLUMNS), *rows))


def description(scheme: Scheme) -> str:
    """All that is declared of one scheme, with the file and line of its code."""
    paper = scheme.paper
    lines = [
        f"{scheme.name}: {scheme.summary}",
        "",
        f"  acts on      {scheme.acts_on.value}",
        *([] if scheme.axes == (1,) else [f"  positions    on {' or '.join(map(str, scheme.axes))} axes"]),
        f"  learns       {scheme.learns}",
        f"  beyond L     {scheme.beyond}",
        f"  cost         {scheme.cost}",
        f"  used by      {', '.join(scheme.used_by)}",
        f"  mask         {'causal only: ' + scheme.causal_only if scheme.causal_only else 'causal or bidirectional'}"
        + (" (blind to order if bidirectional)" if scheme.orderless else ""),
        f"  scores       {'stay' if scheme.shift_invariant else 'change'} when all positions are shifted, with the default options",
        f"  decoding     {'gives what reading the whole text at once gives' if scheme.prefix_stable else 'beyond the original length gives other outputs than reading the whole text at once'}",
        f"  paper        {paper.authors} {paper.year}: {paper.title}" + (f", {paper.where}" if paper.where else ""),
    ]
    if paper.arxiv:
        lines.append(f"               https://arxiv.org/abs/{paper.arxiv}")
    lines.append(f"  checked      {against(scheme)}")
    declaration, maths = places(scheme)
    lines += [f"  declaration  {declaration}", f"  maths        {maths}"]
    if scheme.pe_lr_mult != 1:
        lines.append(f"  rate         its parameters learn at {scheme.pe_lr_mult:g} times optim.lr (optim.pe_lr_mult)")
    options = dataclasses.fields(scheme.options)
    lines += ["", "options (pe.NAME=VALUE):" if options else "options: none"]
    for item in options:
        lines.append(f"  {item.name} = {default_of(item)}")
        lines += textwrap.wrap(comment(item), 100, initial_indent="      ", subsequent_indent="      ")
    return "\n".join(lines)


def comment(item: dataclasses.Field) -> str:
    """What a field is for, with its unit and range."""
    limits = [part for part in (item.metadata["unit"], range_of(item)) if part and part != "any"]
    return item.metadata["effect"] + (f" ({', '.join(limits)})" if limits else "")


def places(scheme: Scheme) -> tuple[str, str]:
    """file:line of the declaration and of the class with the maths, read from the source: importing it would import torch."""
    module, _, name = scheme.maths.partition(":")
    maths = next(
        f"{path}:{node.lineno}" for path, node in _nodes(module) if isinstance(node, ast.ClassDef) and node.name == name
    )
    declared = next(
        f"{path}:{node.lineno}"
        for path, node in _nodes(registry.declared()[scheme.name][1])
        if isinstance(node, ast.Call) and any(_names(word, scheme.name) for word in node.keywords)
    )
    return declared, maths


def _nodes(module: str) -> Iterator[tuple[Path, ast.AST]]:
    spec = importlib.util.find_spec(module)
    assert spec is not None and spec.origin is not None
    path = Path(spec.origin)
    return ((shown(path), node) for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def _names(keyword: ast.keyword, name: str) -> bool:
    return keyword.arg == "name" and isinstance(keyword.value, ast.Constant) and keyword.value.value == name


# --- YAML ------------------------------------------------------------------------------------------------------------


def yaml(scheme: Scheme) -> str:
    """The content of conf/pe/NAME.yaml."""
    where = f", {scheme.paper.where}" if scheme.paper.where else ""
    header = textwrap.wrap(f"{scheme.name}: {scheme.summary}. {scheme.paper.short}{where}".rstrip(".") + ".", 110)
    header.append(f"Code: {' and '.join(_inside(place) for place in places(scheme))}")
    return "".join(f"# {line}\n" for line in header) + f"name: {scheme.name}\n" + fields_as_yaml(scheme.options)


def _inside(place: str) -> str:
    """A place in the source without its line, for lines move; within posbuild from the package on."""
    path, root = Path(place.rpartition(":")[0]).resolve(), Path(posbuild.__file__).parent.parent
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name


def fields_as_yaml(kind: type) -> str:
    """Every field of a class of settings with its default, under a comment that says effect, unit and range."""
    blocks = []
    for item in dataclasses.fields(kind):
        words = textwrap.wrap(comment(item), 110, initial_indent="# ", subsequent_indent="#   ")
        blocks.append("\n".join([*words, f"{item.name}: {default_of(item)}"]) + "\n")
    return "".join(f"\n{block}" for block in blocks)


# --- help ------------------------------------------------------------------------------------------------------------

HELP = """\
posbuild trains a Transformer with a position encoding, measures what the
encoding did and cost, and compares.

  python train.py pe=alibi                           one run and its page
  python train.py -m pe=none,rope,alibi seed=0,1,2   a study
  python train.py -m 'pe=glob(*)'                    a study of every scheme
  python train.py experiment=starter                 a study as a file
  python train.py objective=masked pe=t5             an encoder
  python train.py -m pe=rope,alibi study=NAME        what a study still lacks
  python train.py resume=outputs/STUDY/RUN           a run that was cut short
  python train.py debug=smoke pe=alibi logger=none   all of it in seconds

Choices (pe is the position encoding; * is taken where nothing is typed):

{choices}

Every setting with its value: --cfg job. Any is typed so: train.steps=1000.

Flags: -m runs every combination of comma lists; --info, --config-dir,
completion and hydra.* work as in every Hydra application (--hydra-help).
Schemes: posbuild list, posbuild show NAME. --import MODULE adds your own.
A folder given with --config-dir runs no code but that of Hydra's plug-ins
(launchers, callbacks, loggers), which it can start with arguments of its own:
trust it as far as those."""


def usage(folders: Sequence[Path], width: int) -> str:
    """What `train --help` prints: examples, and a line for each choice that the folders of YAML files offer."""
    found = {file.relative_to(folder): file for folder in folders for file in folder.glob("*/*.yaml")}
    # Scenarios are of `posbuild guide`.
    files = sorted((name, file) for name, file in found.items() if name.parent != Path("scenario"))
    taken = set(re.findall(r"^  - (\w+: \w+)", (folders[0] / "config.yaml").read_text(encoding="utf-8"), re.MULTILINE))
    lines = [
        filled(
            f"{'*' if f'{name.parent}: {name.stem}' in taken else ' '} {f'{name.parent}={name.stem}':20}  {purpose(file)}",
            width,
            24,
        )
        for name, file in files
    ]
    return HELP.format(choices="\n".join(lines))


def purpose(file: Path) -> str:
    """The first sentence of the comment at the head of a YAML file."""
    comment = re.match(r"(?:# @package.*\n)?((?:#.*\n)*)", file.read_text(encoding="utf-8"))
    assert comment is not None  # it matches no comment too
    text = " ".join(line.lstrip("# ") for line in comment[1].splitlines())
    return text.partition(". ")[0].removeprefix(f"{file.stem}: ").rstrip(".")


# --- pictures --------------------------------------------------------------------------------------------------------

TOKENS, HEADS, WIDTH = 32, 4, 32  # of what is drawn: positions, heads, channels of the code
SHADES = "·░▒▓█"


def picture(scheme: Scheme, file: Path | None = None) -> str:
    """What the encoding does, drawn: as a PNG in `file` if that is given, else in characters. Returns text to print.

    For an encoding at the input its codes; for one that adds a bias by position that bias; for the others what queries and
    keys that are all alike give: the weights where scores depend on content, else the scores.
    """
    values, what = _values(scheme)
    if file is not None:
        _draw(values, what, scheme.name, file)
        return f"picture: {file}"
    cells = [cell for row in values[0] for cell in row if cell is not None]
    low, high = min(cells), max(cells)
    shade = functools.partial(_shade, low=low, high=high)
    rows = ["".join(2 * shade(cell) for cell in row).rstrip() for row in values[0]]
    return "\n".join([f"{what} ('{shade(low)}' {low:.3g} to '{shade(high)}' {high:.3g})", *rows])


def _shade(cell: float | None, low: float, high: float) -> str:
    if cell is None:
        return " "
    return SHADES[round((cell - low) / (high - low) * (len(SHADES) - 1))] if high > low else SHADES[-1]


def _values(scheme: Scheme) -> tuple[list[list[list[float | None]]], str]:
    """One grid, or one a head, and what it shows. What lies after the query of a causal model is None."""
    import torch

    from posbuild import api
    from posbuild.attention import exact
    from posbuild.bias import OfContent, Positional
    from posbuild.model import init_parameters
    from posbuild.model.scores import hooked

    heads = 1 if scheme.acts_on is ActsOn.input else HEADS
    dims = Dims(d_model=WIDTH, n_layers=1, n_heads=heads, n_kv_heads=heads, train_length=TOKENS, causal=True)
    encoding = registry.encoding(scheme.name, scheme.options(), dims)
    init_parameters(encoding, seed=0)
    generator = torch.Generator().manual_seed(0)
    # A table that starts at zero would show nothing: it is drawn with values it might learn.
    state = {
        name: value.detach() if value.any() else torch.randn(value.shape, generator=generator)
        for name, value in encoding.named_parameters()
    }
    learned = ", drawn at random since they are learned" if state else ""
    positions = _places(scheme.options().number_of_axes())
    if scheme.acts_on is ActsOn.input:
        codes = api.codes(scheme.name, positions, WIDTH, state=state)
        return [codes.tolist()], f"the codes{learned}; a row a position, a column a channel"
    encoding.load_state_dict(state)
    where = positions[None]
    bias = encoding.at_scores(where, where, 0, encoding.prepare(where))
    alike = torch.full((1, HEADS, TOKENS, dims.head_dim), 0.0 if isinstance(bias, Positional) else 1.0)
    vectors = torch.randn(1, TOKENS, WIDTH, generator=generator)  # for schemes that read them
    weighed, given = isinstance(bias, OfContent), hooked(encoding, alike, alike, where, where, x=vectors)
    found = exact.weights(*given)[0] if weighed else exact.scores(*given)[0]
    if weighed:  # the first token has nothing but itself to look at: a weight of 1, beside which others are all alike
        found = found / found.abs().amax(dim=-1, keepdim=True)
    grids: list[list[list[float | None]]] = [
        [[cell if key <= query else None for key, cell in enumerate(row)] for query, row in enumerate(head)]
        for head in found.tolist()
    ]
    alone = f"the {'weights' if weighed else 'scores'} of equal queries and keys"
    alone += (", as shares of the largest in a row" if weighed else "") + learned
    what = f"what is added to the scores{learned}" if isinstance(bias, Positional) else alone
    return grids, f"{what}; head 1 of {HEADS}, a row a query, a column a key"


def _places(axes: int) -> Tensor:
    """Positions of the tokens that are drawn: counted, or those of the smallest square or cube with room for them, row by row."""
    import torch

    places = torch.arange(TOKENS)
    if axes == 1:
        return places
    side = next(side for side in range(TOKENS) if side**axes >= TOKENS)
    return torch.stack([places // side**axis % side for axis in reversed(range(axes))], dim=-1)


def _draw(values: list[list[list[float | None]]], what: str, name: str, file: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.2 * len(values) + 0.8, 3.8), layout="constrained")
    for number, (axes, grid) in enumerate(
        zip(figure.subplots(1, len(values), squeeze=False)[0], values, strict=True), 1
    ):
        image = axes.imshow([[float("nan") if cell is None else cell for cell in row] for row in grid], cmap="viridis")
        axes.set(title=f"head {number}" if len(values) > 1 else name, xlabel="key" if len(values) > 1 else "channel")
        figure.colorbar(image, ax=axes, shrink=0.7)
    figure.axes[0].set_ylabel("query" if len(values) > 1 else "position")
    figure.suptitle(f"{name}: {what.partition(';')[0]}")
    try:
        figure.savefig(file, format=file.suffix[1:] or "png", dpi=110)  # else it would add to the name
    except (OSError, ValueError) as error:
        raise ConfigError(f"--picture {file}: cannot be written: {error}.") from None
