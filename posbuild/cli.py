"""The command line: `posbuild train|compare|plan|evaluate|generate|guide|publish|list|show|check`, of which `train` is
`python train.py`.

NAME=VALUE are settings, --flags belong to the command. What a command needs is imported when it runs: `--help`, `list`
and completion take no torch.
"""

from __future__ import annotations

import argparse
import dataclasses
import io
import os
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import posbuild
from posbuild.errors import ConfigError, RunError, nearest

REFUSED, INTERRUPTED = 2, 130  # exit statuses
COMMANDS = ("train", "compare", "plan", "evaluate", "generate", "guide", "publish", "list", "show", "check")


def train() -> int:
    """`python train.py ...`."""
    return reporting(lambda: _train(sys.argv[1:], ["python", sys.argv[0]]))


def main() -> int:
    """`posbuild ...`; returns the exit status."""
    arguments = sys.argv[1:]
    program = ["python", "-m", "posbuild"] if Path(sys.argv[0]).name == "__main__.py" else ["posbuild"]
    if arguments[:1] == ["train"]:
        return reporting(lambda: _train(arguments[1:], [*program, "train"]))
    if arguments[:1] in (["-sc"], ["--shell-completion"]):
        return reporting(lambda: _complete(arguments))
    if arguments[:1] == ["guide"]:  # its KEY=VALUE may stand behind a flag
        chosen = guide_parser().parse_intermixed_args(arguments[1:])
    else:
        chosen = parser().parse_args(arguments)
    return reporting(lambda: carry_out(chosen))


def carry_out(chosen: argparse.Namespace) -> int:
    take_in(getattr(chosen, "modules", []))
    return chosen.run(chosen)


def reporting(command: Callable[[], int]) -> int:
    """Run a command; an error that a person can mend is one message on stderr and exit status 2."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # letters that the terminal cannot show
    try:
        return command()
    except (ConfigError, RunError) as error:
        print(f"posbuild: {error}", file=sys.stderr)
        return REFUSED
    except BrokenPipeError:  # `posbuild list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return INTERRUPTED


def parser() -> argparse.ArgumentParser:
    whole = argparse.ArgumentParser(
        prog="posbuild",
        description="Build, train, measure and compare position encodings of Transformers.",
        epilog="Settings of train: posbuild train --help. Schemes: posbuild list.",
    )
    whole.add_argument("--version", action="version", version=f"posbuild {posbuild.__version__}")
    commands = whole.add_subparsers(title="commands", metavar="COMMAND", required=True)
    own = [importing(add_help=False)]
    commands.add_parser("train", help="train, measure and compare: posbuild train pe=alibi", add_help=False)

    command = commands.add_parser("compare", parents=own, help="make a comparison again from what lies on disk")
    command.add_argument(
        "folders", nargs="+", type=Path, metavar="FOLDER", help="study folders (outputs/STUDY) and run folders"
    )
    command.add_argument(
        "--out", type=Path, metavar="DIR", help="where to write it; else into the one folder given, or comparison/"
    )
    command.set_defaults(run=_compare)

    command = commands.add_parser(
        "plan",
        help="what a difference needs: seeds, steps, tokens",
        description="Say how many seeds, steps and evaluation tokens a difference between two schemes needs at the train "
        "length, and what difference the study as it is can show.",
    )
    command.add_argument("folder", type=Path, metavar="STUDY", help="a study folder, outputs/STUDY")
    command.add_argument(
        "--difference",
        type=float,
        default=0.02,
        metavar="NATS",
        help="the difference to find, nats/token (default 0.02)",
    )
    command.set_defaults(run=_plan)

    command = commands.add_parser(
        "evaluate",
        parents=own,
        help="measure a finished run again, or more",
        description="Measure a finished run again, or more; new numbers replace old ones of the same place.",
    )
    command.add_argument("folder", type=Path, metavar="RUN", help="a run folder, outputs/STUDY/RUN")
    command.add_argument(
        "overrides", nargs="*", metavar="eval.NAME=VALUE", help="eval=GROUP and eval.*; else as it was measured"
    )
    command.set_defaults(run=_evaluate)

    command = commands.add_parser("generate", parents=own, help="text that a trained model writes after a prompt")
    command.add_argument("folder", type=Path, metavar="RUN", help="a run folder, outputs/STUDY/RUN")
    command.add_argument("--prompt", metavar="TEXT", help="what to go on from; else standard input")
    command.add_argument(
        "--tokens", type=int, default=256, metavar="N", help="how many tokens to draw, bytes as a rule; 256"
    )
    command.add_argument("--temperature", type=float, default=1.0, metavar="X", help="0: the most probable token; 1")
    command.add_argument("--top-k", type=int, metavar="K", help="draw among the K most probable tokens")
    command.add_argument(
        "--top-p", type=float, metavar="P", help="draw among the fewest tokens that have this probability together"
    )
    command.add_argument("--seed", type=int, default=0, metavar="N", help="the same seed draws the same text; 0")
    command.set_defaults(run=_generate)

    commands.add_parser("guide", help="which encoding for which situation, with the evidence", add_help=False)

    command = commands.add_parser(
        "publish",
        help="a wandb report and workspace view of a study",
        description="Build a wandb report and a saved workspace view of a study and save both, each time anew. Needs the "
        "package wandb-workspaces, an API key and uploaded runs; without the last two only their specification is written, "
        "STUDY/publish.json, and the exit status is 1.",
    )
    command.add_argument("folder", type=Path, metavar="STUDY", help="a study folder, outputs/STUDY")
    command.add_argument("--entity", metavar="NAME", help="wandb team or user; else that of the runs")
    command.add_argument("--project", metavar="NAME", help="wandb project; else that of the runs")
    command.set_defaults(run=_publish)

    command = commands.add_parser(
        "list", parents=own, help="the schemes", description="The schemes, or those that are all of these."
    )
    command.add_argument("--acts-on", metavar="PLACE", help="nothing, input, 'queries and keys', scores or attention")
    command.add_argument(
        "--axes", type=int, default=1, metavar="N", help="for positions of so many axes; 1, text, if not given"
    )
    command.add_argument("--beyond", action="store_true", help="defined beyond the train length")
    command.add_argument("--bidirectional", action="store_true", help="tells the order of tokens without a causal mask")
    command.add_argument("--learned", action="store_true", help="learns parameters")
    command.add_argument("--markdown", action="store_true", help="as a Markdown table")
    command.set_defaults(run=_list)

    command = commands.add_parser(
        "check",
        parents=own,
        help="whether schemes are what their papers say, in ten parts",
        description="Run the conformance suite on these schemes, or on all, and say what fails and why. Needs posbuild[check].",
    )
    command.add_argument("names", nargs="*", metavar="NAME", help="schemes; all if none is named")
    kind = command.add_mutually_exclusive_group()
    kind.add_argument("--slow", action="store_true", help="what takes more than ten seconds, too")
    kind.add_argument("--markdown", action="store_true", help="a line a part, as a Markdown table")
    kind.add_argument("--mutate", action="store_true", help="plant faults in the schemes and say which are not caught")
    command.set_defaults(run=_check)

    command = commands.add_parser("show", parents=own, help="one scheme: options, source, code, picture")
    command.add_argument("name", metavar="NAME")
    shape = command.add_mutually_exclusive_group()
    shape.add_argument("--yaml", action="store_true", help="its conf/pe/NAME.yaml")
    shape.add_argument(
        "--picture", type=Path, metavar="FILE", help="draw the picture into FILE (.png, .svg) rather than here"
    )
    command.set_defaults(run=_show)
    return whole


def importing(**options: Any) -> argparse.ArgumentParser:
    """A parser of the flag that names modules with schemes of one's own: no setting and no file can."""
    flags = argparse.ArgumentParser(**options)
    flags.add_argument(
        "--import", dest="modules", action="append", default=[], metavar="MODULE", help="a module that declares schemes"
    )
    return flags


