"""What messages tell a user to do can be done: what they name is in the tables below, and each is held against the real thing.

A remedy is found in the source by its pattern, so a new one that stands in no table fails here.
"""

from __future__ import annotations

import ast
import importlib.metadata
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import typer

from stitchcuda import remedies
from stitchcuda.agents import mcp_serving
from stitchcuda.cli.app import app
from stitchcuda.cli.model_flags import choose_model
from stitchcuda.engineers.prices import price_of
from stitchcuda.engineers.providers import PROVIDERS, address
from stitchcuda.memory import location
from stitchcuda.rag import index_store
from stitchcuda.sandbox import limits
from stitchcuda.simulator import compile as simulator_compile
from stitchcuda.simulator import headers
from stitchcuda.store import Workspace
from stitchcuda.tools.build.libraries import FAMILIES
from stitchcuda.tools.device import toolkit
from stitchcuda.tools.profile import nsys_command
from stitchcuda.training.reward_service.trainers import client_for

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "stitchcuda"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def texts() -> Iterator[str]:
    """The strings of all modules but docstrings, {} where a value goes in."""
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(path.read_text())
        parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        parts |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
                yield node.value


TEXTS = list(texts())
SENTENCES = [text for text in TEXTS if " " in text]


def found(pattern: str, given: list[str]) -> set[str]:
    return {match.group(1) for text in given for match in re.finditer(pattern, text)}


# ---- commands of ours

COMMANDS = {                               # as messages name them, with arguments that make them whole
    "agent skill": "--into DIR", "agent workbench": "REF DIR",
    "docs add": "PATH", "docs build": "", "docs remove": "SOURCE", "docs search": "WORDS", "docs sources": "",
    "doctor --debug": "", "export": "SESSION", "fork": "SESSION", "memory export": "FILE", "memory merge": "A B --out C",
    "optimize": "REF", "resume": "SESSION", "resume --device": "cuda SESSION", "sessions": "", "show": "SESSION",
    "tasks synthesise": "--count 1 --out FILE", "train data": "SESSION --out DIR",
    "train evaluate": "CHECKPOINT --tasks TASKS --out DIR", "train sft": "--out DIR",
    "verify --reference": "REF PROGRAM",
}  # fmt: skip
_COMMAND = r"\bstitchcuda ((?:agent|docs|memory|tasks|train) [a-z]+|[a-z]+)((?: (?:--[a-z-]+|[A-Z_]+|\{\}))*)"


def commands(given: list[str], names: set[str]) -> set[str]:
    """The commands that texts name, with their flags; arguments left out."""
    told = [match for text in given for match in re.finditer(_COMMAND, text) if match.group(1).split()[0] in names]
    return {" ".join([match.group(1), *re.findall(r"--[a-z-]+", match.group(2))]) for match in told}


def group() -> Any:
    """The command line as typer has it (its groups are not click's own classes in every version)."""
    return typer.main.get_command(app)


def command_of(words: list[str]) -> tuple[Any, list[str]]:
    """The command that words name, and what is left of them."""
    here = group()
    while words and hasattr(here, "commands"):
        here, words = here.commands[words[0]], words[1:]
    return here, words


def flags_of(command: Any) -> set[str]:
    return {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)} | {"--help"}


def test_commands_that_messages_name_are_those_of_the_table() -> None:
    assert commands(TEXTS, set(group().commands)) == set(COMMANDS)


@pytest.mark.parametrize("told", COMMANDS)
def test_a_command_that_a_message_names_is_there(told: str) -> None:
    command, rest = command_of([*told.split(), *COMMANDS[told].split()])
    command.make_context(told, rest)       # raises what a user would be shown


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_of_the_documentation_are_there(page: Path) -> None:
    for line in page.read_text().splitlines():
        for match in re.finditer(r"\bstitchcuda ((?:[a-z]+ ?){1,3})([^`#|]*)", line):
            words = match.group(1).split()
            if words[0] in group().commands:
                command, _ = command_of(words)
                asked = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", match.group(2)))
                assert asked <= flags_of(command), line


# ---- flags

