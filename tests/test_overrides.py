"""What a person types: jobs, or one message that names the setting as typed, its value and what would work."""

from __future__ import annotations

from pathlib import Path

import pytest

from posbuild import registry
from posbuild.errors import ConfigError
from posbuild.overrides import Plan, plan, take_apart
from posbuild.paths import absolute_path


def planned(*arguments: str) -> Plan:
    return plan(take_apart(arguments))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["pe=alibbi"], ["pe=alibbi", "Nearest: 'alibi'", "sinusoidal"]),
        (["-m", "pe=rope,alibbi"], ["pe=alibbi", "Nearest: 'alibi'"]),
        (["-m", "pe=glob(z*)"], ["pe=glob(z*)", "alibi"]),
        (["pe="], ["pe= ", "alibi"]),
        (["pe=null"], ["pe=null", "use pe=none"]),
        (["~pe"], ["~pe", "Use pe=none"]),
        (["~seed"], ["~seed", "seed=VALUE"]),
        (["pe.name=zzz"], ["pe.name=zzz", "pe=zzz is not a known scheme", "alibi"]),
        (["pe.name=alibi"], ["pe.name=alibi", "pe=alibi"]),
        (["pe={base: 3}"], ["base", "alibi"]),
        (["+pe=rope"], ["+pe=rope", "write pe=rope"]),
        (["pe=alibi", "pe.slop=1"], ["pe.slop=1", "pe=alibi", "learn_slopes"]),
        (["pe=alibi", "+pe.slop=1"], ["pe.slop=1", "pe=alibi", "learn_slopes"]),
        (["pe=rope", "pe.bse=3"], ["pe.bse=3", "Nearest: 'base'"]),
        (["pe=none", "pe.base=3"], ["pe.base=3", "pe=none", "no options"]),
        (["pe=rope", "+pe.base=3"], ["+pe.base=3", "write pe.base=3"]),
        (["model=huge"], ["model=huge", "medium", "tiny"]),
        (["model=null"], ["model=null", "tiny"]),
        (["debug=smoek"], ["debug=smoek", "Nearest: 'smoke'"]),
        (["model.dmodel=3"], ["model.dmodel=3", "Nearest: 'd_model'"]),
        (["sed=1"], ["sed=1", "Nearest: 'seed'"]),
        (["+foo=1"], ["+foo=1", "not a setting"]),
        (["lr=0.1"], ["lr=0.1", "optim.lr"]),
        (["base=3"], ["base=3", "pe.base"]),
        (["alibi"], ["alibi", "pe=alibi"]),
        (["model.d_model=abc"], ["model.d_model=abc", "a whole number", "64"]),
        (["train.steps=10.5"], ["train.steps=10.5", "a whole number"]),
        (["model.causal=perhaps"], ["model.causal=perhaps", "true"]),
        (["model.norm=batch"], ["model.norm=batch is not a choice: use one of rmsnorm, layernorm. Default: rmsnorm."]),
        (["optim.lr=fast"], ["optim.lr=fast has the wrong type: it must be a number. Default: 0.003."]),
        (["optim.clip=big"], ["optim.clip=big", "must be a number"]),
        (["model.name=[a]"], ["model.name=[a]", "must be a text"]),
        (
            ["pe=rope", "pe.layout=halv"],
            ["pe.layout=halv is not a choice: use one of half, interleaved. Default: half."],
        ),
        (["model.n_layers=null"], ["model.n_layers=null", "4"]),
        (["optim.lr=-1"], ["optim.lr=-1", "> 0"]),
        (["optim.lr=nan"], ["optim.lr=nan", "> 0"]),
        (["optim.weight_decay=inf"], ["optim.weight_decay=inf", "finite"]),
        (["pe=rope", "pe.fraction=2"], ["pe.fraction=2", "> 0 and <= 1"]),
        (["seed=x"], ["seed=x", "whole number"]),
        (["seed=-1"], ["seed=-1", "whole number"]),
        (["seed=18446744073709551616"], ["seed=18446744073709551616", "0 to 4294967295"]),
        (["seed=true"], ["seed=true", "whole number"]),
        (["trainer.devices=0"], ["trainer.devices=0", "1 or more", "auto"]),
        (["trainer.devices=[]"], ["trainer.devices=[]", "[0,1]"]),
        (["trainer.devices=[0,0]"], ["trainer.devices=[0,0]", "different"]),
        (["trainer.devices=-2"], ["trainer.devices=-2"]),
        (["trainer.devices=true"], ["trainer.devices=true"]),
        (["trainer.devices=all"], ["trainer.devices=all", "auto"]),
        (["trainer.deterministic=maybe"], ["trainer.deterministic=maybe", "true, false or warn"]),
        (["trainer.num_nodes=2"], ["trainer.num_nodes=2", "not a setting"]),
        (["eval.lengths=0"], ["eval.lengths=[0]", ">= 1"]),
        (["eval.lengths=[64,-64]"], ["eval.lengths=[64,-64]", "each must be >= 1", "Default: null"]),
        (["eval.multiples=[0]"], ["eval.multiples=[0]", "each must be >= 1", "Default: [1,2,4,8,16]"]),
        (["optim.clip=0"], ["optim.clip=0", "> 0", "Default: 1.0"]),
        (["model.d_ff=0"], ["model.d_ff=0", ">= 1", "Default: null"]),
        (["eval.lengths=[64,a]"], ["eval.lengths=[64,a]", "a list of whole numbers", "Default: null"]),
        (["eval.lengths=[[64]]"], ["eval.lengths=[[64]]", "flat list"]),
        (["eval.lengths={64: 1}"], ["eval.lengths={64: 1}", "flat list"]),
        (["data.tokenizer=''"], ["data.tokenizer=/", "cannot be read (Is a directory)"]),
        (["eval.lengths=64,128"], ["eval.lengths=64,128", "eval.lengths=[64,128]"]),
        (["-m", "eval.lengths=64,128"], ["eval.lengths=64", "eval.lengths=128", "[64,128]"]),
        (["-m", "seed=0,0"], ["seed=0", "one run"]),
        (["-m", "pe=rope", "optim.pe_lr_mult=1,10"], ["optim.pe_lr_mult=1", "optim.pe_lr_mult=10", "one run"]),
        (["-m", "model.name=a,b"], ["model.name=a", "one run"]),
        (["pe=rope,alibi"], ["pe=rope,alibi", "-m"]),
        (["seed=range(0,3)"], ["seed=range(0,3)", "-m"]),
        (["-m", "optim.lr=interval(0.1,1)"], ["range(FIRST,LAST)"]),
        (["experiment=starter,starter"], ["experiment=starter,starter", "one after another"]),
        (["-m", "experiment=starter,starter"], ["experiment=starter,starter", "one after another"]),
        (["experiment=[starter]"], ["experiment=[starter]", "experiment=NAME"]),
        (["experiment=startr"], ["experiment=startr", "Nearest: 'starter'"]),
        (["trainer.max_steps=5"], ["trainer.max_steps=5", "train.steps"]),
        (["+trainer.max_epochs=5"], ["trainer.max_epochs=5", "train.steps"]),
        (["trainer.gradient_clip_val=1"], ["trainer.gradient_clip_val=1", "optim.clip"]),
        (["trainer.acelerator=cpu"], ["trainer.acelerator=cpu", "Nearest: 'accelerator'"]),
        (["-m", "hydra.sweeper._target_=my.Sweeper"], ["hydra.sweeper._target_=my.Sweeper"]),
        (["hydra.nonsense=3"], ["hydra.nonsense", "nonsense"]),
        (["pe.base=猫"], ["pe.base=猫", "'猫'"]),
        (["--config-dir", "/nowhere/conf"], ["--config-dir", "/nowhere/conf"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_one_message(arguments: list[str], words: list[str]) -> None:
    with pytest.raises(ConfigError) as error:
        planned(*arguments)
    for word in words:
        assert word in str(error.value)
    assert "\n" not in str(error.value)


def test_a_length_alone_is_a_list_of_one() -> None:
    assert planned("eval.lengths=64").jobs[0].settings.eval_lengths == [64]
    assert planned("eval.multiples=2").jobs[0].settings.eval_lengths == [128]


def test_flags_and_settings_in_any_order() -> None:
    seeds = [job.settings.seed for job in planned("pe=rope", "-m", "seed=0,1").jobs]
    assert seeds == [0, 1]


def test_a_sweep_expands_as_hydra_does_and_glob_takes_every_scheme() -> None:
    jobs = planned("-m", "pe=rope,alibi", "seed=0,1", "optim.lr=1e-3").jobs
    assert [(job.settings.scheme, job.settings.seed) for job in jobs] == [
        ("rope", 0),
        ("rope", 1),
        ("alibi", 0),
        ("alibi", 1),
    ]
    assert {job.settings.optim.lr for job in jobs} == {1e-3}
    assert len({job.folder for job in jobs}) == 4
    assert [job.settings.scheme for job in planned("-m", "pe=glob(*)").jobs] == [*registry.schemes()]


PATHS = ["a b", "a,b", "[a] {b} (c)", "文 本/*.txt", "it's", 'a"b', "a=b", "007", "~x", "a:b", "back\\slash", "$HOME"]


@pytest.mark.parametrize("path", PATHS)
def test_a_path_is_taken_as_typed(path: str) -> None:
    job = planned("data=files", f"data.path=/tmp/{path}", f"study={path.replace('/', '-')}").jobs[0]
    assert job.settings.data.path == f"/tmp/{path}"
    assert job.settings.study == path.replace("/", "-")
    assert job.folder == Path("outputs", path.replace("/", "-"), job.settings.run_name)
    typed = take_apart([f"resume={path}"])
    assert typed.value("resume") == path


@pytest.mark.parametrize("setting", ["data.tokenizer=~nosuchuser/t.json", "optim.tuned=~nosuchuser/s"])
def test_the_home_folder_of_nobody_is_a_name_like_any_other(setting: str) -> None:
    with pytest.raises(ConfigError, match=rf"{Path.cwd()}/~nosuchuser/"):
        planned(setting)
    assert planned("data=hf", "data.path=~nosuchuser/x").jobs[0].settings.data.path == "~nosuchuser/x"


def test_a_path_may_be_quoted_and_may_be_null() -> None:
    assert planned("data=files", "data.path='/tmp/a, b'").jobs[0].settings.data.path == "/tmp/a, b"
    assert planned("data.path=null").jobs[0].settings.data.path is None


def test_under_m_commas_part_paths_unless_something_has_the_whole_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    paths = [job.settings.data.path for job in planned("-m", "data=files", "data.path=文,b c").jobs]
    assert paths == [str(tmp_path / "文"), str(tmp_path / "b c")]
    Path("文,b c").touch()
    assert [job.settings.data.path for job in planned("-m", "data=files", "data.path=文,b c").jobs] == [
        str(tmp_path / "文,b c")
    ]


def test_a_sweep_over_tokenizers_may_have_bytes_among_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("猫 1.json", "b.json"):
        Path(name).write_text(name, encoding="utf-8")
    jobs = planned("-m", "data.tokenizer=null,猫 1.json,b.json").jobs
    assert [job.settings.data.tokenizer for job in jobs] == [
        None,
        str(tmp_path / "猫 1.json"),
        str(tmp_path / "b.json"),
    ]
    assert len({job.folder for job in jobs}) == 3


def test_a_glob_that_names_something_is_taken_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "a, b='猫' [1]"
    folder.mkdir()
    (folder / "x.txt").touch()
    jobs = planned("-m", "seed=0,1", "data=files", f"data.path={folder.name}/*.txt").jobs
    assert {job.settings.data.path for job in jobs} == {absolute_path(f"{folder}/*.txt", "/")}


def test_a_path_in_a_yaml_file_is_taken_as_written(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    text = "defaults: [files, _self_]\npath: \"/tmp/a, [b] {c}='猫' (1)\"\n"
    (tmp_path / "data" / "odd.yaml").write_text(text, encoding="utf-8")
    for flags in ([], ["-m"]):
        jobs = planned("--config-dir", str(tmp_path), *flags, "data=odd").jobs
        assert [job.settings.data.path for job in jobs] == ["/tmp/a, [b] {c}='猫' (1)"]


def test_an_experiment_sets_study_and_seed_and_cannot_resume(tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    text = "# @package _global_\nstudy: '文, 1'\nseed: 3\n"
    (tmp_path / "experiment" / "mine.yaml").write_text(text, encoding="utf-8")
    (tmp_path / "experiment" / "on.yaml").write_text("# @package _global_\nresume: x\n", encoding="utf-8")
    typed = take_apart(["--config-dir", str(tmp_path), "experiment=mine"]).with_study()
    (job,) = plan(typed).jobs
    assert (job.folder.parent, job.settings.study, job.settings.seed) == (Path("outputs/文, 1"), "文, 1", 3)
    with pytest.raises(ConfigError, match="resume=x .* Type it"):
        planned("--config-dir", str(tmp_path), "experiment=on")


@pytest.mark.parametrize("multirun", [[], ["-m"]])
def test_an_absurd_number_of_lengths_is_refused_before_it_is_read(multirun: list[str], tmp_path: Path) -> None:
    many = f"[{','.join(map(str, range(1, 1002)))}]"
    (tmp_path / "eval").mkdir()
    (tmp_path / "eval" / "many.yaml").write_text(f"defaults: [default, _self_]\nlengths: {many}\n", encoding="utf-8")
    for arguments in ([f"eval.lengths={many}"], ["--config-dir", str(tmp_path), "eval=many"]):
        with pytest.raises(ConfigError, match=r"^eval\.lengths has 1001 values, and a list may have 1000\."):
            planned(*multirun, *arguments)


def test_a_relative_path_is_taken_from_the_folder_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments in (["data.path=texts/*.txt"], ["-m", "data.path=texts/*.txt", "seed=0"]):
        assert planned("data=files", *arguments).jobs[0].settings.data.path == str(tmp_path / "texts" / "*.txt")


def test_a_folder_of_ones_own_adds_choices(tmp_path: Path) -> None:
    (tmp_path / "pe").mkdir()
    (tmp_path / "pe" / "slow_rope.yaml").write_text("defaults: [rope, _self_]\nbase: 500000.0\n", encoding="utf-8")
    (tmp_path / "pe" / "wrong.yaml").write_text("defaults: [rope, _self_]\nbse: 1\n", encoding="utf-8")
    settings = planned("--config-dir", str(tmp_path), "pe=slow_rope").jobs[0].settings
    assert (settings.scheme, settings.pe.base) == ("rope", 500000.0)  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match=r"pe\.bse=1.*Nearest: 'base'"):
        planned("--config-dir", str(tmp_path), "pe=wrong")


def test_folders_named_by_hydra_are_found_before_it_runs(tmp_path: Path) -> None:
    names = ["hydra.sweep.subdir=${hydra.job.num}_${hydra:runtime.choices.pe}", f"hydra.sweep.dir={tmp_path}/a, b"]
    found = planned("-m", "pe=rope,none", *names)
    assert [job.folder for job in found.jobs] == [tmp_path / "a, b" / "0_rope", tmp_path / "a, b" / "1_none"]
    assert found.study == tmp_path / "a, b"
    alone = planned("pe=rope", f"hydra.run.dir={tmp_path}/x")
    assert alone.study == alone.jobs[0].folder == tmp_path / "x"


def test_a_launch_has_a_name_of_its_own_unless_the_environment_gives_one(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (take_apart([]).with_study().value("study") for _ in range(2))
    assert first != second
    monkeypatch.setenv("POSBUILD_LAUNCH", "日本 1")
    assert take_apart([]).with_study().value("study") == "日本 1"
    assert take_apart(["study=mine"]).with_study().value("study") == "mine"
    assert take_apart(["study=null"]).with_study().overrides == ["study='日本 1'"]
    assert take_apart(["study=null"]).with_study().settings == ["study=日本 1"]


@pytest.mark.parametrize(
    ("file", "content", "choice", "words"),
    [
        ("hydra/callbacks/mine.yaml", "a:\n  _target_: os.system\n", "hydra/callbacks=mine", ["hydra.callbacks.a._target_=os.system"]),
        ("hydra/launcher/mine.yaml", "_target_: subprocess.run\nargs: ls\n", "hydra/launcher=mine", ["hydra.launcher._target_=subprocess.run"]),
        ("hydra/launcher/mine.yaml", "_target_: hydra._internal.core_plugins.basic_launcher.logging.os.system\n", "hydra/launcher=mine", ["logging.os.system"]),
        ("hydra/callbacks/mine.yaml", "a: '${oc.create:{_target_: os.system}}'\n", "hydra/callbacks=mine", ["oc.create"]),
        ("hydra/callbacks/mine.yaml", "a: '${oc.decode:\"{_target_: os.system}\"}'\n", "hydra/callbacks=mine", ["oc.decode"]),
        ("hydra/callbacks/mine.yaml", "b: oc.create\na: '${${.b}:{_target_: os.system}}'\n", "hydra/callbacks=mine", ["hydra.callbacks.a"]),
        ("hydra/sweeper/mine.yaml", "_target_: mine.BasicSweeper\n", "hydra/sweeper=mine", ["mine.BasicSweeper"]),
        ("hydra/job_logging/mine.yaml", "version: 1\nhandlers:\n  a:\n    class: logging.os.system\n", "hydra/job_logging=mine", ["handlers.a.class=logging.os.system"]),
        ("hydra/job_logging/mine.yaml", "version: 1\nformatters:\n  a:\n    (): os.system\n", "hydra/job_logging=mine", ["formatters.a.()=os.system"]),
        ("hydra/job_logging/mine.yaml", "version: 1\nhandlers:\n  a:\n    class: logging.StreamHandler\n    stream: ext://antigravity.x\n", "hydra/job_logging=mine", ["a.stream=ext://antigravity.x"]),
        ("pe/mine.yaml", "name: rope\n_target_: os.system\n", "pe=mine", ["pe._target_=os.system", "not a setting"]),
        ("experiment/mine.yaml", "# @package _global_\nmine:\n  _target_: os.system\n", "experiment=mine", ["mine=", "not a setting"]),
    ],
    ids=lambda value: value if isinstance(value, str) and "=" in value else "",
)  # fmt: skip
def test_a_configuration_runs_no_code_that_it_names(
    file: str, content: str, choice: str, words: list[str], tmp_path: Path
) -> None:
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError) as error:
        planned("--config-dir", str(tmp_path), choice)
    assert all(word in str(error.value) for word in words)


def test_launchers_callbacks_and_logging_of_hydra_are_left_alone() -> None:
    callback = "+hydra.callbacks.a._target_=hydra.experimental.callbacks.LogJobReturnCallback"
    assert planned(callback, "hydra/job_logging=default", "hydra/hydra_logging=hydra_debug").jobs


def test_a_sweeper_of_the_same_class_name_is_another(tmp_path: Path) -> None:
    (tmp_path / "hydra" / "sweeper").mkdir(parents=True)
    text = "_target_: hydra_plugins.mine.here.BasicSweeper\n"
    (tmp_path / "hydra" / "sweeper" / "mine.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"hydra_plugins\.mine\.here\.BasicSweeper cannot be used.*basic sweeper"):
        planned("--config-dir", str(tmp_path), "hydra/sweeper=mine", "-m", "seed=0,1")


def test_every_job_of_a_sweep_is_looked_through(tmp_path: Path) -> None:
    (tmp_path / "debug").mkdir()
    text = "# @package _global_\nhydra:\n  callbacks:\n    a:\n      _target_: os.system\n"
    (tmp_path / "debug" / "mine.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"hydra\.callbacks\.a\._target_=os\.system"):
        planned("--config-dir", str(tmp_path), "-m", "debug=smoke,mine")
