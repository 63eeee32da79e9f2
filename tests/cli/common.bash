# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# common.bash - what every command line test begins with
bats_require_minimum_version 1.5.0

root=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
KVTOOL=${KVTOOL:-$root/build/kvtool}
case $KVTOOL in /*) ;; *) KVTOOL=$root/$KVTOOL ;; esac
# shellcheck disable=SC2034 # the tests use it
kv=${KVT_DATA:-$root/testdata/kv}
case $kv in /*) ;; *) kv=$root/$kv ;; esac

# Run from a folder of its own, where the data is at hand by its short name.
setup() {
	cd "$BATS_TEST_TMPDIR" || return 1
	ln -s "$root/testdata" testdata
	# shellcheck disable=SC2034 # the tests use it
	data=testdata/kv/s260k/paged_bs16
	# nothing of the caller's terminal or settings
	unset NO_COLOR COLUMNS
	export LC_ALL=C TERM=dumb
}

# untraced COMMAND...: bats notes each line that a test comes by, to name the one that failed,
# which takes longer than the line; where a line of the test stands for many, it is enough.
untraced() { local -; set +T; "$@"; }

# run [-STATUS | !] [--separate-stderr] COMMAND...: what the run of bats does with these, in less
# than half of its time, which was most of that of many tests
run() { untraced run_it "$@"; }
run_it() {
	local wanted='' apart=''
	while :; do
		case $1 in
		-[0-9]*) wanted=${1#-} ;;
		--separate-stderr) apart=1 ;;
		'!') wanted='[!0]*' ;;
		-*) echo "run: $1 is not known here"; return 1 ;;
		*) break ;;
		esac
		shift
	done
	set +eE
	if [ "$apart" ]; then
		output=$("$@" 2>"$BATS_TEST_TMPDIR.stderr")
		status=$?
		read -d '' -r stderr <"$BATS_TEST_TMPDIR.stderr"
		# shellcheck disable=SC2034	# the tests use it, and lines
		IFS=$'\n' read -d '' -r -a stderr_lines <<<"$stderr"
	else
		output=$("$@" 2>&1)
		status=$?
	fi
	# shellcheck disable=SC2034
	IFS=$'\n' read -d '' -r -a lines <<<"$output"
	# shellcheck disable=SC2053	# a pattern
	[ -z "$wanted" ] || [[ $status == $wanted ]] ||
		{ printf '%s\n' "$*: status $status, not $wanted" "$output" "${apart:+$stderr}"; return 1; }
}

# WRAPPER: valgrind, or nothing.
kvtool() {
	${WRAPPER:-} "$KVTOOL" "$@"
}

# A copy that can be written, even of what lies in a tree that cannot.
cp() { command cp --no-preserve=mode "$@"; }

# expect STATUS NAME ARG...: the exit status, and stdout and stderr as the files
# of that name in expect/ have them; without a file, nothing may be printed.
# BLESS=1 writes the files anew.
expect() {
	local wanted=$1 name=$2 stream file
	shift 2
	run -"$wanted" --separate-stderr kvtool "$@"
	printf '%s' "${output:+$output$'\n'}" >out
	# shellcheck disable=SC2154 # bats sets it
	printf '%s' "${stderr:+$stderr$'\n'}" >err
	for stream in out err; do
		file=$BATS_TEST_DIRNAME/expect/$name.$stream
		if [ -n "${BLESS:-}" ]; then
			rm -f "$file"
			[ ! -s $stream ] || cp $stream "$file"
		fi
		[ -e "$file" ] || file=/dev/null
		diff -u "$file" $stream
	done
}

# one_sentence: standard error is one line that says who speaks
one_sentence() {
	# shellcheck disable=SC2154	# set by run --separate-stderr
	[ "${#stderr_lines[@]}" = 1 ] && [[ ${stderr_lines[0]} == kvtool*:* ]] &&
		[[ ${stderr_lines[0]} != *. ]]
}

# said WORD...: standard error has each of them
said() {
	local word
	# shellcheck disable=SC2154	# stderr: set by run --separate-stderr
	for word; do
		[[ $stderr == *"$word"* ]] || { echo "missing '$word' in: $stderr"; return 1; }
	done
}

# has TEXT WORDS: these are in it, in this order; | divides them, ^ and $ are its ends
# (one pattern: what # takes from a long text costs the square of its length)
has() {
	local IFS='|' words i pattern=
	set -f
	# shellcheck disable=SC2206	# to be split
	words=($2)
	set +f
	for i in "${!words[@]}"; do
		pattern+="*\"\${words[$i]}\""
	done
	eval "[[ ^\$1\$ == $pattern* ]]" || { echo "missing '$2' in: $1"; return 1; }
}

# (|| return 1: where a caller looks at the status, bash does not stop by itself)
# warns STATUS WORDS ARG...: kvtool ARG... ends so, and its one sentence has them
warns() {
	local -; set +T
	run -"$1" --separate-stderr kvtool "${@:3}" || return 1
	one_sentence || { echo "not one sentence: $stderr"; return 1; }
	has "$stderr" "$2"
}

# tells STATUS WORDS ARG...: and nothing is printed
tells() {
	local -; set +T
	warns "$@" || return 1
	[ -z "$output" ] || { echo "printed: $output"; return 1; }
}

# shows STATUS WORDS ARG...: kvtool ARG... ends so, and what it prints has them
shows() {
	local -; set +T
	run -"$1" kvtool "${@:3}" || return 1
	has "$output" "$2"
}

# json FILTER: the value that a Python expression over the object 'o' has.
json() {
	/usr/bin/python3 -c 'import json, sys
o = json.load(sys.stdin)
print(eval(sys.argv[1]))' "$1"
}

# no_reader COMMAND...: with a pipe as standard output that nobody reads any more.
# Who called this may have SIGPIPE ignored; kvtool would keep that.
no_reader() {
	# shellcheck disable=SC2016	# the inner shell expands it
	bash -c 'mkfifo unread && exec 8<>unread 9>unread 8<&- && rm unread &&
		exec env --default-signal=PIPE "$@" >&9 9>&-' - "$@"
}

# interrupt SIGNAL COMMAND...: sends it while a temporary file is there; prints how
# the program ended.  It is stopped meanwhile, and on one processor with what watches
# it, so that it cannot get far between the first sight of that file and the stop.
interrupt() {
	/usr/bin/python3 - "$@" <<-'PYTHON'
	import glob, os, signal, subprocess, sys, time

	number = getattr(signal, sys.argv[1])

	def child():
	    # a shell in the background has it ignored, and kvtool would keep that
	    signal.signal(number, signal.SIG_DFL)

	os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
	p = subprocess.Popen(sys.argv[2:], stdout=subprocess.DEVNULL, preexec_fn=child,
	                     stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
	end = time.monotonic() + 60
	while not glob.glob("*.tmp-*"):
	    if p.poll() is not None:
	        sys.exit("ended by itself before a temporary file was seen: %d" % p.returncode)
	    if time.monotonic() > end:
	        p.kill()
	        sys.exit("no temporary file in a minute")
	    time.sleep(0.001)
	p.send_signal(signal.SIGSTOP)
	state = os.waitid(os.P_PID, p.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
	if state.si_code != os.CLD_STOPPED or not glob.glob("*.tmp-*"):
	    p.kill()
	    sys.exit("was done before it could be stopped")
	p.send_signal(number)
	p.send_signal(signal.SIGCONT)
	try:
	    p.wait(60)
	except subprocess.TimeoutExpired:
	    p.kill()
	    sys.exit("does not end")
	print("by signal" if p.returncode == -number else "exit %d" % p.returncode)
	PYTHON
}
