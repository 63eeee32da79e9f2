#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154	# variables of common.bash, dumps.bash and run
# action.bats - the step "check" of action.yml, as GitHub runs it; nothing else of it is run

load common
load dumps

# The lines of the step's script, without their indentation.
script() {
	awk '/^    - name: / { on = $3 == "check" } on && /^      env:/ { exit }
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
