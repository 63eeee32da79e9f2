#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
load common

@test "without arguments the usage goes to stderr" {
	expect 2 main-nothing
}

@test "--help prints the usage on stdout" {
	expect 0 main-usage --help
	expect 0 main-usage -h
	expect 0 main-usage help
}

@test "the usage fits a screen of 24 lines of 80, with a prompt below" {
	kvtool help >help
	[ "$(wc -l <help)" -le 23 ]
	[ "$(wc -L <help)" -le 80 ]
}

@test "a command's help is the same by all ways" {
	kvtool help describe >a
	kvtool describe --help >b
	kvtool describe -h >c
	cmp a b
	cmp b c
	grep -q '^usage: kvtool describe ' a
	grep -q '^exit status: ' a
}

@test "every command has help, a summary and examples" {
	[ "$(kvtool --list-commands | wc -l)" -ge 4 ]
	for command in $(kvtool --list-commands); do
		kvtool "$command" --help >help
		grep -q "^usage: kvtool $command " help
		grep -q '^examples:' help
		kvtool help | grep -qE " $command( |,|\$)"
	done
}

@test "a thing has one name in --help, and its other names are taken" {
	load dumps
	for command in $(kvtool --list-commands); do
		run -0 kvtool "$command" --help
		[[ $output != *"same as --block-size"* && $output != *"--tokens-per-block"* ]]
		[[ $output != *"--config="* && $output != *"--content=N"* ]]
		[[ $command = reblock || $output != *"--page-size"* ]]
	done
	run -0 kvtool reblock --help	# whose --block-size is that of the output
	[[ $output = *"--page-size=N          tokens in a block"* ]]
	for option in --page-size=16 --tokens-per-block=16; do
		kvtool describe "$option" "$nhd" >/dev/null
	done
	kvtool describe --list-options | grep -qx -e --tokens-per-block
	cmp <(kvtool size --config=llama-3.1-8b) <(kvtool size --model=llama-3.1-8b)
	cmp <(kvtool size --list) <(kvtool size --model=list)
	cmp <(kvtool where --offset=330104 "$nhd") <(kvtool where "$nhd" 330104)
	kvtool slice --tp-size=2 --tp-rank=1 "$nhd" a.h5
	kvtool slice --tp=1/2 "$nhd" b.h5
	kvtool diff -q a.h5 b.h5
	tells 2 '--tokens-per-block' describe --tokens-per-blok=16 "$nhd"
}

@test "an unknown command is named and its neighbour suggested" {
	expect 2 main-near desribe
	expect 2 main-unknown transmogrify
	expect 2 main-option --verbose
	expect 2 main-near-help help desribe
}

@test "--version names libraries, filter and kernels" {
	run -0 --separate-stderr kvtool --version
	[[ ${lines[0]} =~ ^kvtool\ [0-9]+\.[0-9]+\.[0-9]+$ ]]
	for what in zstd jansson xxHash zlib; do
		[[ $output =~ $what\ +[0-9]+\.[0-9] ]]
	done
	# its number is not known before it is opened
	[[ $output =~ HDF5\ +([0-9]+\.[0-9]|libhdf5.*\ opened\ when) ]]
	[[ $output == *"filter 32015"* ]]
	[[ $output =~ $'\n'cpu:\ ref ]]
	[[ $output == *"cuda: "* && $output == *"hip: "* ]]
	[ -z "$stderr" ]
}

@test "help has lists of layouts, formats and dtypes" {
	kvtool help layouts | grep -q '^hnd  *LBHSC '
	kvtool help formats | grep -q '^hdf5  *rw '
	kvtool help dtypes | grep -q '^bfloat16  *2  *BF16 '
}

@test "a full disk is not success" {
	[ -w /dev/full ] || skip "no /dev/full"
	run -5 bash -c '"$0" --version >/dev/full' "$KVTOOL"
	[ "$output" = "kvtool: writing standard output: No space left on device" ]
	run -5 bash -c '"$0" describe --help >/dev/full' "$KVTOOL"
	[ "$output" = "kvtool describe: writing standard output: No space left on device" ]
}

@test "closed streams get nothing that is not theirs" {
	run -5 bash -c '"$0" --version >&-' "$KVTOOL"
	[[ $output == "kvtool: writing standard output: "* ]]
	run -2 bash -c '"$0" desribe 2>&-' "$KVTOOL"
	[ -z "$output" ]
}

