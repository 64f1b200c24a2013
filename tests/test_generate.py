"""`posbuild generate`: prompts of any text, characters written whole, and what it refuses."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import torch

from posbuild import cli
from posbuild.data.vocabulary import vocabulary_of
from posbuild.errors import ConfigError
from posbuild.generate import generate
from posbuild.model import model_of
from posbuild.overrides import settings_of
from posbuild.training.load import load, write_settings
from posbuild.training.run import save_weights
from tests.data.made import byte_level_bpe

HOW = {"tokens": 40, "temperature": 1.0, "top_k": None, "top_p": None, "seed": 0}


def run_folder(folder: Path, scheme: str) -> Path:
    """A run folder with weights as they are drawn for a new model, which gives every byte the same probability."""
    settings = settings_of(f"pe={scheme}", "model.n_layers=1")
    folder.mkdir()
    write_settings(folder, settings, "a command")
    save_weights(folder / "weights.pt", model_of(settings))
    return folder


def always(folder: Path, text: str) -> None:
    """Change the weights so that the bytes of `text` follow each other, round and round (all of them distinct)."""
    state = torch.load(folder / "weights.pt", weights_only=True)
    tokens = torch.tensor(list(text.encode()))
    state["embedding.weight"].zero_()
    state["embedding.weight"][tokens, torch.arange(len(tokens))] = 1.0
    state["head.weight"][tokens.roll(-1), torch.arange(len(tokens))] = 100.0
    torch.save(state, folder / "weights.pt")


def written(folder: Path, prompt: bytes, **how) -> str:
    out = io.StringIO()
    generate(folder, prompt, out=out, **HOW | how)
    return out.getvalue()


def test_the_prompt_comes_first_and_the_same_seed_writes_the_same(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", "rope")
    prompt = "We the People, 我们, مرحبا"
    one, same, other = (written(folder, prompt.encode(), seed=seed) for seed in (1, 1, 2))
    assert one == same != other and one.startswith(prompt) and one.endswith("\n")


def test_characters_of_several_bytes_are_written_whole(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", "none")
    always(folder, "猫é!")
    assert written(folder, b"!", tokens=12, temperature=0) == "!猫é!猫é!\n"
    assert written(folder, "猫é!".encode()[:2], tokens=4, temperature=0) == "猫é!\n"  # a prompt cut inside a character
    assert written(folder, b"!", tokens=2, temperature=0) == "!\ufffd\n"  # a text cut inside one


def test_a_text_ends_with_the_table_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = run_folder(tmp_path / "run", "learned")
    written(folder, b"x" * 60, tokens=40)
    assert "Ended after 5 tokens: the encoding is defined for 64." in capsys.readouterr().err
    with pytest.raises(ConfigError, match=r"The prompt has 65 tokens \(bytes\).* defined for 64. Give 64 or fewer"):
        written(folder, b"x" * 65)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"tokens": 0}, "--tokens 0 is out of range: it must be at least 1"),
        ({"temperature": -0.5}, "--temperature -0.5 is out of range"),
        ({"temperature": float("nan")}, "--temperature nan is out of range"),
        ({"top_k": 0}, "--top-k 0 is out of range"),
        ({"top_p": 0.0}, "--top-p 0.0 is out of range: it must be above 0 and at most 1"),
        ({"top_p": 1.5}, "--top-p 1.5 is out of range"),
        ({"seed": -1}, "--seed -1 is out of range"),
    ],
)
def test_values_out_of_range_are_refused_by_their_flag(how: dict, words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=words):
        written(tmp_path / "nothing", b"x", **how)


def test_the_command_reads_its_prompt_from_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run_folder(tmp_path / "run", "alibi")

    def said(text: str, *arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["posbuild", "generate", str(folder), "--tokens", "3", *arguments])
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        status = cli.main()
        out, err = capsys.readouterr()
        return status, out, err

    status, piped, _ = said("猫追老鼠")
    assert status == 0 and piped.startswith("猫追老鼠")
    assert said("", "--prompt", "猫追老鼠") == (0, piped, "")
    status, out, err = said("")
    assert (status, out) == (2, "") and err == (
        "posbuild: The prompt is empty. Give some text: --prompt TEXT, or on standard input.\n"
    )
    (folder / "weights.pt").unlink()
    status, out, err = said("x")
    assert status == 2 and "has no weights.pt: its training has not ended" in err and "Traceback" not in err


def test_a_run_with_a_tokenizer_writes_its_tokens_though_the_file_is_gone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = byte_level_bpe(tmp_path / "bpe.json", ["猫 chases 猫 chases the mouse"] * 5, 270)
    settings = settings_of("pe=learned", "model.n_layers=1", f"data.tokenizer={file}")
    folder = tmp_path / "run"
    folder.mkdir()
    write_settings(folder, settings, "a command")
    save_weights(folder / "weights.pt", model_of(settings))
    file.unlink()
    text = written(folder, "the 猫".encode(), tokens=30)
    assert text.startswith("the 猫") and text == written(folder, "the 猫".encode(), tokens=30)
    model, own = load(folder)
    vocabulary = vocabulary_of(own.data)
    assert model.vocab_size == vocabulary.size > 256
    cat = vocabulary.encode("猫".encode(), "x")
    assert len(cat) == 1  # so the prompt below has a token for three bytes
    assert written(folder, "猫".encode() * 64, tokens=1).startswith("猫" * 64)
    with pytest.raises(ConfigError, match="The prompt has 65 tokens, and the encoding of .* is defined for 64"):
        written(folder, "猫".encode() * 65)
    with pytest.raises(ConfigError, match=r"the prompt is not UTF-8 \(at byte 0\)"):
        written(folder, b"\xff")