OURS = {
    "--accept": "resume", "--all": "show", "--approve": "optimize", "--base-url": "optimize", "--budget-usd": "resume",
    "--candidates": "optimize",
    "--checkpoint": "optimize", "--comment": "resume", "--counters": "profile", "--critic": "train verl",
    "--data": "train verl", "--debug": "doctor", "--device": "resume",
    "--edit": "resume", "--form": "train data", "--goal": "optimize", "--gpu-memory-gb": "verify", "--held-out": "train data",
    "--help": "optimize", "--host": "train reward serve", "--http": "agent mcp", "--ids": "bench run", "--into": "agent skill",
    "--json": "profile",
    "--judge": "train reward score", "--level": "bench run", "--loader": "docs add", "--max-attempts": "resume",
    "--max-gpu-seconds": "resume", "--max-minutes": "resume", "--max-tokens": "resume", "--mode": "docs search",
    "--model": "optimize", "--model-option": "optimize", "--out": "bench run", "--output": "report", "--policy": "optimize",
    "--port": "train reward serve", "--precision": "optimize", "--predict-for": "optimize", "--preset": "train grpo",
    "--prompts": "train verl", "--ray": "bench run", "--resume": "train grpo", "--reward": "train verl",
    "--reward-url": "train verl", "--stage": "train verl",
    "--reference": "verify", "--references": "bench verify", "--store": "train reward serve", "--tasks": "train reward serve",
    "--base": "train evaluate", "--batch": "train evaluate", "--max-completion": "train evaluate", "--merge": "train export",
    "--seeds": "train evaluate", "--split": "train evaluate", "--temperature": "train evaluate", "--test-percent": "train data",
    "--token-file": "train reward serve", "--wait": "resume", "--words": "docs build", "--workspace": "optimize",
}  # fmt: skip
LIMITED = {"--goal", "--max-gpu-seconds"}  # named by a table in `graph/opening.py` alone
OTHERS = {                                 # flags of other programs
    "--address": "ray start", "--head": "ray start",
    "--cap-add": "docker run", "--gpus": "docker run", "--no-deps": "pip install", "--pause": "dcgmi profile",
    "--done": "submit of a workbench",
    "--permission-mode": "claude", "--output-format": "claude", "--verbose": "claude", "--skip-git-repo-check": "codex exec",
    "--dangerously-bypass-approvals-and-sandbox": "codex exec", "--auto": "opencode run", "--approval-mode": "gemini",
    "--skip-trust": "gemini",
    "--enable-lora": "vllm serve", "--lora-modules": "vllm serve", "--max-lora-rank": "vllm serve",
    "--served-model-name": "vllm serve",
    "--cuda-graph-trace": "nsys", "--trace": "nsys", "--type": "nsys export", "--version": "nvcc", "--module": "cudafe++",
}  # fmt: skip


def test_flags_that_messages_name_are_those_of_the_table() -> None:
    assert found(r"(?<![\w-])(--[a-z][a-z-]+)", SENTENCES) == {*OURS, *OTHERS} - LIMITED


@pytest.mark.parametrize("flag", OURS)
def test_a_flag_that_a_message_names_is_there(flag: str) -> None:
    command, _ = command_of(OURS[flag].split())
    assert flag in flags_of(command)


# ---- variables of the environment: what is different once one is set

Shown = Callable[[Path], bool]


def compiler_is(path: Path) -> bool:
    path.write_text("#!/bin/sh\necho ours 1.0\n")
    path.chmod(0o755)
    simulator_compile.compiler.cache_clear()
    try:
        return simulator_compile.compiler() == (str(path), "ours 1.0")
    finally:
        simulator_compile.compiler.cache_clear()


def refused(path: Path) -> bool:
    with pytest.raises(Exception, match="postgresql://"):
        Workspace(path.parent / "workspace")
    return True


def prices_are(path: Path) -> bool:
    table = path / "prices.json"
    table.write_text(json.dumps({"models": {"ours": {"input": 1.5, "output": 3.0}}}))
    os.environ["STITCHCUDA_PRICES"] = str(table)
    price = price_of("ours")
    return price is not None and price.usd(1_000_000, 1_000_000) == Decimal("4.5")


