#!/usr/bin/env python3
"""Runs weft's QUIC transport against others', both ways.

run.py INTEROP-QUIC GO-PEER [case...]

Each case fetches bytes of a known pattern, which the client checks, and then looks at what both ends
say they did: a Retry, a resumed session, a key update that did not happen is a failure. Exits with 1
when a case fails.
"""

import argparse
import dataclasses
import json
import pathlib
import subprocess
import sys
import tempfile

from relay import Relay

PATIENCE = 40  # seconds
MEGABYTE = 1 << 20


class Failure(Exception):
    pass


@dataclasses.dataclass
class Case:
    """What to run, and what must have happened. `both`: at both ends."""
    size: int = 1000
    streams: int = 1
    server: tuple = ()
    client: tuple = ()
    relay: dict = dataclasses.field(default_factory=dict)
    both: dict = dataclasses.field(default_factory=dict)
    at_server: dict = dataclasses.field(default_factory=dict)
    at_client: dict = dataclasses.field(default_factory=dict)
    only: str = ""  # "client" or "server": weft's role where the other side cannot begin it


CASES = {
    "handshake": Case(size=1),
    "transfer": Case(size=4 * MEGABYTE, streams=8),
    "retry": Case(server=("retry",), at_server={"retries": 1}),
    "resumption": Case(client=("resume",), both={"resumed": 1}),
    "0-RTT": Case(client=("early",), both={"early": 1}),
    "key update, by the client": Case(size=8 * MEGABYTE, client=("update-keys",), only="client",
                                      at_client={"key_updates": 1}),
    "key update, by the server": Case(size=8 * MEGABYTE, server=("update-keys",), only="server",
                                      at_server={"key_updates": 1}),
    "rebinding": Case(size=4 * MEGABYTE, relay={"rebind_after": 10}),
    "migration": Case(size=8 * MEGABYTE, client=("migrate",), only="client", at_client={"paths": 2}),
    "loss": Case(size=MEGABYTE, streams=4, relay={"loss": 0.05}),
    "corruption": Case(size=MEGABYTE, streams=4, relay={"corruption": 0.03}),
}


def last_json(text, whose):
    lines = [line for line in text.splitlines() if line.startswith("{")]
    if not lines:
        raise Failure(f"{whose} said nothing: {text}")
    return json.loads(lines[-1])


class Weft:
    name = "weft"

    def __init__(self, program, folder):
        self.program, self.certificate, self.folder = program, folder / "cert.pem", folder

    def server(self, flags):
        return [self.program, "server", self.folder, *("--" + each for each in flags)]

    def client(self, ca, case, address):
        return [self.program, "client", "--ca", ca, "--size", case.size, "--streams", case.streams,
                *("--" + each for each in case.client), address]

    @staticmethod
    def end(process):
        process.terminate()


class Go:
    name = "quic-go"

    def __init__(self, program, folder):
        self.program, self.certificate = program, folder / "go.pem"

    def server(self, flags):
        return [self.program, "server", "-cert", self.certificate, "-over", "quic", *("-" + each for each in flags)]

    def client(self, ca, case, address):
        return [self.program, "client", "-ca", ca, "-over", "quic", "-size", case.size, "-streams", case.streams,
                *("-" + each for each in case.client), address, "fetch"]

    @staticmethod
    def end(process):
        process.stdin.close()
        process.stdin = None


def words(command):
    return [str(each) for each in command]


def check(deeds, wanted, whose):
    for what, least in wanted.items():
        if deeds.get(what, 0) < least:
            raise Failure(f"{whose}: {what} is {deeds.get(what, 0)}, wanted at least {least}: {deeds}")


def run(client, server, case):
    serving = subprocess.Popen(words(server.server(case.server)), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               text=True)
    try:
        address = serving.stdout.readline().strip()
        host, _, port = address.rpartition(":")
        relay = Relay((host, int(port)), **case.relay)
        with relay as front:
            to = front if case.relay else address
            command = words(client.client(server.certificate, case, to))
            fetched = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
        if fetched.returncode != 0:
            raise Failure(f"{' '.join(command)}\nexited with {fetched.returncode}\n{fetched.stdout}{fetched.stderr}")
        server.end(serving)
        said, _ = serving.communicate(timeout=PATIENCE)
        at_client, at_server = last_json(fetched.stdout, client.name), last_json(said, server.name)
        check(at_client, case.both | case.at_client, f"{client.name}, the client")
        check(at_server, case.both | case.at_server, f"{server.name}, the server")
        for what in ("rebind_after", "loss", "corruption"):
            done = {"rebind_after": relay.rebindings, "loss": relay.lost, "corruption": relay.corrupted}[what]
            if case.relay.get(what) and not done:
                raise Failure(f"the relay never came to {what}")
        if case.relay.get("rebind_after") and server.name == "weft":
            check(at_server, {"paths": 2}, "weft, the server")
    finally:
        if serving.poll() is None:
            serving.kill()
            serving.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("weft", type=pathlib.Path)
    parser.add_argument("go", type=pathlib.Path)
    parser.add_argument("cases", nargs="*", help=", ".join(CASES))
    arguments = parser.parse_args()
    failed = passed = 0
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        weft, go = Weft(arguments.weft, folder), Go(arguments.go, folder)
        for client, server, role in ((weft, go, "client"), (go, weft, "server"), (weft, weft, "")):
            done = []
            for name, case in CASES.items():
                if arguments.cases and name not in arguments.cases:
                    continue
                if case.only and role and case.only != role:
                    continue
                try:
                    run(client, server, case)
                    done.append(name)
                    passed += 1
                except (Failure, subprocess.TimeoutExpired) as why:
                    print(f"{client.name} -> {server.name}: {name}: {why}", file=sys.stderr)
                    failed += 1
            print(f"  QUIC, {client.name} -> {server.name}: {', '.join(done) or 'nothing'}")
    if passed + failed == 0:
        sys.exit("no case has such a name")
    print(f"{passed} QUIC cases passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
