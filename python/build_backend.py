# SPDX-License-Identifier: Apache-2.0
"""
build_backend.py - the wheel and the source distribution of kvtool (PEP 517)

    pip wheel .                              pip install kvtool-VERSION.tar.gz
    python3 python/build_backend.py wheel dist
    python3 python/build_backend.py sdist dist
    python3 python/build_backend.py module /usr/lib/python3/dist-packages

It needs the standard library, make, a C compiler and binutils.  make STATIC=1 builds what
is inside; where the libraries for that cannot be had but shared ones are there, those are
used, and the tag of the wheel says that it is of this machine alone.  STATIC=1 in the
environment insists on static ones, STATIC=0 on shared ones.

The same sources and the same tools give the same bytes: times are SOURCE_DATE_EPOCH, or the
day of the last commit.
"""
import base64
import gzip
import hashlib
import io
import os
import platform
import re
import subprocess
import sys
import tarfile
import time
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# from ROOT: make takes no name with a space
BUILT = "build/wheel"
STATIC_DIR = os.environ.get("STATIC_DIR") or "build/static"
PROGRAM, LIBRARY, PLUGIN = "kvtool", "libkvt.so.0", "plugin/libh5kvtzstd.so"
# glibc of the oldest manylinux tag that does not bear a year
OLDEST_GLIBC = (2, 17)
EARLIEST = 315532800            # a zip archive knows no day before 1980

METADATA = """\
Metadata-Version: 2.4
Name: kvtool
Version: {version}
Summary: Inspect, compare and convert dumps of LLM KV caches
License-Expression: Apache-2.0
{licenses}Dynamic: License-File
Requires-Python: >=3.9
Keywords: kv-cache,llm,inference,vllm,hdf5
Classifier: Environment :: Console
Classifier: Framework :: Pytest
Classifier: Intended Audience :: Developers
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: C
Classifier: Programming Language :: Python :: 3
Classifier: Topic :: Scientific/Engineering :: Artificial Intelligence
Classifier: Typing :: Typed
Description-Content-Type: text/markdown

"""
WHEEL = """\
Wheel-Version: 1.0
Generator: kvtool build_backend
Root-Is-Purelib: false
Tag: {tag}
"""
ENTRY_POINTS = """\
[pytest11]
kvtool = kvtool.pytest_plugin
"""


def path_of(name):
    return os.path.join(ROOT, name)


def read(name):
    with open(path_of(name), "rb") as file:
        return file.read()


def version():
    found = re.search(rb'^#define KVT_VERSION "(.*)"$', read("lib/kvt/kvt.h"), re.M)
    return found.group(1).decode()


def in_git():
    return os.path.exists(path_of(".git"))


def epoch():
    told = os.environ.get("SOURCE_DATE_EPOCH")
    if not told and in_git():
        told = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, check=False,
                              capture_output=True, text=True).stdout.strip()
    return max(EARLIEST, int(told or os.stat(path_of("lib/kvt/kvt.h")).st_mtime))


def metadata(licenses):
    lines = "".join(f"License-File: {name}\n" for name in licenses)
    return METADATA.format(version=version(), licenses=lines).encode() + read("README.md")


# ---- building ---------------------------------------------------------------------

def make(*arguments):
    """True if make succeeds.  Options of a make around this one are not for it."""
    env = {name: value for name, value in os.environ.items()
           if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "B", "STATIC", "STATIC_DIR")}
    env.setdefault("CFLAGS", "-O2")
    command = ["make", "-j%d" % (os.cpu_count() or 1), "DEPS=:", "B=" + BUILT,
               "STATIC_DIR=" + STATIC_DIR, *arguments]
    sys.stdout.flush()
    return subprocess.run(command, cwd=ROOT, env=env, check=False).returncode == 0