DOCUMENTED: dict[str, Shown] = {           # by the documentation, not by messages
    "OPENAI_BASE_URL": lambda path: address("openai:x", None) == str(path),
    "STITCHCUDA_RUNTIME_CACHE": lambda path: toolkit.runtime_cache() == path,
}
VARIABLES: dict[str, Shown] = {
    "CUDA_HOME": lambda path: headers._candidates()[0] == path / "include",
    "CUDA_PATH": lambda path: headers._candidates()[0] == path / "include",
    "CUDA_VISIBLE_DEVICES": lambda path: limits.clean_environment({})["CUDA_VISIBLE_DEVICES"] == str(path),
    "CXX": compiler_is,
    "OPENAI_API_KEY": lambda path: choose_model(None, None)[0].startswith("openai:"),
    "STITCHCUDA_CHECKPOINT": refused,
    "STITCHCUDA_DOCS": lambda path: index_store.home() == path,
    "STITCHCUDA_MCP_TOKEN": lambda path: mcp_serving._token(None) == (str(path), False),
    "STITCHCUDA_MEMORY": lambda path: location(path.parent) == str(path),
    "STITCHCUDA_PRICES": prices_are,
    "STITCHCUDA_REWARD_TOKEN": lambda path: client_for("http://judge", None, 1.0)._headers["Authorization"] == f"Bearer {path}",
    "STITCHCUDA_REWARD_URL": lambda path: client_for(None, None, 1.0).url == str(path),
    "STITCHCUDA_WORKSPACE": lambda path: Workspace().root == path,
    "TMPDIR": lambda path: subprocess.check_output([sys.executable, "-c", "import tempfile as t; print(t.gettempdir())"])
    == f"{path}\n".encode(),
    "XDG_CACHE_HOME": lambda path: toolkit.user_cache() == path / "stitchcuda",
}
NO_VARIABLES = {                           # macros, statuses and constants that sentences name
    "AT_PER_OPERATOR_HEADERS", "CAP_PERFMON", "CAP_SYS_ADMIN", "CONFIG_SECCOMP_FILTER", "CUPTI_ERROR", "ERR_NVGPUCTRPERM",
    "HOST_TASKS", "M_PI", "PATH", "PATH_OR_URL", "STITCHCUDA_MASKS", "STITCHSIM_BEGIN_SHARED", "SYS_ADMIN",
    "TORCH_EXTENSION_NAME",
    "TVM_FFI_DLL_EXPORT_TYPED_FUNC", "TVM_FFI_THROW", "WORKSPACE_CHECK",
}  # fmt: skip


def test_variables_that_messages_name_are_those_of_the_table() -> None:
    named = found(r"\b([A-Z]+_[A-Z_]*[A-Z]|TMPDIR|CXX|PATH)\b", SENTENCES)
    assert named == {*VARIABLES, *NO_VARIABLES}


