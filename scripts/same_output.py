#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""
same_output.py OLD NEW - do two builds of kvtool do the same?

For a change that is to change nothing: 200 commands and more, fixed, over samples of every
format in testdata/.  Each is run by both programs in a folder of its own; status, what is
printed on both streams and every byte of what is written are compared.  What is different is
printed; the status is 0 if nothing is.  Times, process numbers and paths of the folders are
made alike before.
"""
import hashlib
import os
import re
import shlex
import subprocess
import sys
import tempfile

DATA = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "testdata")
KV = f"{DATA}/kv/s260k"
EVERY = 6                               # of the samples of engines: each sixth

OF_A_DUMP = [
    "describe -v {dump}", "describe --json --stats {dump}", "digest {dump}", "fsck --json {dump}",
    "convert {dump} out.h5", "convert {dump} out.safetensors", "view --once --block {dump}",
    "diff --json {dump} {dump}", "where --layer=0 --block=0 {dump}", "guess --json {dump}",
]
OTHERS = [
    "help", "help layouts", "help specs", "help symptoms", "help faults", "describe --help",
    "relayout -o hnd.h5 --to=hnd --verify {nhd}", "reblock --block-size=32 -o b32.h5 {nhd}",
    "slice --tp=0/2 -o r0.h5 {nhd}", "slice --request=A -o a.h5 {nhd}",
    "diff --heatmap=map.svg {nhd} {hnd}", "diff --table=head {nhd} {hnd}", "doctor {nhd} {hnd}",
    "mutate --fault=swap-kv -o swapped.npy {nhd}", "view -o page.html {nhd}", "describe --map {nhd}",
    "transfer-sim --dst=layout=hnd,block-size=32 {nhd}",
    "transfer-sim exec --dst=layout=hnd,block-size=32 -o dst.h5 {nhd}",
    "transfer-sim matrix -m llama-3.1-8b", "transfer-sim time --link=list",
    "transfer-sim emit --format=json {nhd} {nhd}", "size -m llama-3.1-8b --tokens=1000",
    "size -m deepseek-v3 --tokens=1000 --json", "transfer-sim plan -m gpt-oss-120b --json",
    "expect write {nhd}", "copy-blocks --help", "workers --help", "prefix --help", "why --help",
    "no-such-command", "describe no-such-file", "relayout --to=nonsense {nhd}",
]


def commands():
    with open(f"{DATA}/engines/samples.tsv", encoding="utf-8") as f:
        rows = [line.rstrip("\n").split("\t") for line in f][1:]
    dumps = [f"{row[1] if row[1] != '-' else ''} {DATA}/engines/{row[0]}" for row in rows[::EVERY]]
    nhd = f"{KV}/paged_bs16/packed_nhd.bf16.npy"
    for dump in dumps + [nhd]:
        for command in OF_A_DUMP:
            yield command.format(dump=dump)
    for command in OTHERS:
        yield command.format(nhd=nhd, hnd=f"{KV}/paged_bs16/packed_hnd.bf16.npy")


def outcome(program, command):
    """Status, streams, and files that it left, as text to compare."""
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.run([program, *shlex.split(command)], cwd=folder, check=False,
                             stdin=subprocess.DEVNULL, capture_output=True,
                             env={"PATH": os.environ["PATH"], "TZ": "UTC", "LC_ALL": "C.UTF-8"})
        lines = [f"status {run.returncode}"]
        for text in run.stdout, run.stderr:
            text = text.decode(errors="replace").replace(folder, "FOLDER")
            lines += re.sub(r"\b[0-9.]+ ?(?:[mun]?s|[KMG]i?B/s)\b", "TIME", text).splitlines()
        for where, _, names in sorted(os.walk(folder)):
            for name in sorted(names):
                with open(os.path.join(where, name), "rb") as f:
                    lines.append(f"{name} {hashlib.sha256(f.read()).hexdigest()}")
        return lines


def main():
    old, new = map(os.path.abspath, sys.argv[1:])
    n = different = 0
    for command in commands():
        n += 1
        a, b = outcome(old, command), outcome(new, command)
        if a == b:
            continue
        different += 1
        print(f"kvtool {command}")
        for x, y in zip(a + [""] * len(b), b + [""] * len(a)):
            if x != y:
                print(f"  - {x[:200]}\n  + {y[:200]}")
                break
    print(f"{n} commands, {different} different")
    return different > 0


if __name__ == "__main__":
    sys.exit(main())
