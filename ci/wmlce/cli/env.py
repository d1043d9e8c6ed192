"""`wmlce env`: commands on environments."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wmlce.cli.session import Context, session_of
from wmlce.util import conda_meta
from wmlce.util.errors import WmlceError
from wmlce.util.layout import Layout

app = typer.Typer(help="Environments in build/envs.", no_args_is_help=True)


@app.command("create")
def env_create(
    context: Context,
    name: Annotated[str, typer.Argument(metavar="NAME")],
    specs: Annotated[
        list[str] | None, typer.Argument(help="Match specs; default: NAME.", metavar="[SPEC]...")
    ] = None,
    compile_python: Annotated[
        bool, typer.Option("--compile", help="Compile Python modules, for read-only environments.")
    ] = False,
    lock: Annotated[
        Path | None,
        typer.Option(
            "--lock",
            help="Install exactly what this lock names: of `env lock`, in any format.",
            metavar="FILE",
        ),
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option("--from", help="Channel to install from; default: build/channel.", metavar="DIR"),
    ] = None,
) -> None:
    """Install or update build/envs/NAME from build/channel alone."""
    from wmlce.envs import environments, locks

    session = session_of(context)
    if lock is not None and specs:
        raise typer.BadParameter("--lock says which packages; match specs cannot be given with it")
    changed = environments.create(
        session.layout,
        name,
        specs or [],
        say=session.say,
        compile_python=compile_python,
        lock=locks.read(lock) if lock else None,
        source=source.absolute() if source is not None else None,
    )
    prefix = environments.prefix_of(session.layout, name)
    session.answer(
        {"name": name, "prefix": str(prefix), "changed": changed},
        f"{session.layout.display(prefix)}: {'ready' if changed else 'unchanged'}",
    )


@app.command("lock")
def env_lock(
    context: Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name, or a prefix with a '/' in it.")],
    output: Annotated[
        Path | None, typer.Option("--output", help="The file; default: standard output.", metavar="FILE")
    ] = None,
    channel: Annotated[
        str | None,
        typer.Option(
            "--channel", help="Where others find the channel; default: build/channel.", metavar="URL"
        ),
    ] = None,
    form: Annotated[
        str,
        typer.Option("--format", help="explicit, conda-lock or pixi.", metavar="FORMAT"),
    ] = "explicit",
) -> None:
    """Write the packages of an environment with their sha256, to install exactly these again."""
    from wmlce.envs import locks
    from wmlce.util.files import write_atomic

    session = session_of(context)
    formats = [str(item) for item in locks.Format]
    if form not in formats:
        raise typer.BadParameter(f"--format is one of {', '.join(formats)}")
    prefix = _place(session.layout, name)
    text = locks.of_environment(prefix, channel or session.layout.channel.as_uri(), locks.Format(form))
    packages = len(conda_meta.files(prefix))
    if output is None:
        session.answer({"packages": packages, "lock": text}, text.rstrip("\n"))
    else:
        write_atomic(output, text)
        session.answer({"packages": packages, "file": str(output)}, f"{output}: {packages} packages")


@app.command("sbom")
def env_sbom(
    context: Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name, or a prefix with a '/' in it.")],
    output: Annotated[
        Path | None, typer.Option("--output", help="The file; default: standard output.", metavar="FILE")
    ] = None,
    spdx: Annotated[bool, typer.Option("--spdx", help="In SPDX 2.3.")] = False,
) -> None:
    """Write the bill of materials of an environment, in CycloneDX (JSON)."""
    from wmlce.channel import sbom

    session = session_of(context)
    form: sbom.Form = "spdx" if spdx else "cyclonedx"
    text = sbom.of_environment(session.layout, _place(session.layout, name), form)
    if output is None:
        print(text, end="")
    else:
        packages = sbom.write(output, text)
        session.answer({"packages": packages, "file": str(output)}, f"{output}: {packages} packages")


@app.command("list")
def env_list(context: Context) -> None:
    """List the environments."""
    from wmlce.envs import environments

    session = session_of(context)
    infos = environments.listing(session.layout)
    text = "\n".join(
        f"{info.name:<20} {info.packages:>4} packages  "
        f"{'complete' if info.complete else 'INCOMPLETE'}  {info.path}"
        for info in infos
    )
    session.answer(
        [
            {
                "name": i.name,
                "prefix": str(i.path),
                "complete": i.complete,
                "specs": i.specs,
                "packages": i.packages,
            }
            for i in infos
        ],
        text or "no environments",
    )


@app.command("remove")
def env_remove(context: Context, name: Annotated[str, typer.Argument(metavar="NAME")]) -> None:
    """Delete an environment."""
    from wmlce.envs import environments

    session = session_of(context)
    environments.remove(session.layout, name, say=session.say)
    session.answer({"removed": name}, f"removed {name}")


@app.command("clone")
def env_clone(
    context: Context,
    source: Annotated[str, typer.Argument(metavar="SRC", help="A name, or a prefix with a '/' in it.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name, or a path with a '/' in it.")],
    copy: Annotated[bool, typer.Option("--copy", help="Share no file with SRC by hard links.")] = False,
) -> None:
    """Copy an environment, without conda: files are shared where the file system can."""
    from wmlce.envs.clone import clone

    session = session_of(context)
    origin, target = _place(session.layout, source), _place(session.layout, name)
    result = clone(origin, target, say=session.say, copy=copy)
    session.answer(
        {"source": str(origin), "prefix": str(target), "files": result.files, "shared": result.shared},
        f"{session.layout.display(target)}: {result.files} files, {result.shared} of them shared",
    )


@app.command("overlay")
def env_overlay(
    context: Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name, or a path with a '/' in it.")],
    on: Annotated[str, typer.Option("--on", help="The environment below: a name or a prefix.")] = "powerai",
) -> None:
    """Make a virtual environment over another one, for pip to install into."""
    from wmlce.envs.overlay import overlay

    session = session_of(context)
    base, target = _place(session.layout, on), _place(session.layout, name)
    count = overlay(base, target, say=session.say)
    session.answer(
        {"base": str(base), "prefix": str(target), "programs": count},
        f"{session.layout.display(target)}: ready; use it with: source {target}/bin/activate",
    )


@app.command("kernel")
def env_kernel(
    context: Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name, or a prefix with a '/' in it.")],
    kernel: Annotated[
        str | None,
        typer.Option(
            "--kernel", help="The kernel's name; default: that of the environment.", metavar="KERNEL"
        ),
    ] = None,
    display_name: Annotated[
        str | None,
        typer.Option(
            "--display-name", help="What Jupyter shows; default: the kernel's name.", metavar="TEXT"
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data", help="Jupyter's data folder; default: your own, as Jupyter finds it.", metavar="DIR"
        ),
    ] = None,
) -> None:
    """Make an environment with ipykernel a kernel of Jupyter, with the variables that activating it sets."""
    from wmlce.envs import kernel as kernels

    session = session_of(context)
    prefix = _place(session.layout, name)
    if not (prefix / "conda-meta").is_dir():
        raise WmlceError(
            f"there is no environment at {prefix}", remedy="create it: wmlce env create NAME SPEC..."
        )
    kernel_name = kernel or prefix.name
    registered = kernels.register(
        prefix, kernel_name, display_name or kernel_name, data or kernels.data_folder()
    )
    session.answer(
        {
            "kernel": registered.name,
            "folder": str(registered.folder),
            "prefix": str(prefix),
            "replaced": registered.replaced,
        },
        f"{registered.folder}: kernel {registered.name}, {'replaced' if registered.replaced else 'new'}",
    )


def _place(layout: Layout, text: str) -> Path:
    """build/envs/TEXT, or the path that TEXT is."""
    from wmlce.envs import environments

    return Path(text).absolute() if "/" in text else environments.prefix_of(layout, text)
