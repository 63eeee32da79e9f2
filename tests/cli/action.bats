#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154	# variables of common.bash, dumps.bash and run
# action.bats - steps of action.yml as GitHub runs them, and the kit in examples/ci
# (of what gets kvtool the way with a wheel, by a pip that only notes what it is asked for)

load common
load dumps

# script [NAME]: the lines of the step's script, without their indentation
script() {
	awk -v name="${1-check}" '/^    - name: / { on = index($0, "- name: " name) }
		on && /^      env:/ { exit }
		on && /^        / { sub(/^        /, ""); print }' "$BATS_TEST_DIRNAME/../../action.yml"
}

step() {
	mkdir -p action/build && ln -sf "$KVTOOL" action/build/kvtool
	script >step.sh
	ACTION=action CONTRACT=$1 DUMPS=$2 OPTIONS=${3-} REPORT=report.xml run -"$4" bash -e step.sh
}

@test "a dump that keeps its contract passes, and the report says so" {
	kvtool convert "$nhd" nhd.h5
	kvtool expect write nhd.h5 kv.kvc
	step kv.kvc nhd.h5 "" 0
	grep -q '<testsuite' report.xml
	run -1 grep '<failure' report.xml
}

@test "one that breaks it is annotated, and the step fails" {
	kvtool convert "$hnd" hnd.h5
	kvtool expect write "$nhd" kv.kvc
	step kv.kvc hnd.h5 "" 1
	[[ $output == *'::error'*layout* ]]
	grep -q '<failure' report.xml
}

@test "patterns and options are split" {
	kvtool expect write "$nhd" kv.kvc
	kvtool convert "$nhd" a1.h5
	kvtool convert "$nhd" a2.h5
	step kv.kvc 'a*.h5' '--quiet --threads=1' 0
	[ "$(grep -c '<testcase' report.xml)" -ge 2 ]
}

@test "a wheel is installed instead of a build, and later steps have the program" {
	mkdir bin action
	cat >bin/python3 <<-'END'
		#!/bin/sh
		# python3 -m venv DIR
		mkdir -p "$3/bin"
		printf '#!/bin/sh\necho "$@" >asked\n' >"$3/bin/pip"
		ln -s "$KVTOOL" "$3/bin/kvtool"
		chmod +x "$3/bin/pip"
	END
	chmod +x bin/python3
	script "get kvtool" >get.sh
	PATH=$PWD/bin:$PATH ACTION=$PWD/action WHEEL=some.whl GITHUB_PATH=path run -0 bash -e get.sh
	[ "$(cat asked)" = "install --quiet some.whl" ]
	PATH=$(cat path):/usr/bin:/bin run -0 sh -c 'kvtool --version'
}

# ---- examples/ci -----------------------------------------------------------------------

# kit: a repository that has it, and kvtool on the PATH
kit() {
	cp -R "$root/examples/ci" ci
	PATH=${KVTOOL%/*}:$PATH
	export -n KVTOOL
}

# step_of NAME: the lines that a step of the workflow runs
step_of() {
	awk -v name="$1" '/^      - / { on = index($0, "- name: " name) }
		on && /^          / { sub(/^          /, ""); print }' ci/kvtool.yml | grep -v '^BASE:'
}

commit() {
	git add . && git -c user.name=x -c user.email=x@y commit -q -m "$1"
}

@test "the kit passes as it is" {
	kit
	run -0 sh ci/check.sh
	[ "$output" = "ci/dump.npy: matches ci/kv.kvc (20 clauses)" ]
	grep -q '<testsuite' kvtool-report.xml
}

@test "another layout fails, and both are named in words" {
	kit
	kvtool relayout -q --to=hnd -o new.npy ci/dump.npy
	run -1 sh ci/check.sh ci/dump.npy new.npy
	[[ $output == *"new.npy: g0: layout is LBHSC (hnd, "*"%2 (cpu-amx)"* ]]
	[[ $output == *"ci/kv.kvc to found.kvc: CPU-AMX to HND"* ]]
	[[ $output == *"If that is meant: kvtool expect write -f -o ci/kv.kvc new.npy" ]]
	# and what it says to do about it works
	kvtool expect write -f -o ci/kv.kvc new.npy
	run -0 sh ci/check.sh new.npy
}

@test "a dump that cannot be read is no other layout" {
	kit
	head -c 300 ci/dump.npy >cut.npy
	run sh ci/check.sh cut.npy
	[ "$status" -gt 1 ]
	[ ! -e found.kvc ]
}

@test "the workflow's own lines run" {
	kit
	git init -q .
	commit before
	base=$(git rev-parse HEAD)
	step_of "what is another layout" >words.sh
	step_of "what this pull request changes" >changes.sh
	[ -s words.sh ]
	[ -s changes.sh ]
	BASE=$base run -0 bash -e changes.sh
	[[ $output == *"the same (20 clauses)"* ]]
	kvtool relayout -q --to=hnd -o new.npy ci/dump.npy
	cp new.npy ci/dump.npy && sed 's/"new.npy"/"dump.npy"/' new.json >ci/dump.json
	run -1 bash -e words.sh
	[[ $output == *"CPU-AMX to HND"* ]]
	kvtool expect write -f -o ci/kv.kvc new.npy
	commit after
	BASE=$base run -0 bash -e changes.sh
	[[ $output == *"old.kvc to ci/kv.kvc: CPU-AMX to HND"* ]]
	# what it uses of action.yml is there
	for input in $(sed -n '/with:$/,/- name/s/^          #* *\([a-z]*\): .*/\1/p' ci/kvtool.yml); do
		grep -q "^  $input:\$" "$root/action.yml"
	done
	sed -n 's/^ *dumps: //p' ci/kvtool.yml | xargs ls
}
