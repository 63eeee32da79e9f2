# SPDX-License-Identifier: Apache-2.0
"""
flipped.py - a dump whose file is written anew with one bit wrong, and what reads it

With a bit flipped anywhere a command may say what it says of the sound file, or fail, but
never end with status 0 and something else.
"""
import os

import oracle
from oracle import kvtool, read_bytes, tap, write_bytes

kv = oracle.python_module()


class Victim:
    """'read' of the Python module is one of the commands, where there is one."""

    def __init__(self, path, commands, out, **words):
        self.path, self.out, self.words = path, out, words
        self.bytes = read_bytes(path)
        self.commands = [*commands, *(["read"] if kv else [])]
        self.sound = {c: self.run(c) for c in self.commands}
        self.unread = "\n".join(f"{c}: {said}"[:300] for c, (code, said) in
                                self.sound.items() if code)

    def read(self):
        """Of the Python module: some blocks of one layer after the other."""
        try:
            with kv.open(self.path) as d:
                return 0, [d.read(layer=l, group=g.id, bits=True,
                                  blocks=slice(b, min(b + 8, g.blocks))).tobytes()
                           for g in d.groups for l in g.layer_ids
                           for b in range(0, g.blocks, 8)]
        except kv.Error as e:
            return e.status, str(e)

    def run(self, command):
        """Its status, and what it printed and wrote."""
        if command == "read":
            return self.read()
        for path in (self.out, os.path.splitext(self.out)[0] + ".json"):
            if os.path.exists(path):
                os.remove(path)
        r = kvtool(*(a.format(path=self.path, out=self.out, **self.words)
                     for a in command.split()))
        data = read_bytes(self.out) if os.path.exists(self.out) else b""
        if r.code and data:
            return 0, "an output of a run that failed"
        return r.code, (r.out, data)

    def flip(self, name, bits, statuses, some=lambda where, commands: commands):
        """'bits' are (where, bit); of each place 'some' of the commands are run."""
        wrong, n, refused = [], 0, 0
        for where, bit in bits:
            data = bytearray(self.bytes)
            data[bit // 8] ^= 1 << bit % 8
            write_bytes(self.path, data)
            for c in some(where, self.commands):
                code, said = self.run(c)
                n += 1
                refused += code != 0
                if code not in statuses or not code and said != self.sound[c][1]:
                    wrong.append(f"{where}, bit {bit}: {c}: {code}, {str(said)[:200]}")
        write_bytes(self.path, self.bytes)
        tap.ok(not wrong and refused, f"{name}: {n} runs, {refused} refused",
               "\n".join(wrong))
