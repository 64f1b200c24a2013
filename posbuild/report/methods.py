"""Methods in a paragraph ready to paste, written from the records, and BibTeX for what it names."""

from __future__ import annotations

import re
from typing import Any

from posbuild import registry
from posbuild.comparison import statistics
from posbuild.comparison.compare import bytes_per_token, span
from posbuild.declaration import Paper
from posbuild.guide.answers import count_model
from posbuild.report import words
from posbuild.report.tables import Entries, labels_of, runs_of

Content = dict[str, Any]


def paragraph(comparison: Content, budget: Content) -> str:
    """How the numbers of a budget were made, for the methods section of a paper."""
    sentences = (
        _compared(comparison, budget),
        _trained(budget),
        _rates(comparison, budget),
        "Within a seed, all schemes share the order of the data and the initial values of all parameters that they have "
        "in common; the last weights are evaluated.",
        *_measured(comparison, budget),
        _statistics(comparison, budget),
        _software(budget),
    )
    return " ".join(sentence for sentence in sentences if sentence)


def _compared(comparison: Content, budget: Content) -> str:
    known = registry.schemes()
    told = []
    for label in labels_of(comparison, budget):
        name = comparison["labels"][label]
        told.append(f"{label} [{key(known[name].paper, name)}]" if name in known else label)
    model = budget["model"]
    shape = [f"{model[name]} {what}" for name, what in (("n_layers", "layers"), ("n_heads", "heads")) if name in model]
    if "d_model" in model:
        shape.insert(1, f"width {model['d_model']}")
    sizes = f" ({span(budget['parameters'], ',')} parameters)" if budget["parameters"] else ""
    return (
        f"We compare {words.counted(len(told), 'position encoding')}, {words.listed(told)}, in a "
        f"{'causal' if budget['causal'] else 'bidirectional'} Transformer of {words.listed(shape)}{sizes}."
    )


def _trained(budget: Content) -> str:
    train, optim, data = budget["train"], budget["optim"], budget["data"]
    windows = train["batch_size"] * train["accumulate"]
    tokens, per_parameter = span(budget["tokens"], ","), span(budget["tokens_per_parameter"], ".3g")
    split = words.listed(f"{count:,} {name}" for name, count in (data["documents"] or {}).items())
    clip = "" if optim["clip"] is None else f", gradients clipped at norm {optim['clip']:g}"
    peak = f"peak rate {optim['lr']:g}" if not budget["tuned"] else "the peak rate found best for each encoding"
    task = f", {budget['mask_prob']:.0%} of them masked and to be found again" if words.is_masked(budget) else ""
    return (
        f"Each is trained from scratch for {train['steps']:,} steps of {windows} windows of {train['length']} tokens, "
        f"{tokens} tokens in all ({per_parameter} per parameter{task}), on {data['name'] or 'unnamed data'} (SHA-256 {data['sha256']}"
        f"{f'; {split} documents' if split else ''}), with AdamW ({peak}, {optim['schedule']} schedule after "
        f"{words.counted(optim['warmup'], 'step')} of warm-up, β = ({optim['beta1']:g}, {optim['beta2']:g}), weight decay "
        f"{optim['weight_decay']:g}{clip}), with {words.seeds(budget['seeds'])}. "
        f"{_token(data)}"
    )


def _token(data: Content) -> str:
    """What a token is, and what makes its loss one in bits per byte."""
    if not (tokenizer := data["tokenizer"]):
        return "A token is a byte."
    return (
        f"A token is one of the {tokenizer['entries']:,} entries of the tokenizer {tokenizer['file']} (SHA-256 "
        f"{tokenizer['sha256']}), {bytes_per_token(data):.2f} bytes on average in the training documents; a loss in "
        "bits per byte is that of the scored tokens over the bytes that they stand for."
    )


def _rates(comparison: Content, budget: Content) -> str:
    """The rates of the encodings' own parameters, where they are others than the model's."""
    found: dict[float, dict[str, None]] = {}
    for run in runs_of(comparison, budget):
        if run["pe_lr_mult"] not in (None, 1.0) and run["positional_parameters"]:
            found.setdefault(run["pe_lr_mult"], {})[run["label"]] = None
    told = [f"{factor:g} times the peak rate for {words.listed(labels)}" for factor, labels in sorted(found.items())]
    return f"The parameters of an encoding itself have a rate of their own: {words.listed(told)}." if told else ""


def _measured(comparison: Content, budget: Content) -> list[str]:
    """A sentence on each measurement that this budget has."""
    inside, entries = budget["train_length"], Entries(comparison, budget)
    masked, sentences = words.is_masked(budget), []
    if count := _count(comparison, budget, "loss/whole_windows"):
        cut = entries.coordinates("loss/whole_windows", "length", window=inside)
        control = f", and once more with attention cut to {words.in_view(budget)}" if cut else ""
        sentences.append(
            f"We report the loss in nats per {'masked token' if masked else 'token'} on held-out documents: over whole windows of {words.listed(budget['lengths'])} tokens ({count} scored "
            f"tokens a length and seed){control}."
        )
    if count := _count(comparison, budget, "loss/fixed_targets"):
        sentences.append(f"The same {count} target tokens are scored under growing context.")
    if count := _count(comparison, budget, "loss/pseudo"):
        sentences.append(f"The logarithm of pseudo-perplexity is the mean loss of {count} tokens, each masked alone.")
    if count := _count(comparison, budget, "recall/gain"):
        distances = words.listed(entries.coordinates("recall/gain", "distance"))
        sentences.append(
            f"Recall is how far the mean loss of a passage falls if it also stood {distances} tokens before, instead of another "
            f"passage ({count} passages a distance and seed); beyond {inside} tokens it counts for schemes that recall inside."
        )
    if count := _count(comparison, budget, "order/change"):
        scored = (
            "a masked token in the middle when the others" if masked else "the last token when the tokens before it"
        )
        sentences.append(f"Use of order is the change of the loss on {scored} are reordered ({count} windows).")
    if any(measure == "cost/ratio" for measure, _ in entries.places()):
        sentences.append(
            "Speed and memory are given over those of the same model without encoding, in the same process."
        )
    return sentences


