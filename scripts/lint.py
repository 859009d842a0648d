#!/usr/bin/env python3
"""What ./dev lint checks beyond format.

lint.py sources            layers, public headers' names
lint.py archives BUILD     the cores' archives import neither sockets nor clocks
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PURE = ["quic_core", "http_core", "rpc_core", "rpc_native_wire", "rpc_http_wire", "sim"]
FORBIDDEN_SYMBOL = re.compile(
    r"^(socket|sendto|sendmsg|recvfrom|recvmsg|sendmmsg|recvmmsg|clock_gettime|gettimeofday|time|nanosleep"
    r"|std::chrono::.*_clock::now\(\))$")
FOREIGN_NAME = re.compile(
    r"ngtcp2|nghttp|openssl|\b(SSL|SSL_\w+|BIO|BIO_\w+|EVP_\w+|X509\w*|ZSTD_\w+|z_stream)\b", re.IGNORECASE)
SYSTEM_HEADER = re.compile(r"<(asio[/.]|boost/|sys/|netinet/|arpa/|linux/|unistd\.h|netdb\.h|poll\.h)")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def modules():
    """Room -> (all rooms it may use, itself included; whether it may see Asio; what its tests may
    use besides), from CMakeLists.txt."""
    text = re.sub(r"#[^\n]*", "", (ROOT / "CMakeLists.txt").read_text())
    found = {}
    for call in re.findall(r"weft_module\(([^)]*)\)", text):
        path, *words = call.split()
        used, asio, tests, section = {path}, False, set(), ""
        for word in words:
            if word in ("USES", "LIBRARIES", "TEST_USES"):
                section = word
            elif word == "ASIO":
                asio, section = True, ""
            elif section.endswith("USES"):
                if word not in found:
                    sys.exit(f"lint: CMakeLists.txt: {path} uses {word}, which is not to its left")
                if section == "TEST_USES":
                    tests |= found[word][0]
                    continue
                used |= found[word][0]
                asio |= found[word][1]
        found[path] = (used, asio, tests)
    return found


def room_of(path, rooms):
    """The room a path below weft/ belongs to: the longest that contains it."""
    folder = pathlib.PurePosixPath(path).parent
    while str(folder) not in rooms and folder != folder.parent:
        folder = folder.parent
    return str(folder) if str(folder) in rooms else None


def is_internal(header):
    if header.name.startswith("test_") or header.name.endswith("_test.hpp"):
        return True
    return any(re.match("// (Internal|For tests)", line) for line in header.read_text().splitlines())


def check_file(path, rooms, complain):
    name = path.relative_to(ROOT)
    room = room_of(path.relative_to(ROOT / "weft").as_posix(), rooms)
    if room is None:
        return complain(f"{name}: belongs to no weft_module in CMakeLists.txt")
    may_use, asio, tests = rooms[room]
    test, public = path.name.endswith("_test.cpp"), path.suffix == ".hpp" and not is_internal(path)
    text = path.read_text()
    for bracket, target in INCLUDE.findall(text):
        if target.startswith("weft/"):
            if bracket == '"':
                complain(f'{name}: write #include <{target}>')
            used = room_of(target.removeprefix("weft/"), rooms)
            if used not in may_use and not (test and (used == "sim" or used in tests)):
                complain(f"{name}: {room} may not use {target}")
            if public and (ROOT / target).exists() and is_internal(ROOT / target):
                complain(f"{name}: a public header includes the internal {target}")
        elif not asio and not test and SYSTEM_HEADER.match(f"<{target}>") and room.replace("/", "_") in PURE:
            complain(f"{name}: {room} is pure and may not use <{target}>")
    if path.suffix == ".hpp" and "#pragma once" not in text:
        complain(f"{name}: no #pragma once")
    if public:
        code = COMMENT.sub(lambda comment: "\n" * comment[0].count("\n"), text)
        if found := FOREIGN_NAME.search(code):
            line = code.count("\n", 0, found.start()) + 1
            complain(f"{name}:{line}: a public header names {found[0]}; "
                     "hide it, or begin the file with '// Internal.'")


# g++ 14 evaluates a co_await that short-circuiting or a conditional should have skipped, in these forms.
MISCOMPILED_AWAIT = re.compile(
    r"co_return\b[^;]*(&&|\|\||\?)[^;]*\bco_await"
    r"|\bwhile \([^;{]*(&&|\|\|)\s*!?\(?co_await"
    r"|(&&|\|\|)\s*!?\(?co_await[^;]*(&&|\|\|)")


def check_awaits(path, complain):
    text = path.read_text()
    for found in MISCOMPILED_AWAIT.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        complain(f"{path.relative_to(ROOT)}:{line}: g++ 14 may run this co_await although it should be skipped; "
                 "give it a statement of its own")


def sources(complain):
    rooms = modules()
    for path in sorted((ROOT / "weft").rglob("*")):
        if path.suffix in (".hpp", ".cpp"):
            check_file(path, rooms, complain)
    for folder in ("weft", "apps", "bench", "examples", "tests", "tools"):
        for path in sorted((ROOT / folder).rglob("*.?pp")):
            check_awaits(path, complain)


def archives(complain, build):
    for name in PURE:
        archive = next(pathlib.Path(build).rglob(f"libweft_{name}.a"), None)
        if archive is None:
            complain(f"libweft_{name}.a is not built in {build}")
            continue
        listing = subprocess.run(["nm", "-A", "-u", "-C", archive], capture_output=True, text=True, check=True)
        for line in listing.stdout.splitlines():
            where, _, symbol = line.partition(" U ")
            if FORBIDDEN_SYMBOL.match(symbol.strip().split("@")[0]):
                complain(f"{':'.join(where.split(':')[-3:-1])}: imports {symbol.strip()}")


def main(what, *arguments):
    complaints = []
    {"sources": sources, "archives": archives}[what](complaints.append, *arguments)
    for complaint in complaints:
        print(f"lint: {complaint}", file=sys.stderr)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