@pytest.mark.parametrize("name", [*VARIABLES, *DOCUMENTED])
def test_a_variable_that_a_message_names_is_read(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in VARIABLES:
        if variable != "TMPDIR":
            monkeypatch.delenv(variable, raising=False)
    path = tmp_path / "here"
    if name not in ("CXX", "STITCHCUDA_DOCS_LIST", "STITCHCUDA_MEMORY"):
        path.mkdir()
    monkeypatch.setenv(name, str(path))
    assert (VARIABLES | DOCUMENTED)[name](path), name


# ---- packages

REQUIREMENTS = {                           # as pip is given them, and the extra or dependency that lists them
    "apache-tvm-ffi[cpp]": "dependencies", "torch>=2.8": "dependencies",
    "nvidia-cuda-nvdisasm": "toolkit", "nvidia-cuda-cuobjdump": "toolkit",
}  # fmt: skip
EXTRAS = {"agents", "bench", "docs", "documents", "openenv", "postgres", "profile", "service", "toolkit", "training"}


def called(name: str) -> set[str]:
    """Constant arguments of all calls of `remedies.NAME`."""
    given = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == f"remedies.{name}":
                given |= {argument.value for argument in node.args if isinstance(argument, ast.Constant)}
    return {str(argument) for argument in given}


def plain(requirement: str) -> str:
    return re.split(r"[<>=!~]", requirement)[0]


def test_nothing_is_installed_by_a_line_of_its_own() -> None:
    """`pip install` is written by `remedies.py` alone, so that it is the right pip's and what it names can be looked at."""
    assert [text for text in TEXTS if re.search(r"pip (?:un)?install", text)] == []


def test_packages_that_messages_name_are_those_of_the_tables() -> None:
    assert called("extra") == EXTRAS
    assert {one for one in called("install") if not one.startswith("-")} == {*REQUIREMENTS, "FOLDER"}


@pytest.mark.parametrize("requirement", REQUIREMENTS)
def test_a_package_is_one_that_this_project_uses(requirement: str) -> None:
    where = REQUIREMENTS[requirement]
    listed = PROJECT["dependencies"] if where == "dependencies" else PROJECT["optional-dependencies"][where]
    assert plain(requirement) in map(plain, listed)


@pytest.mark.parametrize("name", sorted(EXTRAS))
def test_an_extra_is_told_by_what_it_stands_for(name: str) -> None:
    *_, install, = [remedies.extra(name)]
    given = shlex.split(install.partition(" install ")[2])
    wanted = PROJECT["optional-dependencies"][name]
    assert sorted(map(normal, given)) == sorted(map(normal, wanted))


def test_a_checkout_that_is_not_installed_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", missing)
    where = shlex.split(remedies.extra("docs").partition(" install ")[2])[1]
    folder, _, extra = where.removesuffix("]").partition("[")
    assert (Path(folder) / "pyproject.toml").is_file()
    assert extra in PROJECT["optional-dependencies"]


def normal(requirement: str) -> tuple[str, ...]:
    """A requirement with its extras in order: metadata sorts them."""
    name, _, rest = requirement.partition("[")
    extras, _, version = rest.partition("]")
    return (name, *sorted(extras.split(",")), version)


def test_pip_is_that_of_the_python_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    assert remedies.pip() == ("pip" if Path(sys.executable).with_name("pip").exists() else f"{sys.executable} -m pip")
    pip = tmp_path / "pip"
    pip.write_text("#!/bin/sh\n")
    pip.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    command = remedies.install("pip>=1")
    assert command == f"{sys.executable} -m pip install 'pip>=1'"
    done = subprocess.run([*shlex.split(command), "--dry-run", "--no-index"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_libraries_come_in_packages_of_the_toolkits() -> None:
    provided = importlib.metadata.metadata("cuda-toolkit").get_all("Provides-Extra")
    assert provided is not None
    assert {family.extra for family in FAMILIES if family.extra} <= set(provided)
    (brings,) = [one for one in importlib.metadata.requires("cuda-toolkit") or [] if re.search(r"extra == .cublas.", one)]
    files = importlib.metadata.files(re.split(r"[<>=]", brings)[0]) or []
    assert "cublasLt.h" in {file.name for file in files}, "what a search for cublasLtMatmul says is true"
    assert all(re.fullmatch(r"(--no-deps )?nvidia-[a-z]+(-[a-z{}]+)*", family.package) for family in FAMILIES)


def test_packages_of_providers_are_langchains() -> None:
    assert {one.package for one in PROVIDERS.values()} == {"langchain-openai", "langchain-anthropic", "langchain-google-genai"}


def test_extras_of_the_documentation_are_there() -> None:
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]:
        text = page.read_text()
        assert "stitchcuda[" not in text, f"{page.name}: it is on no package index"
        for extras in re.findall(r"-e '?\.\[([\w,]+)\]", text):
            assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"]), page.name


# ---- what else a machine needs

def test_packages_of_the_system() -> None:
    assert found(r"apt(?:-get)? install ([^,;)]+)", TEXTS) == {"g++", "{}", "{}-{}-{} (from NVIDIA's apt repository"}
    names = list(nsys_command._LIBRARIES.values())
    assert all(re.fullmatch(r"lib[a-z0-9][a-z0-9.+-]*", name) for name in names)
    given = defaultdict(set)
    for node in ast.walk(ast.parse((PACKAGE / "tools/doctor/profilers.py").read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"cuda-[a-z-]+", node.value):
            given["NVIDIA"].add(node.value)
    assert given["NVIDIA"] == {"cuda-nsight-systems", "cuda-nsight-compute", "cuda-sanitizer"}


def test_variables_of_the_documentation() -> None:
    pages = [page.read_text() for page in PAGES]
    assert found(r"\bexport ([A-Z_]+)=", pages) <= {*VARIABLES, *DOCUMENTED}


def test_targets_of_make() -> None:
    made = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert found(r"\bmake ([a-z]+-[a-z]+|demo|test|lint)\b", SENTENCES) == {"gpu-bundle"}
    assert "gpu-bundle" in made


# ---- done as they say

@pytest.mark.more
def test_doctor_debug_shows_where_a_check_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {**os.environ, "STITCHCUDA_WORKSPACE": str(tmp_path)}
    code = (
        "import sys; from stitchcuda.tools.doctor import doctor; "
        "doctor._torch = lambda: 1 / 0; sys.argv = ['stitchcuda', 'doctor', '--debug']; "
        "from stitchcuda.__main__ import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert "stitchcuda doctor --debug shows where it failed" in " ".join(done.stdout.split())
    assert "ZeroDivisionError: division by zero" in done.stderr
    assert "Traceback" in done.stderr
