"""Signatures by SSH keys: `ssh-keygen -Y`, which every machine has, needs no network and no key server.

A file NAME has its signature in NAME.sig. Who checks it has a file of the keys that he trusts (sshd's format
ALLOWED SIGNERS, see ssh-keygen(1), or one public key), and beside it revoked_keys, if some were revoked.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from wmlce.util.errors import WmlceError
from wmlce.util.files import open_file, text_of, write_atomic

NAMESPACE = "ibm-wml-ce"
"""What signatures are for: one that the same key made for mail or for git is none for us."""
PRINCIPAL = "release@ibm-wml-ce"
"""The signer's name in the files of trusted keys that wmlce writes."""
SUFFIX = ".sig"
REVOKED = "revoked_keys"
_LARGEST_TEXT = 1 << 20
"""Bytes of a list of keys that are read."""
LARGEST = 65536
_LIMIT_S = 900
"""The largest files have gigabytes, and somebody may have to type a passphrase."""
_KEY = re.compile(r"(?P<type>(?:sk-)?(?:ssh|ecdsa)-[A-Za-z0-9@.-]+) (?P<blob>[A-Za-z0-9+/]+=*)")


@dataclass(frozen=True)
class Trust:
    """signers: file of trusted keys. revoked: file of keys that are so no longer; None: that beside it."""

    signers: Path
    revoked: Path | None = None

    def revoked_file(self) -> Path | None:
        if self.revoked is not None:
            return self.revoked
        beside = self.signers.parent / REVOKED
        return beside if beside.is_file() else None


