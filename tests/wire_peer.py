# SPDX-License-Identifier: Apache-2.0
"""
wire_peer.py - the other side of kvtool transfer-sim wire, said a second time

wire_peer.py PORT CODE: connects to the port and does that with the socket s.  With - for
PORT it says that it is there, in the file "ready", and waits for the one that "err" names.
"""
import hashlib
import hmac
import os
import re
import socket
import struct
import subprocess
import sys
import time

HELLO, ASK, OPS, END, FAIL, BYE, ADDRESS, NONCE, PROOF = range(1, 10)


def frame(kind, payload=b""):
    return b"KVT2" + struct.pack("<IQ", kind, len(payload)) + payload


def exactly(s, n):
    got = b""
    while len(got) < n:
        more = s.recv(n - len(got))
        if not more:
            raise EOFError(f"{len(got)} of {n} bytes: {got}")
        got += more
    return got


def take(s):
    """(type, payload) of a frame."""
    head = exactly(s, 16)
    assert head[:4] == b"KVT2", head
    kind, n = struct.unpack("<IQ", head[4:])
    return kind, exactly(s, n)


def proof(secret, name, listener, source):
    return hmac.new(secret, name.ljust(24, b"\0") + listener + source,
                    hashlib.sha256).digest()


def meet(s, secret=b""):
    """As the one who connects."""
    mine = os.urandom(32)
    s.sendall(frame(NONCE, bytes([bool(secret)]) + mine))
    kind, payload = take(s)
    assert kind == NONCE and payload[0] == bool(secret), (kind, payload)
    theirs = payload[1:]
    if secret:
        s.sendall(frame(PROOF, proof(secret, b"kvtool wire 2: source", theirs, mine)))
        want = proof(secret, b"kvtool wire 2: listener", theirs, mine)
        assert take(s) == (PROOF, want)


def heard(s, secret=b""):
    """As the one who listens, of somebody who just connected."""
    kind, payload = take(s)
    assert kind == NONCE and payload[0] == bool(secret), (kind, payload)
    s.sendall(frame(NONCE, bytes([bool(secret)]) + os.urandom(32)))
    return payload[1:]


def back(s, frames=1):
    """Sends the other side's frames back to it."""
    for _ in range(frames):
        s.sendall(frame(*take(s)))


def drip(s, data, pause=.2):
    """A byte now and then, until the other side has enough of it."""
    try:
        for byte in data:
            s.sendall(bytes([byte]))
            time.sleep(pause)
    except OSError:
        pass


def rest(s):
    """Until the other side has enough."""
    try:
        while s.recv(4096):
            pass
    except OSError:
        pass


def port_of_file():
    with open("ready", "w", encoding="ascii"):
        pass
    end = time.monotonic() + 120
    while time.monotonic() < end:
        try:
            with open("err", encoding="utf-8") as f:
                found = re.search(r"^waiting at port (\d+)\n", f.read(), re.M)
        except FileNotFoundError:
            found = None
        if found:
            os.unlink("ready")
            return found[1]
        time.sleep(.01)
    sys.exit("nobody listens")


if __name__ == "__main__":
    if sys.argv[1] == "-":
        sys.argv[1] = port_of_file()
    s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    exec(sys.argv[2])
