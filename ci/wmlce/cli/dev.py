"""`wmlce dev`: an environment in which the clone's own files run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from wmlce.cli.build_root import run_inside
from wmlce.cli.session import Context, Session, session_of
from wmlce.util.errors import WmlceError
from wmlce.util.host import cpu_count

_NAME = "dev"
_FOLDERS = {"dev": "ddl-core", "asan": "ddl-core-asan", "tsan": "ddl-core-tsan"}
#: What compiles ddl-core and its tests, beside the distribution itself.
_TOOLS = ("cmake", "gtest", "nanobind", "ninja", "nlohmann_json", "pmix-headers")


def dev_command(
    context: Context,
    tensorflow: Annotated[
        bool, typer.Option("--tensorflow", help="Compile TensorFlow's operators, too (about a minute).")
    ] = False,
    torch: Annotated[
        bool, typer.Option("--torch", help="Compile PyTorch's backend, too (about a minute).")
    ] = False,
    update: Annotated[
        bool, typer.Option("--update", help="Build and install what has changed in other packages.")
    ] = False,
    preset: Annotated[
        str, typer.Option("--preset", help="asan, tsan: only compile the C++ tests, with a sanitizer.")
    ] = "dev",
    targets: Annotated[
        list[str] | None, typer.Option("--target", help="Compile this alone; may be repeated.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", "-j", min=1, help="Files compiled at once; default: cores.")
    ] = None,
) -> None:
    """Compile libddl, and make build/envs/dev, in which this clone's files run.

    The first time it builds the channel and the environment, and compiles libddl, the module ddl._core and
    the C++ tests in build/ddl-core. After that, a changed Python file is live at once. After a change of C++,
    or with a new file, run the command again: it compiles what changed. The clone's compile_commands.json is
    for clangd.
    """
    from wmlce.envs import development, environments

    if preset not in _FOLDERS:
        raise typer.BadParameter(f"{preset} is not one of {', '.join(_FOLDERS)}", param_hint="--preset")
    session = session_of(context)
    layout = session.layout
    prefix = environments.prefix_of(layout, _NAME)
    build = layout.build / _FOLDERS[preset]
    if update or not (prefix / "conda-meta").is_dir():
        _install(session)
    options = ["DDL_BUILD_PYTHON", "DDL_BUILD_BOOTSTRAP"] if preset == "dev" else []
    # once compiled, a binding stays: an option only adds
    options += ["DDL_BUILD_TENSORFLOW"] if tensorflow else []
    options += ["DDL_BUILD_TORCH"] if torch else []
    _compile(session, prefix, build, preset, options, targets or [], jobs or cpu_count())
    if preset != "dev":
        session.answer({"build": str(build)}, f"{layout.display(build)}: compiled")
        return
    folders = development.link_clone(layout, prefix, build)
    _write_compile_commands(session, build, layout.root / "compile_commands.json")
    display = layout.display
    session.answer(
        {"prefix": str(prefix), "build": str(build), "packages": [str(folder) for folder in folders]},
        f"{display(prefix)} runs this clone's files: {', '.join(map(display, folders))}\n"
        f"  ranks:        {display(prefix)}/bin/ddlrun -np 2 python PROGRAM\n"
        f"  C++ tests:    {display(prefix)}/bin/ctest --test-dir {display(build)} --tests-regex NAME\n"
        f"  Python tests: DDL_TEST_PREFIX={prefix} {display(layout.build)}/tools/bin/python -m pytest FILE",
    )


def _install(session: Session) -> None:
    from wmlce.builder.pytorch_choice import settle
    from wmlce.channel.update import update
    from wmlce.envs import environments

    layout = session.layout
    recipes = ["powerai", "conda-forge-names", *_TOOLS]
    settle(layout, None, recipes, None, session.say, dry_run=False)
    update(layout, session.progress, recipes, jobs=cpu_count(), keep_going=False, force=False, variant=None)
    environments.create(layout, _NAME, ["powerai", "openmpi", *_TOOLS], say=session.say)


def _compile(
    session: Session,
    prefix: Path,
    build: Path,
    preset: str,
    options: Sequence[str],
    targets: Sequence[str],
    jobs: int,
) -> None:
    layout = session.layout
    cache = layout.cache / "ccache"
    for folder in (build, cache):
        folder.mkdir(parents=True, exist_ok=True)
    within = [
        *("env", f"CCACHE_DIR={cache}", f"CCACHE_BASEDIR={layout.root}", "CCACHE_NOHASHDIR=1"),
        *("CCACHE_MAXSIZE=1G", "CMAKE_C_COMPILER_LAUNCHER=ccache", "CMAKE_CXX_COMPILER_LAUNCHER=ccache"),
    ]
    configure = [
        *("cmake", "-S", str(layout.root / "ddl-core"), "-B", str(build), "--preset", preset),
        *(f"-DCMAKE_PREFIX_PATH={prefix}", f"-DPython_EXECUTABLE={prefix}/bin/python"),
        *(f"-D{name}=ON" for name in options),
    ]
    compile_all = ["cmake", "--build", str(build), "--parallel", str(jobs)]
    compile_all += ["--target", *targets] if targets else []
    for step, command in (("configuring", configure), ("compiling", compile_all)):
        session.say(f"{step} ddl-core in {layout.display(build)}")
        code = run_inside(session, [*within, *command], prefix, [layout.build, cache])
        if code:
            raise WmlceError(
                f"{step} ddl-core failed with exit code {code}",
                remedy="mend what the compiler names above, then run the same command again",
            )


def _write_compile_commands(session: Session, build: Path, target: Path) -> None:
    """Writes CMake's list of compilations so that clangd can follow it outside of the build root.

    The headers of the system are those of the build root, and ccache is left out.
    """
    from wmlce.builder import build_root
    from wmlce.util.files import write_json

    root = build_root.folder_of(session.layout, build_root.read(session.layout))
    entries = json.loads((build / "compile_commands.json").read_text())
    for entry in entries:
        arguments = entry["command"].split()
        if Path(arguments[0]).name == "ccache":
            del arguments[0]
        entry["command"] = " ".join([arguments[0], f"--sysroot={root}", *arguments[1:]])
    write_json(target, entries)