def take_in(modules: Sequence[str]) -> None:
    from posbuild import registry

    for module in modules:
        registry.import_schemes(module)


def guide_parser() -> argparse.ArgumentParser:
    from posbuild.guide.constraints import CONSTRAINTS
    from posbuild.guide.scenarios import Situation, names

    facts = ", ".join(item.name for item in dataclasses.fields(Situation))
    command = argparse.ArgumentParser(
        prog="posbuild guide",
        description="Which encoding for which situation: a pick or none, from published results and from a study of one's own.",
        epilog=f"Keys: {facts}, {', '.join(CONSTRAINTS)}. Scenarios: {', '.join(names())}.",
    )
    command.add_argument(
        "words",
        nargs="*",
        metavar="STUDY | KEY=VALUE",
        help="a study folder (outputs/latest), a situation of one's own",
    )
    command.add_argument("--scenario", metavar="NAME", help="one scenario in full")
    command.set_defaults(run=_guide)
    return command


def _train(arguments: Sequence[str], program: Sequence[str]) -> int:
    flags = importing(add_help=False, allow_abbrev=False)
    named, arguments = flags.parse_known_args(arguments)
    take_in(named.modules)
    program = [*program, *(word for module in named.modules for word in ("--import", module))]
    if {"-h", "--help"} & {*arguments}:
        return _usage(arguments)
    from posbuild.launch import launch

    return launch(arguments, program)


def _usage(arguments: Sequence[str]) -> int:
    from posbuild import show
    from posbuild.paths import conf_dir

    flags = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    flags.add_argument("--config-dir", "-cd", type=Path, action="append", default=[])
    print(show.usage([conf_dir(), *flags.parse_known_args(arguments)[0].config_dir], _width() or 120))
    return 0


