#!/usr/bin/env python3
"""Runs gRPC's interoperability cases between weft and others, both ways.

run.py PROGRAMS-DIR GO-PEER [--buf FILE] [--grpcurl FILE] [--curl FILE] [case...]

PROGRAMS-DIR has interop_server and interop_client, GO-PEER is tests/interop/peers/go. Exits with 1
when a case fails; what the failing side said comes before the table.
"""

import argparse
import concurrent.futures
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

UNARY = ["empty_unary", "large_unary", "client_compressed_unary", "custom_metadata", "special_status_message",
         "status_code_and_message", "unimplemented_method", "unimplemented_service"]
STREAMS = ["client_streaming", "server_streaming", "ping_pong", "empty_stream", "cancel_after_begin",
           "cancel_after_first_response", "timeout_on_sleeping_server"]
GRPC = UNARY + STREAMS + ["client_compressed_streaming"]
CONNECT = UNARY + STREAMS + ["cacheable_unary"]
OURS = GRPC + ["server_compressed_unary", "cacheable_unary"]
PATIENCE = 30  # seconds for one case; each peer gives up before


class Failure(Exception):
    pass


def run(command, **more):
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, **more)
    if done.returncode != 0:
        raise Failure(f"{' '.join(map(str, command))}\nexited with {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


@contextlib.contextmanager
def server(command):
    """Starts one that prints its address, and ends it."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        address = process.stdout.readline().strip()
        if not address:
            raise Failure(f"{' '.join(map(str, command))} did not start")
        yield address
    finally:
        process.stdin.close()
        process.terminate()
        process.wait(timeout=PATIENCE)


class Pairing:
    """A client and a server on one transport, and the cases they can do."""

    def __init__(self, name, client, address, cases):
        self.name, self.client, self.address, self.cases = name, client, address, cases

    def one(self, case):
        run([*self.client, self.address, case])


def pairings(stack, programs, peer, folder):
    """Starts every server; yields who is tried against whom."""
    certificate = str(folder / "cert.pem")
    weft = stack.enter_context(server([programs / "interop_server", folder]))
    port_of = f"localhost:{weft.rsplit(':', 1)[1]}"

    def go_client(over, *more):
        return [peer, "client", "-ca", certificate, "-over", over, *more]

    def our_client(ca, over, *more):
        return [programs / "interop_client", "--ca", ca, "--over", over, *more]

    def go_server(over):
        own = str(folder / f"go-{over}.pem")
        return own, stack.enter_context(server([peer, "server", "-cert", own, "-over", over]))

    for over, how in (("h2", "HTTP/2"), ("stream", "HTTP/2 in a QUIC stream")):
        yield Pairing(f"grpc-go -> weft, {how}", go_client(over), weft, GRPC)
        own, address = go_server(over)
        yield Pairing(f"weft -> grpc-go, {how}", our_client(own, over), address, GRPC)
    if (programs / "grpc_cpp_client").exists():
        where = folder / "grpc_cpp"
        where.mkdir()
        yield Pairing("gRPC C++ -> weft, HTTP/2 in a QUIC stream", [programs / "grpc_cpp_client", certificate], weft, GRPC)
        address = stack.enter_context(server([programs / "grpc_cpp_server", where]))
        yield Pairing("weft -> gRPC C++, HTTP/2 in a QUIC stream", our_client(where / "cert.pem", "stream"), address, GRPC)
    own, address = go_server("h3")
    for protocol in ("grpc", "grpcweb", "connect"):
        choice = ["-protocol", protocol]
        yield Pairing(f"connect-go -> weft, {protocol}, HTTP/3", go_client("h3", *choice), weft, CONNECT)
        yield Pairing(f"connect-go -> weft, {protocol}, JSON, HTTP/3", go_client("h3", *choice, "-json"), weft, CONNECT)
        ours = ["--protocol", protocol]
        yield Pairing(f"weft -> connect-go, {protocol}, HTTP/3", our_client(own, "h3", *ours), address, CONNECT)
        yield Pairing(f"weft -> connect-go, {protocol}, JSON, HTTP/3", our_client(own, "h3", *ours, "--json"),
                      address, CONNECT)
        for over in ("h3", "h2", "stream"):
            yield Pairing(f"weft -> weft, {protocol}, {over}", our_client(certificate, over, *ours), port_of, OURS)


class Tools:
    """Command lines of others against weft's server."""

    def __init__(self, arguments, address, folder):
        self.a, self.address, self.ca = arguments, address, str(folder / "cert.pem")
        self.url = f"https://{address}/grpc.testing.TestService/UnaryCall"

    def buf(self, protocol):
        text = run([self.a.buf, "curl", "--http3", "--protocol", protocol, "--cacert", self.ca,
                    "-d", '{"responseSize": 3}', self.url])
        self.expect(json.loads(text), {"payload": {"body": "AAAA"}})

    def curl_post(self):
        text = run([self.a.curl, "--silent", "--show-error", "--http3-only", "--cacert", self.ca, "--json",
                    '{"responseSize": 3}', "--write-out", "\n%{http_version} %{http_code}", self.url])
        body, end = text.rsplit("\n", 1)
        self.expect((json.loads(body), end), ({"payload": {"body": "AAAA"}}, "3 200"))

    def curl_get(self):
        url = self.url.replace("UnaryCall", "CacheableUnaryCall")
        text = run([self.a.curl, "--silent", "--show-error", "--http3-only", "--cacert", self.ca, "--get",
                    "--data-urlencode", "connect=v1", "--data-urlencode", "encoding=json",
                    "--data-urlencode", 'message={"responseSize":3}', url])
        self.expect(json.loads(text), {"payload": {"body": "AAAA"}})

    def grpcurl_list(self):
        names = run([self.a.grpcurl, "-cacert", self.ca, self.address, "list"]).split()
        self.expect("grpc.testing.TestService" in names, True)

    def grpcurl_call(self):
        text = run([self.a.grpcurl, "-cacert", self.ca, "-d", '{"responseSize": 3}', self.address,
                    "grpc.testing.TestService/UnaryCall"])
        self.expect(json.loads(text), {"payload": {"body": "AAAA"}})

    @staticmethod
    def expect(got, wanted):
        if got != wanted:
            raise Failure(f"wanted {wanted}, got {got}")

    def jobs(self):
        if self.a.buf:
            for protocol in ("grpc", "grpcweb", "connect"):
                yield f"buf curl, {protocol}, HTTP/3", "reflection and a call", lambda p=protocol: self.buf(p)
        if self.a.curl:
            yield "curl, connect, HTTP/3", "POST", self.curl_post
            yield "curl, connect, HTTP/3", "GET", self.curl_get
        if self.a.grpcurl:
            yield "grpcurl, HTTP/2", "list", self.grpcurl_list
            yield "grpcurl, HTTP/2", "call", self.grpcurl_call


def show(results):
    width = max(len(name) for name, _ in results)
    counts = {}
    for (name, _), failure in results.items():
        good, bad = counts.get(name, (0, 0))
        counts[name] = (good + (failure is None), bad + (failure is not None))
    for name, (good, bad) in counts.items():
        print(f"  {name:<{width}}  {good:3} passed" + (f", {bad} FAILED" if bad else ""))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", type=pathlib.Path)
    parser.add_argument("peer", type=pathlib.Path)
    parser.add_argument("--buf", type=pathlib.Path)
    parser.add_argument("--grpcurl", type=pathlib.Path)
    parser.add_argument("--curl")
    parser.add_argument("cases", nargs="*")
    arguments = parser.parse_args()
    results = {}
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        pool = stack.enter_context(concurrent.futures.ThreadPoolExecutor(os.cpu_count()))
        jobs = {}
        address = None
        for pairing in pairings(stack, arguments.programs, arguments.peer, folder):
            address = address or pairing.address
            for case in pairing.cases:
                if not arguments.cases or case in arguments.cases:
                    jobs[pairing.name, case] = pool.submit(pairing.one, case)
        if not arguments.cases:
            for name, case, job in Tools(arguments, address, folder).jobs():
                jobs[name, case] = pool.submit(job)
        for (name, case), job in jobs.items():
            results[name, case] = job.exception()
            if results[name, case] is not None:
                print(f"{name}: {case}: {results[name, case]}", file=sys.stderr)
    if not results:
        sys.exit("no case has such a name")
    show(results)
    failed = sum(failure is not None for failure in results.values())
    print(f"{len(results) - failed} cases passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
