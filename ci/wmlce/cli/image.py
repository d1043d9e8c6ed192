"""`wmlce image`: commands on images."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wmlce.cli.session import Context, session_of

app = typer.Typer(help="Images for Singularity and Apptainer, in build/images.", no_args_is_help=True)

#: Images that hold a variant of the channel.
_VARIANTS = {"ddl-gpu": "cuda12"}


@app.command("build")
def image_build(
    context: Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of containers/NAME.def.")] = "ddl",
    specs: Annotated[
        list[str] | None,
        typer.Argument(help="Match specs; default: powerai, or that of the variant.", metavar="[SPEC]..."),
    ] = None,
    variant: Annotated[
        str | None,
        typer.Option("--variant", help="Variant of the channel, for its hosts; default: cuda12 for ddl-gpu."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", help="The file; default: build/images/NAME.sif.")
    ] = None,
    source: Annotated[
        Path | None, typer.Option("--from", help="Channel to install from; default: build/channel.")
    ] = None,
    proprietary: Annotated[
        bool, typer.Option("--proprietary", help="Also packages whose licence does not let you pass them on.")
    ] = False,
) -> None:
    """Build an image from the channel and run its test; nothing is done where it is there already."""
    from wmlce.images import image
    from wmlce.recipes import variant as variants

    session = session_of(context)
    layout = session.layout
    # a clone may have been reduced to the packages for processors
    usual = variants.read_all(layout).get(_VARIANTS.get(name, ""))
    chosen = variants.find(layout, variant) if variant else usual
    request = image.Request(
        name=name,
        output=output.absolute() if output is not None else layout.images / f"{name}.sif",
        specs=variants.specs_to_install(chosen, specs or []),
        source=source.absolute() if source is not None else layout.channel,
        proprietary=proprietary,
    )
    fresh = image.build(layout, request, say=session.say)
    record = image.read_record(request.output) or {}
    session.answer(
        {
            "image": str(request.output),
            "built": fresh,
            "lock": record.get("lock"),
            "size": record.get("size"),
        },
        f"{layout.display(request.output)}: {'ready' if fresh else 'unchanged'}, "
        f"{request.output.stat().st_size / 1e6:.0f} MB, lock {str(record.get('lock'))[:12]}",
    )


@app.command("oci")
def image_oci(
    context: Context,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Of build/images/NAME.sif; the tag too.")
    ] = "ddl",
    source: Annotated[
        Path | None, typer.Option("--image", help="The image; default: build/images/NAME.sif.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", help="The archive; default: NAME.oci.tar beside the image.")
    ] = None,
) -> None:
    """Pack a built image as an OCI archive, for Docker, Podman and registries."""
    from wmlce.images import image, oci

    session = session_of(context)
    layout = session.layout
    image_path = source.absolute() if source is not None else layout.images / f"{name}.sif"
    request = oci.Request(
        source=image_path,
        output=output.absolute() if output is not None else image_path.with_name(f"{name}.oci.tar"),
        tag=name,
    )
    fresh = oci.build(layout, request, say=session.say)
    record = image.read_record(request.output) or {}
    session.answer(
        {
            "archive": str(request.output),
            "built": fresh,
            "lock": record.get("lock"),
            "size": record.get("size"),
        },
        f"{layout.display(request.output)}: {'ready' if fresh else 'unchanged'}, "
        f"{request.output.stat().st_size / 1e6:.0f} MB, lock {str(record.get('lock'))[:12]}",
    )


@app.command("list")
def image_list(context: Context) -> None:
    """List the images in build/images."""
    from wmlce.images import image

    session = session_of(context)
    images = image.listing(session.layout)
    session.answer(
        [
            {
                "image": str(i.path),
                "size": i.size,
                "release": i.release,
                "lock": i.lock,
                "packages": i.packages,
            }
            for i in images
        ],
        "\n".join(
            f"{i.path.name:<20} {i.size / 1e6:>6.0f} MB  release {i.release}  {i.packages} packages  "
            f"lock {i.lock[:12]}"
            for i in images
        )
        or "no images",
    )


@app.command("apptainer")
def image_apptainer(context: Context) -> None:
    """Fetch Debian's Apptainer into the cache, for machines that build and test images and have none."""
    from wmlce.images import apptainer

    session = session_of(context)
    runtime = apptainer.fetch(session.layout, say=session.say)
    missing = apptainer.missing_helpers()
    session.answer(
        {"program": str(runtime.program), "version": runtime.version, "missing": missing},
        "\n".join([f"{runtime.version}: {runtime.program}", *missing]),
    )