def _count(comparison: Content, budget: Content, measure: str) -> str:
    """What the means of a measure were taken over; empty where that is not known."""
    counts = sorted(
        {
            entry["count"]
            for entry in comparison["summary"]
            if (entry["budget"], entry["measure"]) == (budget["number"], measure) and entry["count"]
        }
    )
    return words.listed(f"{count:,}" for count in counts) if len(counts) < 3 else f"{counts[0]:,} to {counts[-1]:,}"


def _statistics(comparison: Content, budget: Content) -> str:
    margin, alpha = comparison["margin"], statistics.ALPHA
    not_learned = f"A run whose validation loss ends above that of {count_model(budget)} is not compared."
    if words.is_masked(budget):
        not_learned += (
            " That model counts in the training documents what stands between the two, and leans on each of them alone "
            "where they were seldom seen together."
        )
    if len(budget["seeds"]) == 1:
        return (
            f"With one seed, differences are indications; their {statistics.LEVEL:.0%} intervals are over documents "
            f"({statistics.DRAWS:,} paired bootstrap draws). {not_learned}"
        )
    return (
        f"Intervals over seeds are Student t intervals of {statistics.LEVEL:.0%}. Two schemes are compared by their differences "
        f"paired by seed: one is better if a t test at {alpha:.0%} rejects a difference of zero, and they are equivalent if two "
        f"one-sided t tests at {alpha / 2:.1%} place it inside ±{margin:g} nats/token; p values are corrected by Holm's method "
        f"over all pairs of one measure at one place. Inside the train length a pair whose gap still moved by more than "
        f"{margin:g} nats/token in the last half of training is called still learning. {not_learned}"
    )


SOFTWARE = {"posbuild": "posbuild", "torch": "PyTorch", "lightning": "Lightning", "python": "Python"}


def _software(budget: Content) -> str:
    facts = budget["environment"]
    commits = [commit[:12] + commit[40:] for commit in facts.get("commit", []) if commit]  # 40 digits, and -dirty
    built_from = {"posbuild": f" (commit {words.listed(commits)})" if commits else ""}
    told = [
        f"{shown} {words.listed(facts[name])}{built_from.get(name, '')}"
        for name, shown in SOFTWARE.items()
        if facts.get(name)
    ]
    places = (("device", ""), ("threads", "threads "), ("precision", "precision "))
    where = ", ".join(f"{shown}{words.listed(facts[name])}" for name, shown in places if facts.get(name))
    return f"Made with {words.listed(told)}{f' on {where}' if where else ''}." if told else ""


# --- BibTeX ----------------------------------------------------------------------------------------------------------


def key(paper: Paper, name: str) -> str:
    """A key such as press2022alibi: the first author, the year and the scheme."""
    author = re.split(r" et al\.?| and |,", paper.authors)[0].split()[-1]
    return _plain(f"{author}{paper.year}{name}")


def bibtex(comparison: Content) -> str:
    """An entry for each scheme that posbuild knows, for the text of each budget, and for posbuild."""
    known = registry.schemes()
    names = sorted({name for name in comparison["labels"].values() if name in known})
    entries = [_paper(known[name].paper, name) for name in names]
    texts = {(budget["data"]["name"], budget["data"]["sha256"]): budget["data"] for budget in comparison["budgets"]}
    entries += [_text(data) for data in texts.values()]
    versions = sorted(
        {str(each) for budget in comparison["budgets"] for each in budget["environment"].get("posbuild", [])}
    )
    entries.append(
        _entry("software", "posbuild", title="posbuild", author="{The posbuild authors}", version=", ".join(versions))
    )
    return "\n\n".join(entries)


def _paper(paper: Paper, name: str) -> str:
    authors = _escaped(paper.authors.replace(" et al.", " and others"))
    facts = {"eprint": paper.arxiv, "archiveprefix": "arXiv" if paper.arxiv else ""}
    return _entry("misc", key(paper, name), title=_escaped(paper.title), author=authors, year=str(paper.year), **facts)


def _text(data: Content) -> str:
    name = data["name"] or "unnamed"
    title = data["source"] if data["source"] and name != "files" else name  # of files it is a path
    return _entry("misc", f"data{_plain(name)}", title=_escaped(title), note=f"SHA-256 of the text: {data['sha256']}")


def _entry(kind: str, name: str, **fields: str) -> str:
    fields["title"] = f"{{{fields['title']}}}"  # keeps its capitals
    return "\n".join(
        [f"@{kind}{{{name},", *(f"  {field} = {{{text}}}," for field, text in fields.items() if text), "}"]
    )


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


def _escaped(text: str) -> str:
    """Text in which nothing is a command of LaTeX."""
    return re.sub(r"([&%$#_])", r"\\\1", re.sub(r"[\\{}]", "", text))