def _width() -> int | None:
    """Columns of the terminal; None where what is printed goes elsewhere."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _complete(arguments: Sequence[str]) -> int:
    """Completion in a shell, asked by Hydra's script: the commands first, then the settings of train."""
    line = os.environ.get("COMP_LINE", "")
    words = line.split()
    if len(words) < 2 or (len(words) == 2 and not line.endswith(" ") and words[1] != "train"):
        print(*(command for command in COMMANDS if command.startswith(words[1] if len(words) == 2 else "")))
        return 0
    if words[1] == "guide":
        before, start = (words[-1], "") if line.endswith(" ") else words[-2:]
        print(*_guide_completions(before, start))
    if words[1] != "train":
        return 0
    os.environ["COMP_LINE"] = re.sub(r"^(\s*\S+\s+)train(\s+|$)", r"\1", line)
    return _train(arguments, ["posbuild", "train"])


def _guide_completions(before: str, start: str) -> list[str]:
    """Words that `posbuild guide` takes next: a scenario after its flag, else the flag and the keys of a situation."""
    from posbuild.guide.constraints import CONSTRAINTS
    from posbuild.guide.scenarios import Situation, names

    keys = [f"{name}=" for name in (*(item.name for item in dataclasses.fields(Situation)), *CONSTRAINTS)]
    return [word for word in (names() if before == "--scenario" else ["--scenario", *keys]) if word.startswith(start)]


def _compare(chosen: argparse.Namespace) -> int:
    from posbuild.launch import compare

    out = chosen.out or (chosen.folders[0] if len(chosen.folders) == 1 else Path("comparison"))
    compare(chosen.folders, out)
    return 0


def _plan(chosen: argparse.Namespace) -> int:
    from posbuild.comparison.planning import plan
    from posbuild.report.plan import print_plan

    print_plan(plan(chosen.folder, chosen.difference))
    return 0


def _evaluate(chosen: argparse.Namespace) -> int:
    from posbuild.remeasure import remeasure

    return remeasure(chosen.folder, chosen.overrides)


def _generate(chosen: argparse.Namespace) -> int:
    from posbuild.generate import generate

    if chosen.prompt is None and sys.stdin.isatty():
        raise ConfigError("posbuild generate: give --prompt TEXT, or a text on standard input.")
    generate(
        chosen.folder,
        sys.stdin.buffer.read() if chosen.prompt is None else chosen.prompt.encode(errors="surrogateescape"),
        tokens=chosen.tokens,
        temperature=chosen.temperature,
        top_k=chosen.top_k,
        top_p=chosen.top_p,
        seed=chosen.seed,
        out=sys.stdout,
    )
    return 0


def _guide(chosen: argparse.Namespace) -> int:
    from posbuild.guide import guide

    typed = [word for word in chosen.words if "=" in word]
    studies = [Path(word) for word in chosen.words if "=" not in word]
    if len(studies) > 1:
        raise ConfigError(f"posbuild guide takes one study, and was given {len(studies)}. posbuild compare joins them.")
    comparison = guide.read(studies[0]) if studies else None
    found = guide.advice(comparison, typed, chosen.scenario, *studies)
    print(guide.text(found, _width(), whole=bool(typed or chosen.scenario)))
    return 0


def _publish(chosen: argparse.Namespace) -> int:
    from posbuild.publish import publish

    return publish(chosen.folder, chosen.entity, chosen.project)


def _list(chosen: argparse.Namespace) -> int:
    from posbuild import show

    schemes = show.chosen(
        chosen.acts_on,
        axes=chosen.axes,
        beyond=chosen.beyond,
        bidirectional=chosen.bidirectional,
        learned=chosen.learned,
    )
    print(show.markdown(schemes) if chosen.markdown else show.table(schemes, _width()))
    return 0


def _check(chosen: argparse.Namespace) -> int:
    missing = [package for package in ("pytest", "hypothesis") if find_spec(package) is None]
    if missing:
        raise ConfigError(f"posbuild check needs {' and '.join(missing)}: pip install 'posbuild[check]'.")
    from posbuild.conformance import mutation, plugin

    if chosen.mutate:
        return mutation.mutate(chosen.names)
    return plugin.check(chosen.names, slow=chosen.slow, short=chosen.markdown)


def _show(chosen: argparse.Namespace) -> int:
    from posbuild import registry, show

    known = registry.all_schemes()
    if chosen.name not in known:
        raise ConfigError(f"posbuild show {chosen.name}: this is not a known scheme. {nearest(chosen.name, known)}")
    scheme = known[chosen.name]
    if chosen.yaml:
        print(show.yaml(scheme), end="")
    else:
        if chosen.picture is None:
            print(show.description(scheme) + "\n", flush=True)
        print(show.picture(scheme, chosen.picture))
    return 0