def static_libraries():
    """Whether they are to be linked; ends if neither kind can be had."""
    wanted = os.environ.get("STATIC")
    if wanted == "0":
        return False
    if make("STATIC=1", STATIC_DIR + "/versions"):
        return True
    if wanted:
        raise SystemExit("build_backend: STATIC=1 insists on static libraries, which cannot "
                         "be had for the reason above")
    if not make("STATIC=0", "libraries"):
        raise SystemExit("build_backend: HDF5, zstd, jansson, xxHash and zlib are neither "
                         "to be had as static libraries nor there as shared ones")
    print("build_backend: WARNING: no static libraries, for the reason above.  This wheel "
          "uses the shared libraries of this machine and works on no other.",
          file=sys.stderr, flush=True)
    return False


def build():
    """Builds all that is not Python.  True: it needs the C library alone."""
    static = static_libraries()
    if not make(f"STATIC={static:d}",
                *(f"{BUILT}/{name}" for name in (PROGRAM, LIBRARY, PLUGIN))):
        raise SystemExit("build_backend: make failed")
    return static


def stripped(name):
    target = f"{BUILT}/stripped/{name}"
    os.makedirs(os.path.dirname(path_of(target)), exist_ok=True)
    subprocess.run(["strip", "-o", target, f"{BUILT}/{name}"], cwd=ROOT, check=True)
    return target


def platform_tag(binaries, static):
    """The oldest glibc that has all that the binaries want of it."""
    machine = platform.machine()
    if not static:
        return "linux_" + machine
    told = subprocess.run(["objdump", "-T", *binaries], cwd=ROOT, check=True,
                          capture_output=True, text=True).stdout
    wanted = {tuple(map(int, v.split("."))) for v in re.findall(r"\(?GLIBC_([\d.]+)", told)}
    newest = max(v[:2] for v in wanted | {OLDEST_GLIBC})
    return "manylinux_%d_%d_%s" % (*newest, machine)


# ---- archives ---------------------------------------------------------------------

