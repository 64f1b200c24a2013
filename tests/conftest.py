"""Plain `pytest` shares the tests out to two processes. One that selects, or looks on, runs in one, as one expects it."""

from __future__ import annotations

import os
import re
import shlex

import pytest

PLAIN = re.compile(r"-[qvx]+|--(durations|maxfail|tb|color)(=.*)?")  # options that change neither


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads its own
def pytest_cmdline_main(config: pytest.Config) -> None:
    if not config.pluginmanager.hasplugin("xdist") or hasattr(config, "workerinput"):
        return
    typed = [*config.invocation_params.args, *shlex.split(os.environ.get("PYTEST_ADDOPTS", ""))]
    plain = all(PLAIN.fullmatch(str(argument)) for argument in typed)
    if plain and config.args_source is pytest.Config.ArgsSource.TESTPATHS and (os.cpu_count() or 1) > 1:
        config.option.numprocesses = 2
        config.option.dist = "worksteal"  # neighbours stay together, and with them what a module makes once
    if config.option.numprocesses:
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # in each process and in what it starts
