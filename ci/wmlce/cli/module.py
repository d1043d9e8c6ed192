"""`wmlce module`: commands on modules."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wmlce.cli.session import Context, session_of

app = typer.Typer(help="Environments as modules of a site's software tree.", no_args_is_help=True)


Prefix = Annotated[Path, typer.Option("--prefix", help="Folder of environments: DIR/ibm-wml-ce/VERSION.")]
Modulefiles = Annotated[
    Path | None, typer.Option("--modulefiles", help="Folder of modulefiles; default: PREFIX/modulefiles.")
]


@app.command("install")
def module_install(
    context: Context,
    prefix: Prefix,
    specs: Annotated[
        list[str] | None, typer.Argument(help="Match specs; default: powerai.", metavar="[SPEC]...")
    ] = None,
    modulefiles: Modulefiles = None,
    variant: Annotated[
        str | None,
        typer.Option("--variant", help="Variant of the channel, for its hosts, such as cuda12 for GPUs."),
    ] = None,
    version: Annotated[
        str | None,
        typer.Option("--version", help="Version of the module; default: the release, and -VARIANT."),
    ] = None,
    source: Annotated[
        Path | None, typer.Option("--from", help="Channel to install from; default: build/channel.")
    ] = None,
    channels: Annotated[
        list[str] | None,
        typer.Option("--channel", help="A channel for users' conda, by priority; default: that of --from."),
    ] = None,
    conflicts: Annotated[
        list[str] | None, typer.Option("--conflict", help="One more module that cannot be loaded beside it.")
    ] = None,
    group: Annotated[str | None, typer.Option("--group", help="Readable for this group alone.")] = None,
    default: Annotated[
        bool | None,
        typer.Option(help="Make it the default version; default: only without --variant."),
    ] = None,
    compile_python: Annotated[
        bool, typer.Option("--compile/--no-compile", help="Compile Python modules, as users cannot.")
    ] = True,
) -> None:
    """Install a version of the environment and its modulefiles into a software tree."""
    from wmlce.envs import module
    from wmlce.recipes import variant as variants

    session = session_of(context)
    layout = session.layout
    origin = source.absolute() if source is not None else layout.channel
    chosen = variants.find(layout, variant) if variant else None
    release = module.default_version(layout)
    tree = prefix.absolute()
    request = module.Request(
        prefix=tree,
        modulefiles=modulefiles.absolute() if modulefiles is not None else tree / "modulefiles",
        version=version or (f"{release}-{chosen.name}" if chosen else release),
        specs=variants.specs_to_install(chosen, specs or []),
        source=origin,
        channels=module.default_channels(origin, channels or []),
        conflicts=conflicts or [],
        group=group,
        default=default if default is not None else chosen is None,
        compile_python=compile_python,
    )
    fresh = module.install(layout, request, say=session.say)
    home = tree / "ibm-wml-ce" / request.version
    session.answer(
        {"version": request.version, "prefix": str(home), "installed": fresh},
        f"{home}: {'installed' if fresh else 'unchanged'}; to use it: module use {request.modulefiles}; "
        f"module load ibm-wml-ce/{request.version}",
    )


@app.command("remove")
def module_remove(
    context: Context,
    prefix: Prefix,
    version: Annotated[str, typer.Argument(metavar="VERSION")],
    modulefiles: Modulefiles = None,
) -> None:
    """Remove a version: first its modulefiles, then its environment."""
    from wmlce.envs import module

    session = session_of(context)
    tree = prefix.absolute()
    folder = modulefiles.absolute() if modulefiles is not None else tree / "modulefiles"
    default = module.remove(tree, folder, version, say=session.say)
    session.answer(
        {"removed": version, "default": default},
        f"removed {version}; {f'the default is now {default}' if default else 'no version is left'}",
    )


@app.command("list")
def module_list(context: Context, prefix: Prefix, modulefiles: Modulefiles = None) -> None:
    """List the versions of a software tree."""
    from wmlce.envs import module

    session = session_of(context)
    tree = prefix.absolute()
    versions = module.listing(
        tree, modulefiles.absolute() if modulefiles is not None else tree / "modulefiles"
    )
    session.answer(
        [{"version": i.version, "prefix": str(i.prefix), "default": i.default} for i in versions],
        "\n".join(f"{i.version:<12} {i.prefix}{'  (default)' if i.default else ''}" for i in versions)
        or f"no versions in {tree}",
    )