class Wheel:
    """Files in the order in which they are added, RECORD last."""

    def __init__(self, path, when):
        self.record = []
        self.when = time.gmtime(when)[:6]
        self.zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9)

    def add(self, name, data, mode=0o644):
        info = zipfile.ZipInfo(name, self.when)
        info.compress_type = zipfile.ZIP_DEFLATED
        info.create_system = 3
        info.external_attr = (0o100000 | mode) << 16
        self.zip.writestr(info, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=")
        self.record.append(f"{name},sha256={digest.decode()},{len(data)}")

    def close(self, record):
        lines = "\n".join([*self.record, record + ",,"]) + "\n"
        self.add(record, lines.encode())
        self.zip.close()


def files_in(folder, pattern):
    return [name for name in sorted(os.listdir(path_of(folder))) if re.search(pattern, name)]


def licenses_inside(static):
    """Name in the wheel, and file, of each licence of what is inside."""
    found = {"LICENSE": "LICENSE"}
    if static:
        folder = STATIC_DIR + "/licenses"
        found.update((name + ".txt", f"{folder}/{name}") for name in files_in(folder, "."))
    return found


def add_python(wheel):
    for name in files_in("python/kvtool", r"\.(py|pyi|typed)$"):
        wheel.add("kvtool/" + name, read("python/kvtool/" + name))


def add_binaries(wheel, data, files):
    program, library, plugin = files
    wheel.add("kvtool/_lib/" + LIBRARY, read(library), 0o755)
    wheel.add("kvtool/_lib/hdf5-plugin/" + os.path.basename(plugin), read(plugin), 0o755)
    wheel.add(data + "/scripts/kvtool", read(program), 0o755)
    # where 'kvtool --plugin-dir' looks, from where the program lies
    wheel.add(f"{data}/data/lib/kvtool/hdf5-plugin/{os.path.basename(plugin)}",
              read(plugin), 0o755)


def add_shared(wheel, data):
    for name in files_in("models", r"\.json$"):
        wheel.add(f"{data}/data/share/kvtool/models/{name}", read("models/" + name))
    for shell, name in (("bash", "bash-completion/completions/kvtool"),
                        ("zsh", "zsh/site-functions/_kvtool")):
        wheel.add(f"{data}/data/share/{name}", read("cli/completion." + shell))
    for name in files_in("man", r"\.[157]$"):
        wheel.add(f"{data}/data/share/man/man{name[-1]}/{name}", read("man/" + name))


# ---- PEP 517 ----------------------------------------------------------------------
# pylint: disable=unused-argument	# the names are the standard's

def get_requires_for_build_wheel(config_settings=None):
    return []


def get_requires_for_build_sdist(config_settings=None):
    return []


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    static = build()
    files = [stripped(name) for name in (PROGRAM, LIBRARY, PLUGIN)]
    tag = "py3-none-" + platform_tag(files, static)
    stem = "kvtool-" + version()
    info, licenses = stem + ".dist-info", licenses_inside(static)
    name = f"{stem}-{tag}.whl"
    os.makedirs(wheel_directory, exist_ok=True)
    path = os.path.join(wheel_directory, name)
    wheel = Wheel(path + ".new", epoch())
    add_python(wheel)
    add_binaries(wheel, stem + ".data", files)
    add_shared(wheel, stem + ".data")
    for inside, file in licenses.items():
        wheel.add(f"{info}/licenses/{inside}", read(file))
    wheel.add(info + "/METADATA", metadata(licenses))
    wheel.add(info + "/WHEEL", WHEEL.format(tag=tag).encode())
    wheel.add(info + "/entry_points.txt", ENTRY_POINTS.encode())
    wheel.close(info + "/RECORD")
    os.replace(path + ".new", path)
    return name


def install_module(folder):
    """The module as a package of a distribution has it: the library lies elsewhere."""
    files = {"kvtool/" + name: read("python/kvtool/" + name)
             for name in files_in("python/kvtool", r"\.(py|pyi|typed)$")}
    info = f"kvtool-{version()}.dist-info"
    files.update({info + "/METADATA": metadata([]),
                  info + "/entry_points.txt": ENTRY_POINTS.encode()})
    for name, data in files.items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)
        os.chmod(path, 0o644)
    return ""


def build_sdist(sdist_directory, config_settings=None):
    if not in_git():
        raise SystemExit("build_backend: a source distribution is made of what git tracks; "
                         "this is no clone")
    stem = "kvtool-" + version()
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True,
                             capture_output=True).stdout.decode().split("\0")
    os.makedirs(sdist_directory, exist_ok=True)
    path = os.path.join(sdist_directory, stem + ".tar.gz")
    when = epoch()

    def plain(member):
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.mtime = when
        if not member.issym():
            member.mode = 0o755 if member.mode & 0o100 else 0o644
        return member

    with open(path + ".new", "wb") as file, \
            gzip.GzipFile("", "wb", 9, file, mtime=when) as packed, \
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        about = metadata(["LICENSE"])
        member = tarfile.TarInfo(stem + "/PKG-INFO")
        member.size = len(about)
        tar.addfile(plain(member), io.BytesIO(about))
        for name in sorted(filter(None, tracked)):
            tar.add(path_of(name), f"{stem}/{name}", recursive=False, filter=plain)
    os.replace(path + ".new", path)
    return os.path.basename(path)


def main(arguments):
    kinds = {"wheel": build_wheel, "sdist": build_sdist, "module": install_module}
    if len(arguments) != 2 or arguments[0] not in kinds:
        raise SystemExit("usage: build_backend.py wheel|sdist|module DIR")
    name = kinds[arguments[0]](os.path.abspath(arguments[1]))
    path = os.path.join(arguments[1], name)
    if name:
        print(f"{path}: {os.path.getsize(path) / 2**20:.1f} MiB")


if __name__ == "__main__":
    main(sys.argv[1:])