def fingerprint(blob: bytes) -> str:
    """The key's id, as `ssh-keygen -l` shows it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def key_of(path: Path) -> bytes:
    """The key that made the signature of `path`, as the signature says; whether it did, `verify` tells."""
    place = signature_of(path)
    try:
        text = text_of(place, LARGEST)
    except FileNotFoundError as error:
        raise WmlceError(
            f"{path} is not signed: there is no {place.name} beside it",
            remedy="copy it too, or get the release from somebody who signs it",
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise _no_signature(place) from error
    match = re.fullmatch(
        r"-----BEGIN SSH SIGNATURE-----\n(.*)-----END SSH SIGNATURE-----\n?", text, re.DOTALL
    )
    try:
        data = base64.b64decode("".join(match[1].split()) if match else "", validate=True)
        if data[:6] != b"SSHSIG":
            raise ValueError(place)
        (length,) = struct.unpack(">I", data[10:14])
        blob = data[14 : 14 + length]
        (length,) = struct.unpack(">I", data[14 + len(blob) : 18 + len(blob)])
        purpose = data[18 + len(blob) : 18 + len(blob) + length].decode()
    except (ValueError, struct.error, binascii.Error) as error:
        raise _no_signature(place) from error
    if purpose != NAMESPACE:
        raise WmlceError(
            f"{place} was made for another purpose ({purpose!r}, not {NAMESPACE!r})",
            remedy="get the release again from where it was published",
        )
    return blob


def signature_of(path: Path) -> Path:
    return path.with_name(path.name + SUFFIX)


def _no_signature(place: Path) -> WmlceError:
    return WmlceError(
        f"{place} is not a complete SSH signature", remedy="get it again from where the release was published"
    )


def verify(path: Path, trust: Trust | None) -> str:
    """An error unless `path` is what a trusted key signed; the key's fingerprint. Without `trust` any key
    will do, and it is for the caller to say so.
    """
    program = _program()
    blob = key_of(path)
    name = fingerprint(blob)
    command = [program, "-Y", "check-novalidate", "-n", NAMESPACE, "-s", str(signature_of(path))]
    with tempfile.TemporaryDirectory(prefix="wmlce-signers-") as scratch:
        if trust is not None:
            signers = Path(scratch) / "allowed_signers"
            signers.write_text("".join(f"{line}\n" for line in _signer_lines(trust.signers)))
            who = _principal(signers, blob)
            if who is None:
                raise WmlceError(
                    f"{path} is signed by the key {name}, which {trust.signers} does not name",
                    remedy="if the owner confirms that this is their new key, add it there; if not, do not "
                    "use these files",
                )
            command = [program, "-Y", "verify", "-f", str(signers), "-I", who, "-n", NAMESPACE]
            command += ["-s", str(signature_of(path))]
            revoked = trust.revoked_file()
        else:
            revoked = None
        if revoked is not None:
            _readable(revoked, "the list of revoked keys")
            done = _checked([*command, "-r", str(revoked)], path)
            # ssh-keygen does not say why it refuses: would it, without the list?
            gone = done.returncode != 0 and _checked(command, path).returncode == 0
        else:
            done, gone = _checked(command, path), False
    if done.returncode == 0:
        return name
    output = (done.stdout + done.stderr).strip()
    if gone:
        raise WmlceError(
            f"{path} is signed by the key {name}, which is revoked",
            remedy="get the release again: its owner signs it with another key",
        )
    if re.search(r"expired|not yet valid|not valid", output, re.IGNORECASE):
        raise WmlceError(
            f"{path} is signed by the key {name}, which is not valid now",
            detail=output.splitlines()[-1:],
            remedy="see the dates in the file of trusted keys, and this machine's clock",
        )
    if "incorrect signature" in output or "verification failed" in output.lower():
        raise WmlceError(
            f"the signature {signature_of(path).name} does not match {path}",
            remedy="the file was changed or not copied whole: get both again",
        )
    if trust is not None:
        # would it do, whatever the key may sign?
        plain = [program, "-Y", "check-novalidate", "-n", NAMESPACE, "-s", str(signature_of(path))]
        if _checked(plain, path).returncode == 0:
            raise WmlceError(
                f"{path} is signed by the key {name}, and {trust.signers} does not allow that key to sign it",
                detail=output.splitlines()[-1:],
                remedy=f"see the options in the key's line there: namespaces, if it is there, must name "
                f"{NAMESPACE}; cert-authority is for certificates, and must not be there",
            )
    raise WmlceError(
        f"ssh-keygen could not check the signature of {path}",
        detail=output.splitlines()[-3:],
        remedy="it takes OpenSSH 8.2 or newer: ssh -V",
    )


def _program() -> str:
    program = shutil.which("ssh-keygen")
    if program is None:
        raise WmlceError(
            "there is no command ssh-keygen on this machine",
            remedy="install OpenSSH's client (package openssh-client or openssh-clients)",
        )
    return program


def _run(command: Sequence[str], **options: object) -> subprocess.CompletedProcess[str]:
    options.setdefault("stdin", subprocess.DEVNULL)
    try:
        done: subprocess.CompletedProcess[str] = subprocess.run(  # type: ignore[call-overload]
            list(command),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_LIMIT_S,
            check=False,
            env={**os.environ, "LC_ALL": "C.UTF-8"},
            **options,
        )
    except subprocess.TimeoutExpired as error:
        raise WmlceError(
            f"ssh-keygen did not end within {_LIMIT_S} s", remedy="see what it waits for"
        ) from error
    return done


def _checked(command: Sequence[str], path: Path) -> subprocess.CompletedProcess[str]:
    """ssh-keygen's answer about the content of `path`."""
    with open_file(path) as content:
        return _run(command, stdin=content)


def _readable(path: Path, title: str) -> str:
    try:
        with open_file(path) as stream:
            return stream.read(_LARGEST_TEXT).decode(errors="replace")
    except OSError as error:
        raise WmlceError(f"{title} {path} cannot be read: {error.strerror}", remedy="name another") from error


def _signer_lines(path: Path) -> list[str]:
    """Lines of an allowed-signers file; a file of public keys is made one."""
    lines = []
    for line in _readable(path, "the file of trusted keys").splitlines():
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        if key := _KEY.match(text):
            text = f'{PRINCIPAL} namespaces="{NAMESPACE}" {key["type"]} {key["blob"]}'
        if _KEY.search(text):
            lines.append(text)
    if not lines:
        raise WmlceError(
            f"{path} holds no public key",
            remedy="name the allowed-signers file, or the file KEY.pub, of who signs the releases",
        )
    return lines


def _principal(signers: Path, blob: bytes) -> str | None:
    """The first name of the key in a file of allowed signers. (`ssh-keygen -Y find-principals` is younger
    than verifying.)
    """
    encoded = base64.b64encode(blob).decode()
    for line in signers.read_text().splitlines():
        key = _KEY.search(line)
        if key is not None and key["blob"].rstrip("=") == encoded.rstrip("="):
            first = line.split()[0].strip('"').split(",")[0]
            return first.replace("*", "any").replace("?", "x")
    return None


