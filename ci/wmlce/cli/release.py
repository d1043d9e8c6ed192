"""`wmlce release`: what a distribution gives to others, signed, and how they check it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wmlce.cli.session import Context, session_of

if TYPE_CHECKING:
    from wmlce.release.diff import Difference

app = typer.Typer(help="Signed releases in build/release: make, sign, check, compare.", no_args_is_help=True)
keys = typer.Typer(help="Keys that sign releases.", no_args_is_help=True)
app.add_typer(keys, name="key")

KeyFile = Annotated[
    Path | None,
    typer.Option("--key", help="The private key to sign with; default: unsigned.", metavar="FILE"),
]


@app.command("make")
def release_make(
    context: Context,
    key: KeyFile = None,
    packages: Annotated[
        list[str] | None,
        typer.Option("--package", help="Write a lock of it; default: those of powerai.", metavar="NAME"),
    ] = None,
    installers: Annotated[
        list[str] | None,
        typer.Option("--installer", help="Make an installer of it; default: powerai.", metavar="NAME"),
    ] = None,
    no_installers: Annotated[bool, typer.Option("--no-installers", help="Make no installer.")] = False,
    images: Annotated[
        list[str] | None,
        typer.Option("--image", help="Build the image of containers/NAME.def.", metavar="NAME"),
    ] = None,
    sources: Annotated[bool, typer.Option("--sources/--no-sources", help="With the sources.")] = True,
    source: Annotated[
        Path | None,
        typer.Option("--from", help="Take this channel as it is; default: build it.", metavar="DIR"),
    ] = None,
    channel: Annotated[
        str | None,
        typer.Option("--channel", help="Where users will find the channel, for the locks.", metavar="URL"),
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option(
            "--expires",
            help="From this day on it is refused, such as 2027-06-30; default: never.",
            metavar="DAY",
        ),
    ] = None,
    image_key: Annotated[
        Path | None,
        typer.Option(
            "--image-key",
            help="Sign the images with the key of this keyring (apptainer key newpair --keysdir).",
            metavar="DIR",
        ),
    ] = None,
    image_passphrase: Annotated[
        Path | None,
        typer.Option(
            "--image-passphrase",
            help="File with that key's passphrase; default: $WMLCE_IMAGE_PASSPHRASE.",
            metavar="FILE",
        ),
    ] = None,
) -> None:
    """Make build/release/VERSION of the committed tree; a run that was stopped goes on."""
    from wmlce.release import freshness, image_signature, make

    session = session_of(context)
    if no_installers and installers:
        raise typer.BadParameter("--installer and --no-installers exclude each other")
    last_day = freshness.day(expires) if expires is not None else None
    if last_day is not None and last_day <= datetime.now(UTC):
        raise typer.BadParameter(f"--expires {expires} is over")
    if image_key is not None and not images:
        raise typer.BadParameter("--image-key signs images: name them with --image")
    signer = None
    if image_key is not None:
        secret = image_signature.passphrase(image_passphrase)
        signer = image_signature.ImageKey(image_key.expanduser().absolute(), secret)
    request = make.Request(
        packages=sorted(set(packages)) if packages else None,
        installers=[] if no_installers else sorted(set(installers or ["powerai"])),
        images=sorted(set(images or [])),
        sources=sources,
        source=source.absolute() if source is not None else None,
        address=channel,
        key=key.expanduser().absolute() if key is not None else None,
        image_key=signer,
        expires=last_day,
    )
    release = make.make(session.layout, request, session.progress)
    signed = f"signed by {release.key}" if release.key else "NOT signed: wmlce release sign DIR --key FILE"
    session.answer(
        {
            "folder": str(release.folder),
            "made": release.fresh,
            "key": release.key,
            "files": release.files,
            "bytes": release.size,
            "left_out": release.left_out,
        },
        f"{session.layout.display(release.folder)}: {'ready' if release.fresh else 'unchanged'}, "
        f"{release.files} files, {release.size / 1e6:.0f} MB, {signed}",
    )


@app.command("sign")
def release_sign(
    context: Context,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A release, or the channel of one.")],
    key: Annotated[Path, typer.Option("--key", help="The private key.", metavar="FILE")],
) -> None:
    """Sign a release, for example on a machine without a network; older signatures are replaced."""
    from wmlce.release import make

    session = session_of(context)
    name = make.sign(folder.absolute(), key.expanduser().absolute(), session.say)
    session.answer({"folder": str(folder.absolute()), "key": name}, f"{folder}: signed by {name}")


@app.command("check")
def release_check(
    context: Context,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A release, or the channel of one.")],
    key: Annotated[
        Path | None,
        typer.Option(
            "--key",
            help="The signer's allowed-signers file or public key; default: that of --require-signature.",
            metavar="FILE",
        ),
    ] = None,
    revoked: Annotated[
        Path | None,
        typer.Option(
            "--revoked", help="Keys that are revoked; default: revoked_keys beside --key.", metavar="FILE"
        ),
    ] = None,
) -> None:
    """Check signatures and checksums: nothing changed, nothing missing, nothing added."""
    from wmlce.images import apptainer
    from wmlce.release import check, trust
    from wmlce.release.signature import Trust
    from wmlce.util.errors import WmlceError

    session = session_of(context)
    chosen = Trust(key.absolute(), revoked) if key is not None else trust.required()
    try:
        runtime = apptainer.find(session.layout)
    except WmlceError:
        runtime = None
    result = check.check(folder.absolute(), chosen, session.say, runtime)
    images = ""
    if result.image_key is not None:
        images = f"\nimages: signed by the OpenPGP key {result.image_key}" + (
            "" if result.images_checked else ", NOT looked at: there is no Apptainer here"
        )
    title = f"release {result.version} of {str(result.commit)[:12]}" if result.version else "a channel"
    if result.statement is not None:
        title += f" ({result.statement})"
    session.answer(
        {
            "folder": str(folder.absolute()),
            "version": result.version,
            "commit": result.commit,
            "date": result.statement.date.isoformat() if result.statement else None,
            "key": result.key,
            "trusted": result.trusted,
            "files": result.files,
            "bytes": result.size,
            "image_key": result.image_key,
            "images_checked": result.images_checked,
        },
        f"{folder}: {title}, {result.files} files, {result.size / 1e6:.0f} MB, as {result.key} signed it"
        + images
        + ("" if result.trusted else "\nNo key was named: compare this one with that of the distributor."),
    )


@app.command("diff")
def release_diff(
    context: Context,
    old: Annotated[Path, typer.Argument(metavar="OLD", help="A release, or a channel.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="A release, or a channel.")],
    output: Annotated[
        Path | None, typer.Option("--output", help="Write a page: .html or .md.", metavar="FILE")
    ] = None,
) -> None:
    """Show what changes for users: packages, files, licences, glibc. Differences are no error."""
    from wmlce.release import diff
    from wmlce.util.files import write_atomic

    session = session_of(context)
    form = diff.form_of(output) if output is not None else None
    difference = diff.compare(diff.read(old.absolute()), diff.read(new.absolute()))
    if output is not None and form is not None:
        write_atomic(output, diff.render(difference, form))
        session.answer(
            {**difference.to_json(), "file": str(output)}, f"{output}: {len(difference.packages)} packages"
        )
    elif session.as_json:
        session.answer(difference.to_json(), "")
    else:
        _show(difference)
        session.answer(None, _summary(difference))


def _summary(difference: Difference) -> str:
    if not difference.packages and not difference.release:
        return f"{difference.old} and {difference.new}: no difference"
    kinds = [change.kind for change in difference.packages]
    counts = [f"{kinds.count(kind)} {kind}" for kind in sorted(set(kinds))]
    growth = sum(change.growth for change in difference.packages) / 1e6
    return (
        f"{difference.old} → {difference.new}: {', '.join(counts) or 'the same packages'}, {growth:+.1f} MB"
    )


def _show(difference: Difference) -> None:
    """Tables on standard output."""
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False, soft_wrap=True)
    if difference.packages:
        table = Table("package", "change", "old", "new", "old MB", "new MB", "files gone")
        for change in difference.packages:
            sizes = [
                f"{size / 1e6:.2f}" if size is not None else "" for size in (change.old_size, change.new_size)
            ]
            gone = str(len(change.removed_files)) if change.removed_files else ""
            table.add_row(change.name, change.kind, change.old or "", change.new or "", *sizes, gone)
        console.print(table)
    for title, pairs in (
        ("release", difference.release),
        ("licence", difference.licenses),
        ("glibc of", difference.glibc),
    ):
        if pairs:
            table = Table(title, difference.old, difference.new)
            for name, (was, now) in pairs.items():
                table.add_row(name, was, now)
            console.print(table)
    for change in difference.packages:
        for name in change.removed_files[:20]:
            print(f"{change.name}: no longer {name}")
        if len(change.removed_files) > 20:
            print(f"{change.name}: … and {len(change.removed_files) - 20} more (--json, --output)")
    for note in difference.notes:
        print(f"note: {note}")


@keys.command("new")
def key_new(
    context: Context,
    file: Annotated[Path, typer.Argument(metavar="FILE")],
    passphrase: Annotated[
        bool, typer.Option("--passphrase/--no-passphrase", help="Ask for a passphrase.")
    ] = True,
) -> None:
    """Make a key: FILE, FILE.pub, and FILE.allowed_signers for those who check."""
    from wmlce.release import signature

    session = session_of(context)
    key = signature.new_key(file.expanduser().absolute(), passphrase=passphrase)
    session.answer(
        {"key": str(key.private), "public": str(key.public), "signers": str(key.signers), "id": key.id},
        f"{key.private}: {key.id}\ngive {key.signers.name} to those who check, and tell them this id",
    )


@keys.command("show")
def key_show(
    context: Context,
    public: Annotated[Path, typer.Argument(metavar="FILE", help="FILE.pub, or an allowed-signers file.")],
) -> None:
    """Print a key's id and its line for allowed-signers files."""
    from wmlce.release import signature

    session = session_of(context)
    name, line = signature.id_of(public), signature.allowed_signers(public)
    session.answer({"id": name, "allowed_signers": line}, f"{name}\n{line.rstrip()}")


@keys.command("revoke")
def key_revoke(
    context: Context,
    public: Annotated[Path, typer.Argument(metavar="FILE.pub")],
    listed: Annotated[
        Path,
        typer.Option("--list", help="The list of revoked keys; made where it is missing.", metavar="FILE"),
    ],
) -> None:
    """Add a key to a list of revoked keys: what it signed passes no check with that list."""
    from wmlce.release import signature

    session = session_of(context)
    added = signature.revoke(public, listed)
    name = signature.id_of(public)
    session.answer(
        {"id": name, "list": str(listed), "added": added},
        f"{listed}: {name} {'is revoked' if added else 'was revoked already'}",
    )
