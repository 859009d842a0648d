"""A UDP relay between one client and one server that loses, corrupts and comes from elsewhere, by seed."""

import random
import selectors
import socket
import threading


class Relay:
    """Runs between `with`. `rebind_after`: datagrams to the server after which they come from a new port."""

    def __init__(self, server, seed=1, loss=0.0, corruption=0.0, rebind_after=None):
        self.server = server
        self.random = random.Random(seed)
        self.loss, self.corruption, self.rebind_after = loss, corruption, rebind_after
        self.forwarded = self.lost = self.corrupted = self.rebindings = 0
        self.front = self._socket()
        self.front.bind(("127.0.0.1", 0))
        self.back = self._socket()
        self.client = None
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._run)

    @staticmethod
    def _socket():
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        made.setblocking(False)
        return made

    def __enter__(self):
        self.thread.start()
        return "127.0.0.1:%d" % self.front.getsockname()[1]

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        self.front.close()
        self.back.close()

    def _run(self):
        with selectors.DefaultSelector() as ready:
            ready.register(self.front, selectors.EVENT_READ)
            ready.register(self.back, selectors.EVENT_READ)
            while not self.over.is_set():
                for key, _ in ready.select(timeout=0.05):
                    if key.fileobj is self.front:
                        self._to_server(ready)
                    elif key.fileobj is self.back:
                        self._to_client()

    def _to_server(self, ready):
        try:
            data, self.client = self.front.recvfrom(65536)
        except BlockingIOError:
            return
        if self.forwarded == self.rebind_after:
            ready.unregister(self.back)
            self.back.close()
            self.back = self._socket()
            ready.register(self.back, selectors.EVENT_READ)
            self.rebindings += 1
        if data := self._treated(data):
            self.back.sendto(data, self.server)
            self.forwarded += 1

    def _to_client(self):
        try:
            data = self.back.recv(65536)
        except (BlockingIOError, ConnectionRefusedError):
            return
        if data := self._treated(data):
            self.front.sendto(data, self.client)

    def _treated(self, data):
        if self.random.random() < self.loss:
            self.lost += 1
            return None
        if self.random.random() < self.corruption:
            self.corrupted += 1
            at = self.random.randrange(len(data))
            data = data[:at] + bytes([data[at] ^ (1 << self.random.randrange(8))]) + data[at + 1:]
        return data