def sign(paths: Sequence[Path], key: Path) -> str:
    """Write the signature of each file beside it; the key's fingerprint. A passphrase is asked for once.

    Signatures of an ed25519 key are the same each time.
    """
    program = _program()
    if not key.is_file():
        raise WmlceError(
            f"there is no key {key}", remedy=f"make one: wmlce release key new {key}; or name another"
        )
    with tempfile.TemporaryDirectory(prefix="wmlce-sign-") as scratch:
        # ssh-keygen writes beside what it signs, and asks before it replaces something
        links = [Path(scratch) / str(number) for number in range(len(paths))]
        for link, path in zip(links, paths, strict=True):
            link.symlink_to(path.absolute())
        done = _run([program, "-q", "-Y", "sign", "-f", str(key), "-n", NAMESPACE, *map(str, links)])
        signatures = [signature_of(link) for link in links]
        if done.returncode != 0 or not all(place.is_file() for place in signatures):
            raise WmlceError(
                f"nothing was signed with {key}",
                detail=done.stderr.strip().splitlines()[-3:],
                remedy="give the passphrase on a terminal, or by ssh-agent, and see that only you can read "
                "the key",
            )
        texts = [place.read_text() for place in signatures]
    for path, text in zip(paths, texts, strict=True):
        write_atomic(signature_of(path), text)
    return fingerprint(key_of(paths[0]))


@dataclass(frozen=True)
class Key:
    """private, public: files. signers: the file for those who check. id: the fingerprint."""

    private: Path
    public: Path
    signers: Path
    id: str


def new_key(path: Path, *, passphrase: bool) -> Key:
    """Make an ed25519 key in `path` and the files for those who check; ssh-keygen asks for the passphrase."""
    program = _program()
    public, signers = path.with_name(path.name + ".pub"), path.with_name(path.name + ".allowed_signers")
    for place in (path, public, signers):
        if place.exists() or place.is_symlink():
            raise WmlceError(f"{place} is there already", remedy="name another file; a key is never replaced")
    if passphrase and not sys.stdin.isatty():
        raise WmlceError(
            "there is no terminal to ask for the passphrase on",
            remedy="run it on one, or add --no-passphrase and keep the file where nobody else comes",
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    command = [program, "-q", "-t", "ed25519", "-C", PRINCIPAL, "-f", str(path)]
    if passphrase:
        code = subprocess.run(command, timeout=_LIMIT_S, check=False).returncode
        output = ""
    else:
        done = _run([*command, "-N", ""])
        code, output = done.returncode, done.stderr
    if code != 0 or not public.is_file():
        raise WmlceError(
            f"ssh-keygen made no key in {path}",
            detail=output.splitlines()[-2:],
            remedy="see its message",
        )
    write_atomic(signers, allowed_signers(public))
    return Key(path, public, signers, id_of(public))


def allowed_signers(public: Path) -> str:
    """The line for those who check."""
    return "".join(f"{line}\n" for line in _signer_lines(public))


def id_of(public: Path) -> str:
    """The fingerprint of a public key's file."""
    key = _KEY.search(_signer_lines(public)[0])
    assert key is not None
    return fingerprint(base64.b64decode(key["blob"]))


def revoke(public: Path, listed: Path) -> bool:
    """Add a public key to a list of revoked ones; False when it was there."""
    keys = [match for line in _signer_lines(public) if (match := _KEY.search(line))]
    lines = [f"{match['type']} {match['blob']}" for match in keys]
    text = _readable(listed, "the list of revoked keys") if listed.exists() else ""
    if "\0" in text or "SSHKRL" in text:
        raise WmlceError(
            f"{listed} is a binary list of revoked keys (KRL)",
            remedy=f"add the key with: ssh-keygen -k -u -f {listed} {public}",
        )
    new = [line for line in lines if line not in text]
    if new:
        write_atomic(
            listed, text + ("\n" if text and not text.endswith("\n") else "") + "\n".join(new) + "\n"
        )
    return bool(new)
