#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""
kvtool_events.py - records the cache events of vLLM or SGLang, as kvtool why reads them

    python kvtool_events.py tcp://HOST:5557 events.msgpack [TOPIC]

Started before the engine it has all of them.  It needs pyzmq, which both engines have.
Each message is appended as it came: [number, topic, batch], in MessagePack.
"""
import sys

import zmq

endpoint, path, topic = (sys.argv[1:] + [""])[:3]
socket = zmq.Context().socket(zmq.SUB)
socket.setsockopt(zmq.RCVHWM, 0)
socket.setsockopt(zmq.SUBSCRIBE, topic.encode())
socket.connect(endpoint)
with open(path, "ab", buffering=0) as out:
    while True:
        name, number, batch = socket.recv_multipart()
        name = name[:255]
        out.write(b"\x93\xcf" + number + b"\xd9" + bytes([len(name)]) + name + batch)
