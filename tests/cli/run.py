"""run.py WEFT SERVER PROTOC: `weft call` and `weft ls` against servers on loopback."""

import concurrent.futures
import fcntl
import itertools
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback

import fakes

WEFT, SERVER, PROTOC = sys.argv[1:4]
LIMIT = 60  # seconds for one command that hangs
SERVICE = "cli.v1.CliService"
HTTP = ["grpc", "grpc-web", "connect"]
WAYS = [("native", version, "proto") for version in "32"] + list(
    itertools.product(HTTP, "32", ["proto", "json"]))
LOOKUPS = [how for how in WAYS if how[2] == "proto"]  # they never go by JSON
CODES = 17

tests = []


def test(*cases):
    """Registers a test, once for each of `cases`: its arguments."""

    def register(function):
        for case in cases or [()]:
            tests.append((" ".join([function.__name__, *map(str, case)]), function, case))
        return function

    return register


class Result:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    def __str__(self):
        return f"exit code {self.code}\nstdout: {self.out[-2000:]}\nstderr: {self.err[-2000:]}"

    @property
    def messages(self):
        return [json.loads(line) for line in self.out.splitlines()]


class World:
    """The servers, and how to call them."""

    def __init__(self, folder):
        self.folder = folder
        self.process = subprocess.Popen([SERVER, folder], stdout=subprocess.PIPE, text=True)
        self.at = {}
        for line in self.process.stdout:
            name, value = line.split()
            self.at[name] = value
            if name == "ready":
                break
        assert "ready" in self.at, "the server did not start"
        self.ca = ["--ca", f"{folder}/cert.pem"]

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(LIMIT)

    def weft(self, *arguments, stdin=""):
        given = {"input": stdin} if isinstance(stdin, str) else {"stdin": stdin}
        done = subprocess.run([WEFT, *arguments], capture_output=True, text=True, timeout=LIMIT, **given)
        return Result(done.returncode, done.stdout, done.stderr)

    def call(self, method, *arguments, server="all", stdin=""):
        target = self.at.get(server, server)
        return self.weft("call", target, f"{SERVICE}/{method}", *self.ca, *arguments, stdin=stdin)


def way(protocol, version, codec="proto"):
    return ["--protocol", protocol, "--http", version, "--codec", codec]


def expect(result, code, *texts):
    assert result.code == code, f"wanted exit code {code}: {result}"
    for text in texts:
        assert text in result.err, f"wanted {text!r} on stderr: {result}"


# Calls ------------------------------------------------------------------------------------------------


@test(*WAYS)
def unary(w, *how):
    done = w.call("Echo", *way(*how), "-v", "-H", "x-color: blue", "-d",
                  '{"text": "hi", "number": 5, "pause": "1.5s"}')
    expect(done, 0)
    assert done.messages == [{"text": "hi", "number": "5", "pause": "1.500s"}], done
    protocol, version, codec = how
    carrier = "quic" if version == "3" else "tls-tcp"
    alpn = "weft/1" if protocol == "native" else "h3" if version == "3" else "h2"
    expect(done, 0, f"(ALPN {alpn})", f"> /{SERVICE}/Echo", "> x-color: blue", "< x-color: blue",
           f"< seen-protocol: {protocol}", f"< seen-transport: {carrier}", f"< seen-codec: {codec}",
           "<< farewell: bye")


@test(*WAYS)
def server_streaming(w, *how):
    done = w.call("Count", *way(*how), "-d", '{"number": 40}')
    expect(done, 0)
    assert done.messages == [{"number": str(i)} for i in range(1, 41)], done


@test(*WAYS)
def client_streaming(w, *how):
    done = w.call("Join", *way(*how), "-d", '{"text": "a"} {"text": "b"}', "-d", "@-", "-d", '{"text": "e"}',
                  stdin='{"text": "c"}{"text": "d"}')
    expect(done, 0)
    assert done.messages == [{"text": "abcde", "number": "5"}], done


