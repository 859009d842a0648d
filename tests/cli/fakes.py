"""Servers that are not what the command line expects."""

import socket
import ssl
import threading


def _serve(answer, tls=None):
    listener = socket.create_server(("127.0.0.1", 0))

    def one(connection):
        try:
            with connection:
                connection.settimeout(30)
                answer(tls.wrap_socket(connection, server_side=True) if tls else connection)
        except (OSError, ValueError):
            pass  # the client went away

    def accept():
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=one, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return "127.0.0.1:%d" % listener.getsockname()[1]


def _read_until_closed(connection):
    while connection.recv(4096):
        pass


def _context(folder, alpn):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(f"{folder}/cert.pem", f"{folder}/key.pem")
    if alpn:
        context.set_alpn_protocols(alpn)
    return context


def plain_http():
    """HTTP/1.1 without TLS."""

    def answer(connection):
        connection.recv(4096)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")

    return _serve(answer)


def other_tls(folder, alpn):
    """TLS that speaks `alpn`, and says nothing on it."""
    return _serve(_read_until_closed, _context(folder, alpn))


def _frame(kind, flags, stream, payload=b""):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def _field(name, value):  # HPACK: literal without indexing (RFC 7541 section 6.2.2)
    return bytes([0, len(name)]) + name + bytes([len(value)]) + value


def web_proxy(folder, status):
    """HTTP/2 that answers every request with an error page."""

    def read(connection, size):
        got = b""
        while len(got) < size:
            more = connection.recv(size - len(got))
            if not more:
                raise ValueError("closed")
            got += more
        return got

    def answer(connection):
        read(connection, len(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
        connection.sendall(_frame(4, 0, 0))
        head = _field(b":status", str(status).encode()) + _field(b"content-type", b"text/html")
        while True:
            header = read(connection, 9)
            read(connection, int.from_bytes(header[:3], "big"))
            stream = int.from_bytes(header[5:], "big")
            if header[3] == 4 and not header[4] & 1:
                connection.sendall(_frame(4, 1, 0))
            if header[3] == 1:
                page = _frame(0, 1, stream, b"<html>no</html>")
                connection.sendall(_frame(1, 4, stream, head) + page)

    return _serve(answer, _context(folder, ["h2"]))
