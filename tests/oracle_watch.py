#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_watch.py - kvtool view on a terminal: what is on the screen, and how it is given back

The screen is worked out here from what the program writes: a grid of cells, no line longer
than it.  Dumps change while they are watched: they grow, are replaced, cut, gone.
"""
import fcntl
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import tempfile
import termios
import time

from oracle import DATA, KVTOOL, run, tap

DUMP = os.path.join(DATA, "s260k/paged_bs16/packed_nhd.bf16")
SIZES = (24, 80), (50, 200)
ESCAPE = re.compile(rb"\x1b\[(\??)([0-9;]*)([A-Za-z])")


class Screen:
    """As much of a terminal as is needed; what it does not know fails."""

    def __init__(self, rows, columns):
        self.resize(rows, columns)
        self.other, self.cursor, self.wide, self.colours = False, True, False, set()
        # no frame, or all of it: it begins in the corner, and ends with what is cleared below
        self.whole, self.frames = True, 0

    def resize(self, rows, columns):
        self.rows, self.columns = rows, columns
        self.cell = [[" "] * columns for _ in range(rows)]
        self.y = self.x = 0

    def escape(self, private, numbers, what):
        n = [int(i) for i in numbers.split(b";") if i]
        if private:
            self.other = (what == b"h") if 1049 in n else self.other
            self.cursor = (what == b"h") if 25 in n else self.cursor
        elif what == b"H":
            self.y = self.x = 0
            self.whole = False
        elif what == b"K":
            self.cell[self.y][self.x:] = [" "] * (self.columns - self.x)
        elif what == b"J":
            self.cell[self.y][self.x:] = [" "] * (self.columns - self.x)
            for row in range(self.y + 1, self.rows):
                self.cell[row] = [" "] * self.columns
            self.whole, self.frames = True, self.frames + 1
        elif what == b"m":
            self.colours.add(numbers)
        else:
            raise ValueError(f"escape {numbers}{what}")

    def feed(self, data):
        at = 0
        while at < len(data):
            if match := ESCAPE.match(data, at):
                self.escape(*match.groups())
                at = match.end()
                continue
            n = {12: 2, 13: 2, 14: 3, 15: 4}.get(data[at] >> 4, 1)
            self.put(data[at:at + n].decode())
            at += n

    def put(self, letter):
        if letter == "\r":
            self.x = 0
        elif letter == "\n":
            self.y = min(self.y + 1, self.rows - 1)
        else:
            self.wide |= self.x >= self.columns
            if self.x < self.columns:
                self.cell[self.y][self.x] = letter
            self.x += 1

    def text(self):
        return "\n".join("".join(row).rstrip() for row in self.cell).rstrip()


class Program:
    """kvtool on a terminal of that size."""

    def __init__(self, size, *args, **env):
        self.ours, self.theirs = pty.openpty()
        self.screen = Screen(*size)
        self.size(*size)
        self.before = termios.tcgetattr(self.theirs)
        clean = {k: v for k, v in os.environ.items() if k not in (
            "NO_COLOR", "COLUMNS", "COLORTERM", "LC_ALL", "LC_CTYPE", "LANG")}
        self.process = subprocess.Popen(
            [KVTOOL, *args], stdin=self.theirs, stdout=self.theirs, stderr=self.theirs,
            env={**clean, "TERM": "xterm", "LC_ALL": "C.UTF-8", **env},
            preexec_fn=self.own)

    def own(self):
        os.setsid()
        # what ran the tests may ignore them, as nohup does, and a program then does so, too
        for ignored in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP):
            signal.signal(ignored, signal.SIG_DFL)
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def size(self, rows, columns):
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def until(self, words, seconds=120):
        """Are these words on the screen within that time, in a frame that is whole?"""
        end = time.monotonic() + seconds
        while not self.screen.whole or words not in self.screen.text():
            if not self.listen(end - time.monotonic()):
                return False
        return True

    def listen(self, seconds):
        if seconds <= 0 or not select.select([self.ours], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self.ours, 1 << 20)
        except OSError:
            return False
        while data[-1] & 0x80 or (b"\x1b" in data[-24:] and
                                  not ESCAPE.search(data, data.rindex(b"\x1b"))):
            if not select.select([self.ours], [], [], 5)[0]:
                break
            data += os.read(self.ours, 1)
        self.screen.feed(data)
        return True

    def keys(self, keys):
        os.write(self.ours, keys)

    def end(self):
        """The status, if the terminal is as it was."""
        end = time.monotonic() + 120
        while self.process.poll() is None and time.monotonic() < end:
            self.listen(0.1)
        while self.process.poll() is not None and self.listen(0.1):
            pass
        if self.process.poll() is None:
            self.process.kill()
        status = self.process.wait(20)
        same = termios.tcgetattr(self.theirs) == self.before
        os.close(self.ours)
        os.close(self.theirs)
        return status if same and not self.screen.other and self.screen.cursor else \
            f"{status}, and the terminal is not what it was"


def copy(folder, name="in"):
    """A file that is one with its tables."""
    path = os.path.join(folder, name + ".h5")
    subprocess.run([KVTOOL, "convert", "-q", "-f", DUMP + ".npy", path], check=True)
    return path


def fewer(folder):
    """The same with request A alone."""
    path = os.path.join(folder, "fewer.h5")
    subprocess.run([KVTOOL, "slice", "-q", "--request=A", "-o", path, DUMP + ".npy"],
                   check=True)
    return path


def looks_right(size, folder):
    p = Program(size, "view", "--watch", copy(folder))
    ok = p.until("blocks in use 42") and p.until("q quits")
    text, other = p.screen.text(), p.screen.other
    p.keys(b"q")
    tap.equal((ok, other, p.end(), p.screen.wide), (True, True, 0, False),
              f"{size}: a dump is drawn, and q gives the terminal back")
    tap.ok("AAAAAAB**AAAAAAAA" in text and "requests 3  tokens 689" in text,
           f"{size}: pool, requests and tokens are on it", text)


def changes(folder):
    path, other = copy(folder), fewer(folder)
    p = Program((24, 80), "view", "--watch", path)
    tap.ok(p.until("requests 3"), "a dump is watched", p.screen.text())
    os.replace(other, path)
    tap.ok(p.until("requests 1 (-2)"), "it is replaced by another: the loss is said",
           p.screen.text())
    tap.ok(p.until("requests 1  "), "a look later nothing has changed", p.screen.text())
    shutil.copyfile(path, path + ".new")
    os.truncate(path, 5000)
    tap.ok(p.until("not readable now") and p.until("requests 1"),
           "it is cut: that is said, above what was seen last", p.screen.text())
    os.unlink(path)
    tap.ok(p.until("No such file"), "it is gone: that is said", p.screen.text())
    os.replace(path + ".new", path)
    tap.ok(p.until("blocks; in parentheses"), "it is there again: it goes on",
           p.screen.text())
    copy(folder)
    tap.ok(p.until("requests 3 (+2)"), "it grows: by how much is said", p.screen.text())
    p.keys(b"q")
    tap.equal(p.end(), 0, "and q ends it")


def grows(folder):
    """A file without a header, longer by a block now and then; as memory that is mapped."""
    shm = "/dev/shm" if os.access("/dev/shm", os.W_OK) else folder
    fd, path = tempfile.mkstemp(dir=shm, prefix="kvtool-watch")
    os.ftruncate(fd, 4 * 1024)
    p = Program((24, 80), "view", "--watch", "--layout=nhd", "--dtype=bf16", "--layers=1",
                "--heads=4", "--head-dim=8", "--block-size=8", path)
    ok = p.until("bytes 4 KiB") and p.until("????")
    for size in 6, 9:
        os.ftruncate(fd, size * 1024)
        ok = ok and p.until(f"bytes {size} KiB (+")
    text = p.screen.text()
    p.keys(b"q")
    tap.equal((ok, p.end()), (True, 0), "a file in /dev/shm that grows: " + text[-200:])
    os.close(fd)
    os.unlink(path)


def resized(folder):
    p = Program((24, 80), "view", "--watch", copy(folder))
    ok = p.until("q quits")
    p.screen.resize(14, 40)
    p.size(14, 40)
    p.process.send_signal(signal.SIGWINCH)
    ok = ok and p.until("pool      0.....AAAAAAB**AAAAAAAAAAAAA\n")
    # the frame before may have been on its way
    p.screen.resize(50, 200)
    p.size(50, 200)
    ok = ok and p.until("AAAABBBBBBBCCCACBACB")
    p.screen.wide = False
    ok = ok and p.until(f"in {1 + int(p.screen.text().split('  in ')[1].split('s')[0])}s")
    p.keys(b"q")
    tap.equal((ok, p.end(), p.screen.wide), (True, 0, False),
              "it is drawn anew when the terminal changes its size")


def ended(folder):
    path = copy(folder)
    for what, send, want in (
            ("^C", lambda p: p.keys(b"\x03"), -signal.SIGINT),
            ("SIGTERM", lambda p: p.process.terminate(), -signal.SIGTERM),
            ("SIGHUP", lambda p: p.process.send_signal(signal.SIGHUP), -signal.SIGHUP),
            ("SIGQUIT", lambda p: p.keys(b"\x1c"), -signal.SIGQUIT),
            ("Q", lambda p: p.keys(b"xyQ"), 0)):
        p = Program((24, 80), "view", "--watch", path)
        ok = p.until("blocks in use")
        send(p)
        tap.equal((ok, p.end()), (True, want), f"{what} gives the terminal back")


def is_stopped(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
        return f.read().rpartition(")")[2].split()[0] == "T"


def stopped(folder):
    p = Program((24, 80), "view", "--watch", copy(folder))
    ok = p.until("q quits")
    p.process.send_signal(signal.SIGTSTP)
    end = time.monotonic() + 120
    # the terminal is given back in two steps, and only what has stopped can go on
    while (p.screen.other or not is_stopped(p.process.pid)) and time.monotonic() < end:
        p.listen(0.2)
    gone = not p.screen.other and termios.tcgetattr(p.theirs) == p.before
    p.process.send_signal(signal.SIGCONT)
    while not p.screen.other and time.monotonic() < end:
        p.listen(0.2)
    again = p.screen.other and p.until("q quits")
    p.keys(b"q")
    tap.equal((ok, gone, again, p.end()), (True, True, True, 0),
              "stopped it gives the terminal back, and takes it when it goes on")


def twice_a_second(folder):
    p = Program((24, 80), "view", "--watch", copy(folder))
    ok, began = p.until("q quits"), time.monotonic()
    last = p.screen.frames + 5
    # by the clock of who reads: he may be late for the first of them, not early for the last
    while ok and p.screen.frames < last:
        ok = p.listen(120)
    took = time.monotonic() - began
    p.keys(b"q")
    tap.ok(ok and p.end() == 0 and took > 1, "at most two looks a second: five take a while", took)


def refused(folder):
    path = copy(folder)

    def says(*args):
        r = subprocess.run([KVTOOL, "view", *args], capture_output=True, text=True,
                           check=False)
        return r.returncode, r.stdout, r.stderr
    tap.ok(says("--watch", path)[0] == 2 and "--once" in says("--watch", path)[2],
           "in a pipe there is nothing to draw on")
    p = Program((24, 80), "view", "--watch", path, TERM="dumb")
    tap.equal((p.until("--watch draws on a terminal"), p.end()), (True, 2), "nor on a dumb terminal")
    code, out, _ = says("--once", path)
    tap.ok(code == 0 and "\x1b" not in out and "requests 3  tokens 689" in out and
           "0.....AAAAAAB**" in out and "rms" not in out, "--once prints it, and no numbers", out)
    tap.ok("rms by layer" in says("--once", "--sample=1M", path)[1],
           "with a sample there are numbers")
    tap.equal(says("--once", path + ".not")[0], 5, "--once fails where nothing can be seen")
    for bad in (["--watch", path, path], ["--watch", "--json", path],
                ["--watch", "-o", "page.html", path]):
        tap.equal(says(*bad)[0], 2, f"refused: {' '.join(os.path.basename(b) for b in bad)}")


# ---- without --watch ---------------------------------------------------------

def drawn(columns, *args, **env):
    """Everything that is printed, on a terminal so wide and as high as it takes."""
    p = Program((400, columns), *args, **env)
    status = p.end()
    return status, p.screen


def halves():
    half = "\u2580"
    for size in SIZES:
        status, screen = drawn(size[1], "view", DUMP + ".npy", COLORTERM="")
        text = screen.text()
        tap.ok(status == 0 and not screen.wide and half in text and "  block  " in text and
               any(b"38;5;" in c for c in screen.colours) and
               not any(b";2;" in c for c in screen.colours),
               f"{size}: a block, and maps of half blocks in 256 colours", text)
        # of five layers
        tap.equal(re.findall(r"layer +(\d+) [\u2580\u2584]+", text), ["0", "2", "4"] * 4,
                  f"{size}: two rows a line")
    for colour in "truecolor", "24bit":
        screen = drawn(80, "view", DUMP + ".npy", COLORTERM=colour)[1]
        tap.ok(any(b"38;2;" in c for c in screen.colours) and
               not any(b"38;5;" in c for c in screen.colours), f"all colours with {colour}")
    for env in {"NO_COLOR": "1"}, {"TERM": "dumb"}, {"LC_ALL": "C"}:
        status, screen = drawn(80, "view", DUMP + ".npy", **env)
        tap.ok(status == 0 and screen.text().isascii() and "layer   0 3477" in screen.text(),
               f"digits with {env}", screen.text())


def differs(folder):
    bad = os.path.join(folder, "bad.npy")
    subprocess.run([KVTOOL, "mutate", "-q", "--fault=swap-kv,layer=2", DUMP + ".npy", bad],
                   check=True)
    status, screen = drawn(80, "view", DUMP + ".npy", bad)
    text = screen.text()
    tap.ok(status == 0 and not screen.wide and "keys and values are exchanged" in text and
           "share of unequal numbers by layer and head" in text,
           "two dumps are a verdict, and maps of what differs", text)
    rows = re.findall(r"(?m)^  layer +\d+ ?([ \u2580\u2584]*)", text)
    tap.equal(rows[:3], ["", "\u2580" * 4, ""], "what is equal is not drawn")
    status, screen = drawn(80, "view", DUMP + ".npy", bad, NO_COLOR="1")
    tap.ok(status == 0 and "layer x head: . none" in screen.text(), "and in characters",
           screen.text())


def maps():
    for size in SIZES:
        p = Program(size, "describe", "--map", DUMP + ".npy")
        tap.equal((p.end(), p.screen.wide, "0.....AAAAAAB**" in p.screen.text()),
                  (0, False, True), f"{size}: describe --map is the pool")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "many.bin")
        with open(path, "wb") as f:
            f.truncate(1 << 20)
        p = Program((24, 80), "describe", "--map", "--layout=nhd", "--dtype=int8",
                    "--layers=1", "--heads=1", "--head-dim=1", "--block-size=1",
                    "--blocks-of=A b=1-400000:400000", path)
        status, text = p.end(), p.screen.text()
        tap.ok(status == 0 and text.startswith(path) and len(text.split("\n")) < 24 and
               "a character for" in text, "a large pool is one screen", text)


def main():
    with tempfile.TemporaryDirectory() as folder:       # its name is short
        for size in SIZES:
            looks_right(size, folder)
        for test in (changes, grows, resized, ended, stopped, twice_a_second, refused,
                     differs):
            test(folder)
    halves()
    maps()


run(main)