@test(*WAYS)
def bidi_streaming_as_they_come(w, *how):
    process = subprocess.Popen(
        [WEFT, "call", w.at["all"], f"{SERVICE}/Chat", *w.ca, *way(*how)], text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    watchdog = threading.Timer(LIMIT, process.kill)
    watchdog.start()
    with process:
        for i in range(5):  # each reply is there before the next request is written
            process.stdin.write(json.dumps({"text": f"t{i}"}) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
            assert line == f'{{"text":"t{i}"}}\n', (line, process.poll())
        out, err = process.communicate()
    watchdog.cancel()
    assert (process.returncode, out) == (0, ""), (process.returncode, out, err)


@test(*WAYS)
def statuses_become_exit_codes(w, *how):
    for code in [5, 16] if how[2] == "proto" else [9]:
        done = w.call("Fail", *way(*how), "-d", json.dumps({"code": code, "message": f"no {code}"}))
        expect(done, code, f": no {code}")
        assert done.out == "", done


@test(*[(code,) for code in range(1, CODES)])
def every_status_is_an_exit_code(w, code):
    expect(w.call("Fail", "-d", json.dumps({"code": code})), code)


@test(*WAYS)
def server_ends_a_stream_while_input_is_open(w, *how):
    ours, theirs = socket.socketpair()  # never closed by us before the command has ended
    with ours, theirs:
        ours.sendall(b'{"text": "a"} {"text": "end"} ')
        done = w.call("Chat", *way(*how), stdin=theirs.fileno())
    expect(done, 10, "as was asked")
    assert done.messages == [{"text": "a"}], done


@test(("native", "3"), ("grpc", "3"), ("connect", "2"))
def deadline(w, *how):
    expect(w.call("Hang", *way(*how), "--timeout", "0.3"), 4, "deadline")


@test()
def connect_by_get(w):
    get = ["--protocol", "connect", "--get", "-v"]
    for version in "32":
        expect(w.call("Echo", *get, "--http", version, "-d", '{"text": "a b"}'), 0, "seen-method: GET")
    expect(w.call("Hang", *get), 64, "NO_SIDE_EFFECTS")
    expect(w.call("Echo", "--get"), 64, "--protocol connect")


@test()
def default_target_is_local(w):
    expect(w.weft("call", f"{SERVICE}/Echo", "--timeout", "5"), 14, "localhost:8443")


# Input ------------------------------------------------------------------------------------------------


@test()
def input_from_every_kind_of_file(w):
    file = pathlib.Path(w.folder, "requests.json")
    file.write_text('{"text": "a"}\n\n{"text":\n"}{"}')
    joined = [{"text": "a}{", "number": "2"}]
    done = w.call("Join", "-d", f"@{file}")
    assert done.messages == joined, done
    with open(file) as stdin:
        done = w.call("Join", stdin=stdin)
    assert done.messages == joined, done
    done = w.call("Join", stdin=subprocess.DEVNULL)
    assert done.messages == [{}], done
    command = [WEFT, "call", w.at["all"], f"{SERVICE}/Join", *w.ca]
    closed = subprocess.run(["sh", "-c", '"$@" <&-', "sh", *command], capture_output=True, text=True,
                            timeout=LIMIT)
    assert (closed.returncode, closed.stdout) == (0, "{}\n"), closed


@test()
def input_is_left_as_it_was(w):
    """Whoever shares standard input would meet EAGAIN."""
    reading, writing = os.pipe()
    process = subprocess.Popen([WEFT, "call", w.at["all"], f"{SERVICE}/Chat", *w.ca], text=True,
                               stdin=reading, stdout=subprocess.PIPE)
    with process:
        os.write(writing, b'{"text": "a"}')
        assert process.stdout.readline() == '{"text":"a"}\n'
        assert not fcntl.fcntl(reading, fcntl.F_GETFL) & os.O_NONBLOCK
        os.close(writing)
    os.close(reading)
    assert process.returncode == 0


@test(("native", "3"), ("grpc", "3"), ("connect", "2"))
def much_input(w, *how):
    count = 5000
    lines = "".join('{"text": "%d"}\n' % i for i in range(count))
    done = w.call("Chat", *way(*how), stdin=lines)
    expect(done, 0)
    assert done.messages == [{"text": str(i)} for i in range(count)], done
    large = "x" * 3_000_000
    done = w.call("Echo", *way(*how), "-d", "-", stdin=json.dumps({"text": large}))
    expect(done, 0)
    assert done.messages == [{"text": large}], len(done.out)


@test()
def input_that_is_wrong(w):
    for data, text in [('{"tex": "a"}', "tex"), ("{", "JSON"), ("12", "JSON"), ('{"text": "a"}{}', "one request"),
                       ("@/no/such/file", "cannot read"), ("}", "JSON")]:
        done = w.call("Echo", "-d", data)
        expect(done, 64, text)
        assert done.out == "", done
    # Those before it were sent.
    done = w.call("Chat", stdin='{"text": "a"} {"no": 1}')
    expect(done, 64, "no")


@test()
def arguments_that_are_wrong(w):
    for arguments in [["call"], ["call", "127.0.0.1:1", "Echo"], ["call", "no-port", f"{SERVICE}/Echo"],
                      ["call", "127.0.0.1:1", "a.B/C", "--protocol", "soap"],
                      ["call", "127.0.0.1:1", "a.B/C", "--pin", "sha256:12"],
                      ["call", "127.0.0.1:1", "a.B/C", "-H", "no colon"],
                      ["call", "127.0.0.1:1", "a.B/C", "--codec", "json"],
                      ["call", "127.0.0.1:1", "a.B/C", "--http", "3", "--carrier", "quic"],
                      ["call", "127.0.0.1:1", "a.B/C", "--cert", f"{w.folder}/cert.pem"],
                      ["call", "127.0.0.1:1", "a.B/C", "--descriptor-set", f"{w.folder}/cert.pem"],
                      ["ls"], ["nonsense"]]:
        done = w.weft(*arguments)
        assert done.code == 64 and done.out == "" and done.err != "", (arguments, str(done))
    assert "Exit code" in w.weft("call", "--help").out


# Descriptors ------------------------------------------------------------------------------------------


@test(*LOOKUPS)
def reflection_when_nothing_better_is_there(w, *how):
    expect(w.call("Echo", *way(*how), "-v", server="reflection-only"), 0,
           "descriptors: gRPC server reflection")
    done = w.weft("ls", w.at["reflection-only"], *w.ca, *way(*how))
    expect(done, 0)
    assert SERVICE in done.out.splitlines() and "weft.describe" not in done.out, done


@test(("native", "3"), ("grpc", "2"), ("connect", "3"))
def without_any_descriptors(w, *how):
    for done in [w.call("Echo", *way(*how), server="undescribed"),
                 w.weft("ls", w.at["undescribed"], *w.ca, *way(*how))]:
        expect(done, 12, "weft.describe.v1.DescribeService", "v1 and v1alpha", "--descriptor-set")


@test()
def descriptors_from_a_file(w):
    file = f"{w.folder}/cli.pb"
    here = pathlib.Path(__file__).parent
    subprocess.run([PROTOC, f"--proto_path={here}", "--include_imports", f"--descriptor_set_out={file}",
                    "cli/v1/cli.proto"], check=True, timeout=LIMIT)
    given = ["--descriptor-set", file]
    for how in [("native", "3"), ("grpc", "2", "json")]:
        done = w.call("Echo", *way(*how), *given, "-d", '{"text": "a"}', server="undescribed")
        expect(done, 0)
        assert done.messages == [{"text": "a"}], done
    expect(w.call("Nope", *given, server="undescribed"), 12, "Echo, Fail, Hang")
    done = w.weft("ls", w.at["undescribed"], *w.ca, *given)
    assert done.out == f"{SERVICE}\n", done


@test(("all",), ("reflection-only",))
def names_that_do_not_exist(w, server):
    expect(w.call("Nope", server=server), 12, "it has: Echo, Fail, Hang, Count, Join, Chat")
    done = w.weft("call", w.at[server], "cli.v1.Nope/Echo", *w.ca)
    expect(done, 12, "no service cli.v1.Nope", SERVICE)
    expect(w.weft("ls", w.at[server], "cli.v1.Nope", *w.ca), 12, "no service cli.v1.Nope", SERVICE)


@test(*LOOKUPS)
def listing(w, *how):
    done = w.weft("ls", w.at["all"], *w.ca, *way(*how))
    expect(done, 0)
    assert {SERVICE, "grpc.health.v1.Health", "weft.describe.v1.DescribeService"} <= set(done.out.split()), done
    done = w.weft("ls", w.at["all"], SERVICE, *w.ca, *way(*how))
    expect(done, 0)
    lines = [line.split() for line in done.out.splitlines()]
    text = "cli.v1.Text"
    assert lines == [["Echo", "unary", text, "->", text, "no-side-effects"],
                     ["Fail", "unary", "cli.v1.FailRequest", "->", text],
                     ["Hang", "unary", text, "->", text],
                     ["Count", "server-streaming", text, "->", "stream", text],
                     ["Join", "client-streaming", "stream", text, "->", text],
                     ["Chat", "bidi-streaming", "stream", text, "->", "stream", text]], done


@test()
def listing_as_json(w):
    done = json.loads(w.weft("ls", w.at["all"], "--json", *w.ca).out)
    assert SERVICE in done["services"], done
    done = json.loads(w.weft("ls", w.at["all"], SERVICE, "--json", *w.ca).out)
    assert done["methods"][0] == {
        "name": "Echo", "path": f"/{SERVICE}/Echo", "kind": "unary", "request": "cli.v1.Text",
        "reply": "cli.v1.Text", "idempotency": "no-side-effects"}, done
    assert [m["kind"] for m in done["methods"][3:]] == ["server-streaming", "client-streaming", "bidi-streaming"]


# What does not match ----------------------------------------------------------------------------------


def call_untrusted(w, target, how, *arguments):
    return w.weft("call", target, f"{SERVICE}/Echo", *way(*how), *arguments)


FIT = [("native", "3"), ("native", "2"), ("grpc", "3"), ("connect", "2")]


@test(*FIT)
def certificate_nobody_vouches_for(w, *how):
    expect(call_untrusted(w, w.at["all"], how), 14, "not trusted", w.at["ready"], "who it is", "--ca FILE")
    wrong = "sha256:" + "0" * 64
    expect(call_untrusted(w, w.at["all"], how, "--pin", wrong), 14, "none of the 1 pinned", "--pin")
    expect(call_untrusted(w, w.at["all"], how, "--pin", w.at["ready"]), 0)
    expect(call_untrusted(w, w.at["all"], how, "--insecure"), 0)


@test(*FIT)
def certificate_for_another_name(w, *how):
    trust = ["--ca", f"{w.folder}/other.pem"]
    expect(call_untrusted(w, w.at["elsewhere"], how, *trust), 14, "valid for elsewhere.example, not for 127.0.0.1",
           "--server-name")
    expect(call_untrusted(w, w.at["elsewhere"], how, *trust, "--server-name", "elsewhere.example"), 0)


@test(*FIT)
def certificate_wanted_from_us(w, *how):
    expect(w.call("Echo", *way(*how), server="mutual"), 14, "certificate required", "--cert FILE and --key FILE")
    ours = ["--cert", f"{w.folder}/cert.pem", "--key", f"{w.folder}/key.pem"]
    expect(w.call("Echo", *way(*how), *ours, server="mutual"), 0)
    mixed = ["--cert", f"{w.folder}/other.pem", "--key", f"{w.folder}/key.pem"]
    expect(w.call("Echo", *way(*how), *mixed, server="mutual"), 64, "does not belong")


@test(("grpc", "3"), ("connect", "2"))
def server_without_http(w, *how):
    alpn = "h3" if how[1] == "3" else "h2"
    expect(w.call("Echo", *way(*how), server="native-only"), 14, f"ALPN): {alpn}", f"wanted: {how[0]}",
           "found: weft's own protocol on QUIC (ALPN weft/1)", "try: --protocol native")


@test(("native",), ("grpc",))
def server_without_tcp(w, protocol):
    expect(w.call("Echo", *way(protocol, "2"), server="quic-only"), 14, "Connection refused", "on QUIC",
           "try: --http 3")


@test(("native", "3"), ("native", "2"))
def native_to_a_grpc_server(w, *how):
    server = fakes.other_tls(w.folder, ["h2"])
    expect(w.call("Echo", *way(*how), server=server), 14, "found: HTTP/2 on TLS/TCP (ALPN h2)",
           "try: --protocol grpc --http 2")


@test(("grpc", "3"), ("native", "2"), ("grpc", "2"))
def something_that_is_no_tls(w, *how):
    texts = ["nothing listens"] if how[1] == "3" else ["not TLS"]
    expect(w.call("Echo", *way(*how), server=fakes.plain_http()), 14, *texts, "found: nothing that weft speaks")


@test(("native", []), ("grpc", []), ("grpc", ["http/1.1"]))
def tls_that_speaks_something_else(w, protocol, alpn):
    expect(w.call("Echo", *way(protocol, "2"), server=fakes.other_tls(w.folder, alpn)), 14,
           "chose no application protocol (ALPN); offered", "found: nothing that weft speaks")


@test(*FIT)
def nobody_there(w, *how):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    expect(w.call("Echo", *way(*how), server=f"127.0.0.1:{port}"), 14, "refused",
           "found: nothing that weft speaks", "does the server run")


@test(("grpc", 502, 14), ("grpc-web", 503, 14), ("connect", 502, 14), ("grpc", 404, 12), ("connect", 404, 12),
      ("grpc", 401, 16), ("connect", 403, 7))
def error_page_of_a_proxy(w, protocol, status, code):
    server = fakes.web_proxy(w.folder, status)
    expect(w.call("Echo", *way(protocol, "2"), server=server), code, f"HTTP status {status}", "text/html")


@test()
def name_without_address(w):
    done = w.call("Echo", server="nobody.invalid:1")
    expect(done, 14, "looking up the name nobody.invalid")
    assert "found:" not in done.err, done


# Running ----------------------------------------------------------------------------------------------


def main():
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        world = World(folder)

        def run(entry):
            name, function, case = entry
            try:
                function(world, *case)
            except Exception:  # reported below
                failures.append(f"{name}:\n{traceback.format_exc()}")

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            list(pool.map(run, tests))
        ended = world.end()
        if ended != 0:
            failures.append(f"the server ended with {ended}")
    for each in failures:
        print(each)
    print(f"{len(tests) - len(failures)} passed, {len(failures)} failed")
    return 1 if failures else 0


sys.exit(main())
