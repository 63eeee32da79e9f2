#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""
side_by_side.py - one call, two programs: what differs between an old and a new kvtool

    KVT_OLD=OLD KVT_NEW=NEW KVT_SEEN=calls.jsonl \\
        KVTOOL=$PWD/scripts/side_by_side.py bats tests/cli/slice.bats
    scripts/side_by_side.py --report calls.jsonl

For a change that is to change nothing.  Stands where tests call kvtool.  OLD runs
first, alone with a copy-on-write view of the folders in KVT_FOLDERS (/tmp and /dev/shm),
so that it sees what NEW will see and leaves nothing; then NEW runs for the caller.
Status, both streams and every file that either wrote are compared, byte for byte
but for numbers of processes and durations.  A line of KVT_SEEN tells of each call.

Needs root (a mount namespace with overlayfs).  Calls of 'wire' and 'bench', which
meet another process or print times, run as NEW alone and are counted as not compared.

The wrapper is in the way of a few tests: those that give kvtool a pipe by number
(/dev/fd/63), preload a library, close or fill standard output, or want a terminal fail
under it; where a test sends a signal or mounts a folder of its own, OLD gets neither,
and the calls are reported as different.  Run these with NEW alone: main, verify,
bad_input and parts of digest, expect, guess and transfer_time.
"""
import collections
import difflib
import filecmp
import fcntl
import json
import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import tempfile

FOLDERS = os.environ.get("KVT_FOLDERS", "/tmp /dev/shm").split()
NOT_COMPARED = ({"wire"}, {"bench"})
# Of the same run these may differ: a process's number, how long something took.
VARIES = re.compile(rb"\.tmp-\d+|\b\d+(\.\d+)? (s|ms|us|GB/s|MB/s)\b|\d+(\.\d+)?x\b"
                    rb'|"(verify_)?seconds": [0-9.e-]+')


def is_compared(argv):
    return not any(words & set(argv[:2]) for words in NOT_COMPARED)


def mount_script(scratch):
    """Shell text: a copy-on-write view of each folder, changes below scratch."""
    lines = []
    for i, folder in enumerate(FOLDERS):
        upper, work = f"{scratch}/{i}/upper", f"{scratch}/{i}/work"
        os.makedirs(upper)
        os.makedirs(work)
        # one that is mounted below, by a test, is not part of the view
        lines.append(f"mount -t overlay overlay -o lowerdir={folder},upperdir={upper},"
                     f"workdir={work} {folder}")
    return " && ".join(lines)


def run_old(argv, scratch, stdin):
    text = (f"{mount_script(scratch)} && cd {shlex.quote(os.getcwd())} && exec \"$0\" \"$@\"")
    command = ["unshare", "--mount", "sh", "-c", text, os.environ["KVT_OLD"], *argv]
    return subprocess.run(command, stdin=stdin, capture_output=True)


def run_new(argv):
    """As the caller wants it: its standard input, its signals."""
    out, err = tempfile.TemporaryFile(), tempfile.TemporaryFile()
    child = subprocess.Popen([os.environ["KVT_NEW"], *argv], stdout=out, stderr=err)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda n, _: child.send_signal(n))
    status = child.wait()
    texts = []
    for stream in (out, err):
        stream.seek(0)
        texts.append(stream.read())
    return status, texts[0], texts[1]


def written(upper, folder):
    """What OLD left: {path as the caller names it: path of the change}."""
    found = {}
    for root, folders, files in os.walk(upper):
        for name in folders + files:
            change = os.path.join(root, name)
            found[os.path.join(folder, os.path.relpath(change, upper))] = change
    return found


def is_removed(change):
    about = os.lstat(change)
    return stat.S_ISCHR(about.st_mode) and about.st_rdev == 0


def file_differs(path, change):
    if is_removed(change):
        return os.path.lexists(path)
    if os.path.isdir(change) or os.path.islink(change):
        return not os.path.lexists(path)
    if not os.path.isfile(path):
        return True
    if filecmp.cmp(path, change, shallow=False):
        return False
    with open(path, "rb") as a, open(change, "rb") as b:
        return VARIES.sub(b"", a.read()) != VARIES.sub(b"", b.read())


def changed_files(before, scratch):
    """Paths that are not the same after NEW as they were after OLD."""
    differ, seen = [], set()
    for i, folder in enumerate(FOLDERS):
        for path, change in written(f"{scratch}/{i}/upper", folder).items():
            seen.add(path)
            if file_differs(path, change):
                differ.append(path)
    for path, about in state(os.getcwd()).items():
        if before.get(path) != about and path not in seen and is_watched(path):
            differ.append(path)
    return sorted(differ)


def is_watched(path):
    return any(path.startswith(folder + "/") for folder in FOLDERS)


def state(folder):
    """Of each file in the folder of the call: what shows that it was written."""
    found = {}
    for root, _, files in os.walk(folder) if is_watched(folder + "/") else ():
        for name in files:
            path = os.path.join(root, name)
            about = os.lstat(path)
            found[path] = (about.st_mtime_ns, about.st_size, about.st_ino)
    return found


def say(record):
    with open(os.environ["KVT_SEEN"], "a") as log:
        fcntl.flock(log, fcntl.LOCK_EX)
        log.write(json.dumps(record) + "\n")


def both(argv):
    scratch = tempfile.mkdtemp(prefix="kvt-side-", dir="/run")
    try:
        stdin = subprocess.DEVNULL
        if stat.S_ISREG(os.fstat(0).st_mode):
            stdin = os.open("/proc/self/fd/0", os.O_RDONLY)
        old = run_old(argv, scratch, stdin)
        before = state(os.getcwd())
        status, out, err = run_new(argv)
        differ = changed_files(before, scratch)
        record = {"argv": argv, "status": [old.returncode, status], "files": differ}
        for name, a, b in (("stdout", old.stdout, out), ("stderr", old.stderr, err)):
            if VARIES.sub(b"", a) != VARIES.sub(b"", b):
                record[name] = [a.decode(errors="replace"), b.decode(errors="replace")]
        say(record)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    for stream, text in ((sys.stdout, out), (sys.stderr, err)):
        stream.buffer.write(text)
        stream.flush()
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    return status


def print_difference(what, two):
    if what not in ("stdout", "stderr"):
        print(f"  {what}: {two}")
        return
    lines = [text.splitlines() for text in two]
    differ = list(difflib.unified_diff(*lines, n=0, lineterm=""))[2:]
    for line in differ[:20]:
        print(f"  {what}: {line[:200]}")


def report(path):
    counts, different = collections.Counter(), 0
    with open(path) as lines:
        for line in lines:
            record = json.loads(line)
            if "status" not in record:
                counts["not compared"] += 1
                continue
            counts["compared"] += 1
            what = [w for w in ("stdout", "stderr", "files") if record.get(w)]
            if record["status"][0] != record["status"][1]:
                what.append("status")
            if not what:
                continue
            different += 1
            counts.update(what)
            print(shlex.join(["kvtool", *record["argv"]]))
            for w in what:
                print_difference(w, record[w])
    print(f"{counts['compared']} calls compared, {counts['not compared']} not, "
          f"{different} differ: " + ", ".join(
              f"{counts[w]} in {w}" for w in ("status", "stdout", "stderr", "files")))
    return different > 0


def main():
    argv = sys.argv[1:]
    if argv[:1] == ["--report"] and len(argv) == 2:
        return report(argv[1])
    if not is_compared(argv):
        say({"argv": argv})
        os.execv(os.environ["KVT_NEW"], ["kvtool", *argv])
    return both(argv)


if __name__ == "__main__":
    sys.exit(main())
