#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""check_words.py - words that are out, and the word to use instead (TAP)

kvtool-glossary(7) gives each word one meaning.  This looks for words that it does
not have, or has for something else: in the manual, in what the program prints, and
in the headers of lib/kvt; "piece" in all C files.
"""

import glob
import re
import sys

MAN = [f for f in sorted(glob.glob("man/*.[157]")) if f != "man/kvtool-engines.7"]
HEADERS = sorted(glob.glob("lib/kvt/*.h"))
SOURCES = sorted(f for room in ("cli", "print", "sim", "lib", "formats", "kernels")
                 for f in glob.glob(f"{room}/**/*.[ch]", recursive=True))

# What a line must have, or one beside it, for "state" to be a recurrent one, or
# another program's word.
STATE = re.compile(
    r"recurrent|mamba|ssm|conv|delta|kimi|attention|llama|state.file|state-size|"
    r"state_size|LLAMA_STATE|\bx, B|\bB and C|taps?\b|\bKDA\b|short|kernel|"
    r"tokens_per_state|tokens per state|old name|unit_states|state_content_size|"
    r"state_bytes|state_page_bytes|swap-heads-states|valid_states|"
    r"live_states|stale.states|stale_states|shared_states|block_states|"
    r"_STATE\b|state_dict|all-states|\bstate (?:of|that) (?:4|8) tokens|"
    r"float32 state|opaque|json_put_old|old_names|\bbefore\b.*called|\.Li state", re.I)

# word, where ("man", "print", "headers", "code"), what to say instead
WORDS = [
    (r"pieces?", "man print headers code",
     "tile of a snapshot; else part, range, operation or buffer"),
    (r"states?", "man print headers", "slot, unless it is a recurrent state"),
    (r"places?", "man print", "coordinate, offset, or position of a token"),
    (r"nobody", "man print headers", "it is not known"),
    (r"as was (?:said|asked for)", "man print", "but ... was given"),
    (r"h[eo]ld (?:against|to what)", "man print", "checked against, compared with"),
    (r"dealt(?: out)? to", "man print", "divided among"),
    (r"(?:tear|torn|tears)\b[^.]* apart", "man print", "cut, does not keep contiguous"),
    (r"comes twice", "man print", "is listed twice"),
    (r"speaks? for", "man print", "say which result the data gives"),
    (r"(?<!there[ ])(?:is|are) no (?:multiple|list|file|folder|number|clause|text|"
     r"string|array|"
     r"object|element type|run|runs|chunk|tensor|page|row|id|block id|snapshot|dump)s?",
     "man print", "is not a ..."),
    (r"power cut", "man print", "power failure"),
    (r"one a processor", "man print", "one for each processor"),
    (r"the reading of", "man print", "the possible layout"),
    (r"vllm-folder", "man print", "folder, as kvtool help formats has it"),
]

# file, text of the line, why it may stay
EXCEPTIONS = [
    ("man/kvtool-glossary.7", r".", "names the old words"),
    ("man/kvtool-json.5", r"Li places", "the old key of where, printed beside matches"),
    ("print/where.c", r'"places"', "the old key of where, printed beside matches"),
    ("man/kvtool-transfer.5", r"pieces", "the key of replay as it was named first"),
    ("lib/kvt/kvt.h", r"global state", "of the library"),
    ("lib/snapshot/snapshot_check.c", r'"group.state"', "the id of a finding"),
    ("lib/kvt/model.h", r"states?", "recurrent ones of a model"),
    ("lib/kvt/dump.h", r"a state of nothing", "llama.cpp's state file"),
    ("cli/cmd/reblock.c", r"one state", "of a recurrent group"),
    ("cli/cmd/size.c", r"pages of states", "recurrent ones of a model"),
    ("print/describe_group.c", r'print_label."state"', "recurrent ones of a group"),
    ("print/specs.c", r"of a state", "recurrent ones of a model"),
    ("sim/print/transfer_figures.c", r"state", "of a recurrent group"),
    ("formats/hdf5/axes.c", r'"state"', "a label in the file"),
    ("formats/describe/group.c", r'"states"', "the old key of slots"),
    ("formats/manifest/manifest.c", r'"states"', "the old key of slots"),
    ("formats/model/states.c", r"type of states", "recurrent ones of a model"),
    ("formats/mooncake/checkpoint.c", r"allocator's state", "Mooncake's own word"),
    ("lib/derived/slice.c", r"state heads", "of a recurrent group"),
    ("lib/derived/slice_requests.c", r"one state stands", "of a recurrent group"),
    ("man/kvtool-dumps.7", r"A state has as many", "llama.cpp's state file"),
    ("print/describe_saved.c", r'"states"', "recurrent ones of a state file"),
    ("formats/llama/made.c", r"--template=STATE", "llama.cpp's state file"),
    ("man/kvtool-json.5", r"a slot .* a state", "says the old name"),
    ("sim/print/replay.c", r'"pieces"', "the key of replay as it was named first"),
]
REPLAY = re.compile(r"(sim/ops/(replay|sweep|events|picture)|"
                    r"sim/cmd/|sim/print/(transfer|replay|sweep|html))")


def literals(text):
    """The same text with everything but string literals blanked."""
    def blank(m):
        return re.sub(r"[^\n]", " ", m.group())
    text = re.sub(r"/\*.*?\*/", blank, text, flags=re.S)
    text = re.sub(r"^\s*#.*$", blank, text, flags=re.M)
    out, end = [], 0
    for m in re.finditer(r'"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)\'', text):
        out += [re.sub(r"[^\n]", " ", text[end:m.start()]), m.group()]
        end = m.end()
    return "".join(out)


def allowed(path, lines, n, word):
    line = lines[n]
    if any(path == f and re.search(t, line) for f, t, _ in EXCEPTIONS):
        return True
    if word.startswith("piece") and REPLAY.match(path):
        return True
    if word.startswith("state"):
        return any(STATE.search(x) for x in lines[max(0, n - 2):n + 3])
    return False


def look(path, scope, text, lines, report):
    for pattern, where, use in WORDS:
        if scope not in where.split():
            continue
        # a blank of a pattern may be an end of line
        wide = re.compile(r"\b" + pattern.replace(" ", r"\s+") + r"\b", re.I)
        for m in wide.finditer(text):
            n = text.count("\n", 0, m.start())
            if not allowed(path, lines, n, m.group().lower()):
                word = " ".join(m.group().split())
                report.append(f"{path}:{n + 1}: '{word}': {use}")


def main():
    report, files = [], [("man", f) for f in MAN] + [("headers", f) for f in HEADERS]
    files += [("print", f) for f in SOURCES] + [("code", f) for f in SOURCES]
    for scope, path in files:
        text = open(path, encoding="utf-8").read()
        look(path, scope, literals(text) if scope == "print" else text,
             text.split("\n"), report)
    report = sorted(set(report))
    print("1..1")
    print("not ok" if report else "ok", "1 - words that are out are not used")
    for line in report:
        print("#", line)
    return 1 if report else 0


if __name__ == "__main__":
    sys.exit(main())