@test "a reader that goes away ends kvtool by SIGPIPE" {
	# 141 = 128 + SIGPIPE
	run -141 no_reader "$KVTOOL" help layouts
}

@test "a signal leaves no file behind and ends kvtool by that signal" {
	# sparse, and with one thread long enough to be caught at work
	truncate -s 512M big.bin
	run -0 interrupt SIGTERM "$KVTOOL" relayout --to=nhd --layout=hnd --dtype=bf16 \
		--layers=32 --blocks=256 --block-size=16 --heads=16 --head-dim=64 \
		--threads=1 -o out.h5 big.bin
	[ "$output" = "by signal" ]
	[ -z "$(find . -name 'out.h5*')" ]
}

@test "options: mistakes are named" {
	expect 2 opt-near describe --expct=a=b f
	expect 2 opt-unknown describe --frobnicate f
	expect 2 opt-letter describe -z f
	expect 2 opt-missing describe --expect
	expect 2 opt-surplus describe --json=yes f
	expect 2 opt-several describe --l=nhd f
	expect 2 opt-count describe --threads=0 f
	expect 2 opt-number describe --layers=five f
	expect 2 opt-huge describe --layers=99999999999999999999 f
	expect 2 opt-size describe --mem-limit=12Q f
	expect 2 opt-size-huge describe --mem-limit=9000000T f
}

@test "options: any order, both forms, -- ends them" {
	run -5 --separate-stderr kvtool describe nofile --json
	[ "$stderr" = "kvtool describe: nofile: cannot open: No such file or directory" ]
	run -5 --separate-stderr kvtool describe --mem-limit 512m -- --json
	[ "$stderr" = "kvtool describe: --json: cannot open: No such file or directory" ]
}

@test "every command lists its options once" {
	[ "$(kvtool --list-commands | wc -l)" -ge 4 ]
	for command in $(kvtool --list-commands); do
		kvtool "$command" --list-options >options
		grep -qx -e --help options
		[ -z "$(sort options | uniq -d)" ]
	done
}

# ---- completion --------------------------------------------------------------

# complete WORD...: what bash offers after these words, the last one begun.
complete_words() {
	PATH=$(dirname "$KVTOOL"):$PATH bash -c '
		. "$0/cli/completion.bash"
		COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
		_kvtool
		printf "%s\n" "${COMPREPLY[@]}"' "$root" kvtool "$@"
}

@test "bash completes commands" {
	[ "$(complete_words de)" = describe ]
	[ "$(complete_words --v)" = --version ]
	[[ $(complete_words '') == *describe*relayout* ]]
}

@test "bash completes the options of a command" {
	[ "$(complete_words describe --expect-l)" = --expect-layout= ] ||
	[ "$(complete_words describe --expect-l)" = --expect-layout ]
	[[ $(complete_words relayout --) == *--dry-run* ]]
	[ "$(complete_words help dig)" = digest ]
}

@test "bash completes models" {
	[ "$(complete_words size -m qwen3-8)" = qwen3-8b ]
	[ "$(complete_words transfer-sim --model = qwen3-8)" = qwen3-8b ]
	[ "$(complete_words size --config = qwen3-8)" = qwen3-8b ]
}

@test "bash completes modes, links and stacks of transfer-sim" {
	[ "$(complete_words transfer-sim rep)" = $'replay\nreport' ]
	[ "$(complete_words transfer-sim time --clos)" = --closed-form ]
	[ "$(complete_words transfer-sim --hist)" = --histogram ]
	[ "$(complete_words transfer-sim time --link = cx7-400g-v)" = cx7-400g-verbs ]
	[ "$(complete_words transfer-sim time --emulate nixl-)" = nixl-packed ]
}

@test "bash completes layouts" {
	[[ $(complete_words relayout --to cross-h) == *cross-hnd* ]]
	[[ $(complete_words relayout --to = cross-h) == *cross-hnd* ]]
}

