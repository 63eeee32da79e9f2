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
		kvtool help | grep -q "^  $command "
	done
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
	for what in HDF5 zstd jansson xxHash; do
		[[ $output =~ $what\ +[0-9]+\.[0-9] ]]
	done
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
}

@test "bash completes layouts" {
	[[ $(complete_words relayout --to cross-h) == *cross-hnd* ]]
	[[ $(complete_words relayout --to = cross-h) == *cross-hnd* ]]
}
