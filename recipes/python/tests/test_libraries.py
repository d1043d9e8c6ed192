"""Every library that Python is built against is used for something real."""

import bz2
import ctypes
import curses
import hashlib
import http.server
import json
import lzma
import multiprocessing
import os
import pty
import readline
import select
import sqlite3
import ssl
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import unittest
import urllib.request
import uuid
import xml.etree.ElementTree
import zlib
import zoneinfo
from datetime import datetime
from pathlib import Path

PREFIX = os.environ["CONDA_PREFIX"]
DATA = bytes(range(256)) * 4000


def square(number: int) -> int:
    return number * number


class Compression(unittest.TestCase):
    def test_round_trips(self) -> None:
        for module in (zlib, bz2, lzma):
            packed = module.compress(DATA)
            self.assertLess(len(packed), len(DATA) // 10)
            self.assertEqual(module.decompress(packed), DATA)


class Hashes(unittest.TestCase):
    def test_openssl_and_builtin_agree(self) -> None:
        self.assertEqual(
            hashlib.sha256(b"abc").hexdigest(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        )
        for name in ("md5", "sha1", "sha512", "blake2b", "sha3_256"):
            self.assertIn(name, hashlib.algorithms_available)
            self.assertEqual(
                hashlib.new(name, DATA).digest(), getattr(hashlib, name)(DATA, usedforsecurity=False).digest()
            )
        self.assertEqual(len(hashlib.scrypt(b"word", salt=b"salt", n=16, r=1, p=1)), 64)


class Tls(unittest.TestCase):
    def test_handshake_on_loopback(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            key, cert = Path(folder, "key.pem"), Path(folder, "cert.pem")
            subprocess.run(
                ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                 "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
                 "-keyout", key, "-out", cert],
                check=True, capture_output=True, timeout=60,
            )  # fmt: skip

            class Answer(http.server.BaseHTTPRequestHandler):
                def do_GET(self) -> None:
                    self.send_response(200)
                    self.end_headers()
                    self.wfile.write(b"over TLS")

                def log_message(self, *_: object) -> None:
                    """Quiet."""

            server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
            served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            served.load_cert_chain(cert, key)
            server.socket = served.wrap_socket(server.socket, server_side=True)
            thread = threading.Thread(target=server.serve_forever, daemon=True)
            thread.start()
            try:
                url = f"https://localhost:{server.server_port}/"
                opener = urllib.request.build_opener(
                    urllib.request.ProxyHandler({}),
                    urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=cert)),
                )
                with opener.open(url, timeout=20) as reply:
                    self.assertEqual(reply.read(), b"over TLS")
                strict = urllib.request.build_opener(
                    urllib.request.ProxyHandler({}),
                    urllib.request.HTTPSHandler(context=ssl.create_default_context()),
                )
                with self.assertRaisesRegex(OSError, "CERTIFICATE_VERIFY_FAILED"):
                    strict.open(url, timeout=20)
            finally:
                server.shutdown()
                server.server_close()

    def test_authorities_of_the_environment(self) -> None:
        paths = ssl.get_default_verify_paths()
        self.assertEqual(os.path.realpath(paths.openssl_cafile), os.path.realpath(f"{PREFIX}/ssl/cert.pem"))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(paths.openssl_cafile)
        self.assertGreater(context.cert_store_stats()["x509_ca"], 100)


class Database(unittest.TestCase):
    def test_query(self) -> None:
        with sqlite3.connect(":memory:") as base:
            base.execute("create table t(x integer, y text)")
            base.executemany("insert into t values (?, ?)", [(n, str(n * n)) for n in range(100)])
            self.assertEqual(base.execute("select sum(x), max(length(y)) from t").fetchone(), (4950, 4))


class Foreign(unittest.TestCase):
    def test_call_and_callback(self) -> None:
        libc = ctypes.CDLL(None)
        numbers = (ctypes.c_int * 5)(4, 2, 5, 1, 3)
        kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))
        libc.qsort(numbers, 5, ctypes.sizeof(ctypes.c_int), kind(lambda a, b: a[0] - b[0]))
        self.assertEqual(list(numbers), [1, 2, 3, 4, 5])


class Terminal(unittest.TestCase):
    def test_readline_edits(self) -> None:
        self.assertNotIn("libedit", readline.__doc__ or "")
        pid, master = pty.fork()
        if pid == 0:  # two letters are typed, one is rubbed out, one more is typed
            os.execv(sys.executable, [sys.executable, "-c", "import readline; print('got', input('> '))"])
        os.write(master, b"ab\x7fc\r")
        text, end = b"", time.monotonic() + 20
        while b"got ac" not in text and time.monotonic() < end:
            if select.select([master], [], [], 0.5)[0]:
                try:
                    text += os.read(master, 1000)
                except OSError:
                    break
        os.waitpid(pid, 0)
        os.close(master)
        self.assertIn(b"got ac", text)

    def test_curses_knows_terminals(self) -> None:
        curses.setupterm("xterm-256color", os.open(os.devnull, os.O_RDWR))
        self.assertEqual(curses.tigetnum("colors"), 256)


class Rest(unittest.TestCase):
    def test_xml_uuid_json_zones(self) -> None:
        self.assertEqual(xml.etree.ElementTree.fromstring("<a><b>t &amp; u</b></a>").findtext("b"), "t & u")
        self.assertNotEqual(uuid.uuid1(), uuid.uuid1())
        self.assertEqual(json.loads(json.dumps({"x": [1.5, None]})), {"x": [1.5, None]})
        self.assertEqual(
            datetime(2025, 7, 1, 12, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin")).utcoffset().total_seconds(),
            7200,
        )
        self.assertEqual(zoneinfo.TZPATH, (f"{PREFIX}/share/zoneinfo",))

    def test_processes(self) -> None:
        for method in ("fork", "spawn"):
            with multiprocessing.get_context(method).Pool(2) as pool:
                self.assertEqual(pool.map_async(square, range(6)).get(timeout=60), [0, 1, 4, 9, 16, 25])

    def test_virtual_environment(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=120)
            found = subprocess.run(
                [f"{folder}/bin/python", "-c", "import sys, ssl; print(sys.prefix)"],
                check=True, capture_output=True, text=True, timeout=60,
            )  # fmt: skip
            self.assertEqual(os.path.realpath(found.stdout.strip()), os.path.realpath(folder))

    def test_extension_module(self) -> None:
        source = """
            #include <Python.h>
            static PyObject *answer(PyObject *self, PyObject *none) { return PyLong_FromLong(42); }
            static PyMethodDef methods[] = {{"answer", answer, METH_NOARGS, NULL}, {NULL}};
            static PyModuleDef module = {PyModuleDef_HEAD_INIT, "made", NULL, -1, methods};
            PyMODINIT_FUNC PyInit_made(void) { return PyModule_Create(&module); }
        """
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "made.c").write_text(source)
            target = Path(folder, "made" + sysconfig.get_config_var("EXT_SUFFIX"))
            command = [
                *sysconfig.get_config_var("LDSHARED").split(), *sysconfig.get_config_var("CCSHARED").split(),
                "-I", sysconfig.get_path("include"), "made.c", "-o", target,
            ]  # fmt: skip
            subprocess.run(command, cwd=folder, check=True, timeout=60)
            found = subprocess.run(
                [sys.executable, "-c", "import made; print(made.answer())"],
                cwd=folder, check=True, capture_output=True, text=True, timeout=60,
            )  # fmt: skip
            self.assertEqual(found.stdout, "42\n")


if __name__ == "__main__":
    unittest.main()