@test "what a newcomer forgets or mistypes is told" {
	# said STATUS TEXT ARG...
	told() {
		run -"$1" --separate-stderr kvtool "${@:3}"
		[ -z "$output" ]
		[ "${#stderr_lines[@]}" = 1 ]
		[[ $stderr == *"$2"* ]] || { echo "no '$2' in: $stderr"; return 1; }
	}
	mkdir -p tree/m_abc
	told 3 'no offload tree: expected a folder with a config.json in it' \
		describe --from=offload tree/m_abc
	touch tree/m_abc/config.json
	mkdir up && mv tree up
	told 3 'there is one in up/tree' describe --from=offload up
	told 2 'expected an output; for example: kvtool convert nhd.npy' convert a.npy
	told 2 'expected a dump and an output; for example' convert
	told 2 "expected one input and one output, got 3 operands: 'a.npy', 'b.h5', 'c.h5'" \
		convert a.npy b.h5 c.h5
	told 2 'expected a dump; for example: kvtool describe dump.h5' describe
	told 2 'expected a dump and an output; for example: kvtool mutate' \
		mutate --fault=zero-block
	told 2 "-o is 'c.npy', and 'b.npy' is an output, too" \
		mutate --fault=zero-block -o c.npy a.npy b.npy
	told 2 "there is no link 'rack7' and no such file; --link=list prints" \
		transfer-sim time -m llama-3.1-8b --link=rack7
	told 2 "did you mean 'cx7-400g-verbs'?" \
		transfer-sim time -m llama-3.1-8b --link=cx7-400g-verb
	told 3 "no request 'second' among the 3 of this dump" \
		slice --request=second -o out.npy "$data/packed_nhd.bf16.npy"
	told 3 "no request 'a', did you mean 'A'?" \
		slice --request=a -o out.npy "$data/packed_nhd.bf16.npy"
	[ ! -e out.npy ]
}

@test "every command has --help, on standard output" {
	for name in $(kvtool --help | sed -n 's/^[a-z ]\{8\}\([a-z][a-z-]*\)  .*/\1/p'); do
		run -0 --separate-stderr kvtool "$name" --help
		[[ ${lines[0]} == "usage: kvtool $name "* ]]
		[ -z "$stderr" ]
	done
	[ "$name" ]
}

# on_terminal COLUMNS ARG...: what kvtool ARG... shows on a terminal so wide
on_terminal() {
	/usr/bin/python3 - "$1" "$KVTOOL" "${@:2}" <<-'PYTHON'
	import fcntl, os, pty, struct, sys, termios
	pid, fd = pty.fork()
	if pid == 0:
	    size = struct.pack("HHHH", 25, int(sys.argv[1]), 0, 0)
	    fcntl.ioctl(2, termios.TIOCSWINSZ, size)
	    os.execv(sys.argv[2], sys.argv[2:])
	shown = b""
	try:
	    while True:
	        chunk = os.read(fd, 65536)
	        if not chunk:
	            break
	        shown += chunk
	except OSError:
	    pass
	sys.stdout.buffer.write(shown)
	sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
	PYTHON
}

@test "progress is for terminals, on one line, and gone in the end" {
	# work that takes several drawings on a fast machine, too
	truncate -s 192M zeros.bin
	work=(describe --stats --threads=1 --layout=nhd --dtype=bf16 --layers=8
		--block-size=16 --heads=8 --head-dim=128 zeros.bin)
	TERM=xterm on_terminal 80 "${work[@]}" >wide
	TERM=xterm NO_COLOR=1 on_terminal 20 "${work[@]}" >narrow
	/usr/bin/python3 - wide 79 narrow 19 <<-'PYTHON'
	import re, sys
	for name, width in zip(sys.argv[1::2], sys.argv[2::2]):
	    shown = open(name, "rb").read()
	    lines = re.findall(rb"\r([^\r\n\x1b]*)\x1b\[K", shown)
	    assert len(lines) > 1 and lines[-1] == b"", (name, lines)
	    full = [b"%s" % l for l in lines[:-1]]
	    assert all(0 < len(l) <= int(width) for l in full), (name, lines)
	    if name == "wide":
	        for l in full:
	            assert re.fullmatch(rb"[a-z ]+ +\d+%  \d+ MB/s  \d+:\d\d left", l), l
	        part = [int(re.search(rb"(\d+)%", l)[1]) for l in full]
	        assert part == sorted(part) and part[-1] <= 100, part
	    # nothing is left of it before what is printed
	    assert b"left" not in shown[shown.rindex(b"\x1b[K"):], name
	PYTHON
	TERM=dumb on_terminal 80 "${work[@]}" >dumb
	TERM=xterm on_terminal 80 "${work[@]}" --quiet >quiet
	# to what is no terminal
	TERM=xterm kvtool "${work[@]}" >piped 2>&1
	run -1 grep -c $'\r' piped
	run -1 grep -c $'\033' dumb quiet piped
}
