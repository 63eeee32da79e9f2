#!/usr/bin/python3 -B
# SPDX-License-Identifier: Apache-2.0
"""
oracle_lists.py - every list of KEY=VALUE of the program, and what each makes of a fault

One table of faults for all lists: a key twice, one that is not there, one that is near
another, no value, no key, no number, a sign, a space, a unit.  All that is refused has
status 2, and a sentence of the same form.
"""
import os

import oracle
from oracle import kvtool, tap, write_text

NHD = f"{oracle.DATA}/s260k/paged_bs16/packed_nhd.bf16.npy"

#: name: (arguments with %s for the list, what the sentence begins with, keys with a value
#: that is right, those of them that are numbers, whether 1k is one of them; None: no whole
#: numbers)
LISTS = {
    "size --spec": (
        ["size", "--spec=gqa:%s", "--cache-dtype=bfloat16", "--tokens=16"], "--spec: gqa",
        ["heads=8", "head-dim=128", "layers=4"], ["layers", "heads"], True),
    "plan --spec": (
        ["transfer-sim", "plan", "--spec=gqa:%s", "--dst=tp=2", "--tokens=16"],
        "--spec: gqa", ["heads=8", "head-dim=128", "layers=4"], ["layers", "heads"], True),
    "plan --src": (
        ["transfer-sim", "plan", "-m", "llama-3.1-8b", "--tokens=64", "--src=%s"], "--src",
        ["tp=4", "block-size=16", "pool=99"], ["tp", "block-size", "pool"], True),
    "plan --dst": (
        ["transfer-sim", "plan", "-m", "llama-3.1-8b", "--tokens=64", "--dst=%s"], "--dst",
        ["tp=4", "block-size=16", "pool=99"], ["tp", "block-size", "pool"], True),
    "topology --local": (
        ["transfer-sim", "topology", "--local=%s", "--remote=tp=2"], "--local",
        ["heads=8", "tp=4", "engine=a"], ["heads", "tp"], True),
    "topology --remote": (
        ["transfer-sim", "topology", "--local=heads=8,tp=4", "--remote=%s"], "--remote",
        ["tp=2", "block-size=16", "engine=a"], ["tp", "block-size"], True),
    "mutate --fault": (
        ["mutate", "-n", "--fault=swap-heads,%s", NHD], "--fault",
        ["a=0", "b=1", "layer=2", "block=40"], ["a", "layer", "block"], False),
    "where --at": (
        ["where", "--at=%s", NHD], "--at=",
        ["layer=0", "block=40", "slot=0", "head=0", "kv=k", "dim=0"], ["layer", "head"],
        False),
    "describe --peek": (
        ["describe", "--peek=%s", NHD], "--peek=", ["layer=0", "block=40", "head=0"],
        ["layer", "head"], False),
    "diff --tolerance": (
        ["diff", "--tolerance=%s", NHD, NHD], "--tolerance", ["atol=1", "rtol=2", "pcc=0.5"],
        ["atol", "rtol"], None),
    "--set": (
        ["describe", "--from=transformers", "%s", NHD], "--set", ["padding=left"], [], None),
    "expect --select": (
        ["expect", "backend", "%s"], "--select",
        ["sliding_window=TRITON_ATTN", "full_attention=TRITON_ATTN"], [], None),
    "size --set": (
        ["size", "config.json", "--tokens=16", "%s"], "--set", ["sliding_window=64"], [],
        None),
}
#: of these an option is given for each key, and a key that is not there is no fault
APART = {"--set", "size --set", "expect --select"}
OPEN = {"size --set"}
#: a word without = is a value
BARE = {"expect --select"}


def run(name, words):
    """What the command makes of the list, (status, sentence)."""
    arguments = LISTS[name][0]
    if name in APART:
        at = arguments.index("%s")
        arguments = arguments[:at] + [f"{LISTS[name][1]}={w}" for w in words] + arguments[at + 1:]
    else:
        arguments = [a.replace("%s", ",".join(words)) for a in arguments]
    r = kvtool(*arguments)
    return r.code, r.err.strip()


def refused(name, what, words, *wanted):
    code, said = run(name, words)
    begin = LISTS[name][1]
    tap.ok(code == 2 and said.count("\n") == 0 and begin in said and
           all(w in said for w in wanted), f"{name}: {what}", (words, code, said, wanted))


def swapped(word):
    return word[1] + word[0] + word[2:]


def check(name):
    _, _, good, numbers, small = LISTS[name]
    code, said = run(name, good)
    tap.ok(code in (0, 1, 3, 4) if name == "--set" else code == 0, f"{name}: as it should be",
           (code, said))
    for i, word in enumerate(good):
        key, value = word.split("=")
        rest = good[:i] + good[i + 1:]
        refused(name, f"{key} twice", [*rest, word, word], f": {key} is given twice")
        refused(name, f"{key} twice, apart", [word, *rest, word], f"{key} is given twice")
        if name not in BARE:
            refused(name, f"{key} without =", [*rest, key],
                    f": '{key}', expected KEY=VALUE")
        refused(name, f"{key} without a value", [*rest, f"{key}="],
                f": {key} is '', expected ")
        refused(name, f"a value without {key}", [*rest, f"={value}"],
                ": '', expected KEY=VALUE")
        if name not in OPEN:
            refused(name, f"a space before {key}", [*rest, f" {word}"],
                    f": there is no key ' {key}'")
            refused(name, f"a space behind {key}", [*rest, f"{key} ={value}"],
                    f": there is no key '{key} '")
            refused(name, f"{key}x", [*rest, f"zq{key}zq={value}"],
                    f": there is no key 'zq{key}zq'")
            if len(key) > 3:
                refused(name, f"{swapped(key)} for {key}",
                        [*rest, f"{swapped(key)}={value}"],
                        f"there is no key '{swapped(key)}', did you mean '{key}'?")
    if name not in APART:
        for what, words in (("an empty word", [good[0], "", *good[1:]]),
                            ("a comma at the end", [*good, ""]),
                            ("a comma before it", ["", *good])):
            refused(name, what, words, ": '', expected KEY=VALUE")
    for key in numbers:
        rest = [w for w in good if not w.startswith(key + "=")]
        wanted = f": {key} is '"
        for value in ("two", "+4", " 4", "4 ", "4x", "2kk", "4.5.6", "--4", "0x", "1e",
                      "99999999999999999999" if small is not None else "1e999"):
            refused(name, f"{key}={value}", [*rest, f"{key}={value}"], f"{wanted}{value}'")
        if small is not None:
            for value in ("4.5", "1e3"):
                refused(name, f"{key}={value}", [*rest, f"{key}={value}"],
                        f"{wanted}{value}'")
        if small:
            for value, same in (("1k", "1024"), ("0x4", "4"), ("1K", "1024")):
                one, other = (run(name, [*rest, f"{key}={v}"]) for v in (value, same))
                tap.ok(one[0] == other[0] != 2, f"{name}: {key}={value} is {same}",
                       (one, other))


def main(folder):
    before = os.getcwd()
    os.chdir(folder)
    write_text("config.json",
               '{"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, '
               '"num_attention_heads": 4, "num_key_value_heads": 2, '
               '"torch_dtype": "float16"}')
    for name in LISTS:
        check(name)
    os.chdir(before)


oracle.run(main)
