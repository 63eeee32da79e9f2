#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check_layers.sh - who may include whom, and what a room may not call
#
# Arrows are in rooms.txt.  Only cli/ prints, exits, handles signals and reads the
# environment.  Each rule is also run on lines that break it, because a grep that finds
# nothing may be a grep that cannot find.
set -u
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh

libc='assert|ctype|errno|float|inttypes|limits|math|stdalign|stdarg|stdbool|stddef|stdint'
libc="$libc|stdio|stdlib|strings?"
system='pthread|sched|time|unistd|dlfcn|cpuid|immintrin|x86intrin'
print='v?f?printf|f?puts|f?putc|putchar|perror|write|fwrite'
stop='exit|_exit|_Exit|quick_exit|abort'
memory='malloc|calloc|realloc|strdup|strndup|asprintf|free|alloca'
files='fopen|open|openat|fread|read|pread|mmap'

# includes FOLDER...: every include of them, as file:line:text
includes() {
	grep -rHnE --include='*.[chS]' --include='*.inl' --include='*.cu' --include='*.hip' \
		'^[[:space:]]*#[[:space:]]*include' "$@"
}

# code FOLDER PATTERN: lines that match outside comments and strings
code() {
	PATTERN=$2 find "$1" \( -name '*.[ch]' -o -name '*.inl' \) -exec perl -e '
		for my $file (@ARGV) {
			open my $in, "<", $file or die "$file: $!\n";
			local $/;
			my $text = <$in>;
			$text =~ s{/\*.*?\*/|"(?:\\.|[^"\\\n])*"}{$& =~ tr/\n//cdr}gse;
			my $n = 0;
			for (split /\n/, $text) {
				$n++;
				print "$file:$n:$_\n" if /$ENV{PATTERN}/;
			}
		}' {} +
}

# calls FOLDER NAMES: calls of these functions, but not through a struct
calls() { code "$1" "(?<![\\w.>])(?:$2)\\s*\\("; }

not() { grep -vE "$1"; true; }
only() { grep -E "$1"; true; }

pure='lib/(kvt|base|hash|layout|model|transfer|vllm|fault)/'
engine='(lib/(tile|prefix|snapshot|run|dump|derived|ops)|sim/ops)/'
engine_no="v?f?printf|puts|putchar|perror|$stop|getenv|signal|sigaction"

# What each room may include besides itself.  "%may" and room() are of rooms.txt.
rooms=$PWD/tests/rooms.txt
read_rooms='
	my (%may, %part_of);
	open my $in, "<", $ENV{ROOMS} or die $!;
	while (<$in>) {
		s/#.*//;
		if (/^(\S+):(.*)/) { $may{$1} = { map { ($_ => 1, %{$may{$_}}) } split q( ), $2 } }
		elsif (/^(\S+) = (.*)/) { my $whole = $1; $part_of{$_} = $whole for split q( ), $2 }
	}
	close $in;
	my $names = join "|", sort { length $b <=> length $a } grep { !/\*/ } keys %may, keys %part_of;
	sub room {
		my ($file) = @_;
		return "$1/*.h" if $file =~ m{^(.*)/[^/]*\.h$} && $may{"$1/*.h"};
		return $file =~ m{^($names)/} ? $part_of{$1} // $1 : $file;
	}
'
arrows() {
	includes lib kernels formats print sim cli | ROOMS=$rooms perl -e "$read_rooms"'
		while (<STDIN>) {
			m{^([^:]+):\d+:\s*#\s*include\s+"([^"]+)"} or next;
			my ($from, $to) = (room($1), room($2));
			print unless $from eq $to || $may{$from}{$to};
		}'
}

pure_includes()    { includes lib | only "^$pure" | not "\"$pure|<($libc|sys/types)\.h>"; }
pure_calls()       { calls lib "$print|$stop|$memory|$files|getenv|pthread_\\w+" | only "^$pure" | not '^lib/base/grow\.c:'; }
kernels_includes() { includes kernels | not "\"(lib|kernels)/|<($libc|$system)\.h>"; }
# which variable hides devices is part of a message, and of nothing else
kernels_calls()    { calls kernels "$print|$stop|$files|getenv" | not '^kernels/gpu_device\.c:.*getenv'; }
engine_calls()     { { calls lib "$engine_no"; calls sim/ops "$engine_no"; } | only "^$engine"; }
engine_streams()   { for folder in lib sim/ops; do code "$folder" '\b(stdin|stdout|stderr)\b'; done; }
threads()          { includes lib formats print sim cli | only '<pthread\.h>' | not '^lib/(run|dump)/|^formats/(hdf5/|parse/json\.c|file/(reads|stage)\.c)|^print/out/signals\.c|^cli/mpi/'; }
formats_calls()    { calls formats "v?printf|puts|putchar|perror|$stop|getenv"; }
formats_streams()  { code formats '\b(stdin|stdout|stderr)\b'; }
# What pages and pictures are made with knows nothing of what is drawn.
pages()            { includes print/page 2>/dev/null | not "\"print/page/|<($libc)\.h>"; }
rooted()           { includes lib kernels formats print sim cli | only '"' | not '"(lib|kernels|formats|print|sim|cli)/'; }
# Names of files and from files may hold anything; plainf() makes them plain.  These
# write the program's own words, or a format that has an escape of its own.
own="cli/(complain|opt|help|expect/report)|print/out/(plain|screen|json_out)|print/page/(page|heat)"
own="$own|sim/print/transfer_(map|charts|svg|trace)|sim/cmd/(report|emit)"
# What prints: its rooms but that of transfers' engine.
each_cli() { for folder in cli print sim; do "$1" "$folder" "$2"; done | not '^sim/ops/'; }
cli_prints()       { each_cli calls 'v?f?printf' | not "^($own)\.c:"; }
# what is left of a literal here is nothing, and of a choice of two '? :'
cli_puts()         { each_cli code '(?<![\w.>])f?puts\s*\(\s*[a-z(*]' | not '\? *:' |
		not "^($own)\.c:|fputs\(text, stdout\)|fputs\(.*->examples, stdout\)"; }
libraries()        { includes lib kernels print sim cli | only '<(hdf5|H5\w*|zstd\w*|xxhash|zlib)\.h>' | not '^lib/tile/.*<(zstd|xxhash)'; }
json()             { includes lib kernels | only '<jansson\.h>'; }

# A writable object in lib/ would be global state.  Compiled here, plainly, for
# sanitizers add objects of their own.
lib_state() {
	objects=$(mktemp -d) || return 1
	find lib -name '*.c' | while read -r file; do
		# shellcheck disable=SC2046	# flags are meant to be split
		"${CC:-cc}" -std=c11 -D_POSIX_C_SOURCE=200809L -D_DEFAULT_SOURCE -I. -fno-pie -c \
			$(pkg-config --cflags libxxhash libzstd jansson) \
			-o "$objects/$(echo "${file%.c}" | tr / -).o" "$file" || exit 1
	done || return 1
	(cd "$objects" && nm -A ./*.o) | only ' [bBdDCsS] '
	rm -rf "$objects"
}

# planted RULE FILE LINE: the rule must object to this line in an otherwise empty tree
planted() {
	tree=$(mktemp -d) || return 1
	(
		cd "$tree" || exit 1
		mkdir -p lib kernels formats print sim/ops cli tests bench "$(dirname "$2")"
		printf '%s\n' "$3" >"$2"
		[ -n "$("$1")" ]
	)
	result=$?
	rm -rf "$tree"
	return "$result"
}
innocent() { ! planted "$@" >/dev/null; }

none 'includes follow the arrows'                arrows
none 'pure rooms include themselves and libc only' pure_includes
none 'pure rooms print, allocate and open nothing' pure_calls
none 'lib/ has no global state'                  lib_state
none 'the engine prints nothing, ends nothing and asks no environment' engine_calls
none 'lib/ knows no standard stream'             engine_streams
none 'threads are of lib/run and lib/dump'                threads
none 'kernels/ includes lib/ and itself only'    kernels_includes
none 'kernels/ prints, exits and opens nothing'  kernels_calls
none 'formats/ neither prints nor exits, and asks no environment' formats_calls
none 'formats/ knows no standard stream'         formats_streams
none 'cli/ prints through plainf()'               cli_prints
none 'cli/ puts no strings that may be foreign'  cli_puts
none 'print/page knows nothing of what is drawn'    pages
none 'includes are written from the root'        rooted
none 'HDF5 and zlib stay in formats/, zstd and xxHash in lib/tile' libraries
none 'jansson stays in formats/ and cli/'        json

# found ROOM FILE N LINES: does the rule object to all of these N lines in that file?
found() {
	tree=$(mktemp -d) || return 1
	(
		cd "$tree" || exit 1
		mkdir -p lib kernels formats print sim cli "$(dirname "$1")"
		printf '%b' "$3" >"$1"
		[ "$(arrows | wc -l)" -eq "$2" ]
	)
	result=$?
	rm -rf "$tree"
	return "$result"
}

# each arrow that is not there
while read -r room file n lines; do
	ok "finds the $n rooms that $room may not use" found "$file" "$n" "$lines"
done <<ARROWS
$(ROOMS=$rooms perl -e "$read_rooms"'
	my ($pure) = grep { $part_of{$_} eq "pure" } sort keys %part_of;
	sub file {
		my ($room, $ending) = @_;
		return $room eq "pure" ? "$pure/a.$ending" : $room =~ s/\*/a/ ? $room : "$room/a.$ending";
	}
	for my $from (sort keys %may) {
		my @to = grep { $_ ne $from && !$may{$from}{$_} } sort keys %may;
		my @lines = map { "#include \"" . file($_, $may{"$_/*.h"} ? "c" : "h") . "\"\\n" } @to;
		print "$from ", file($from, "c"), " ", scalar @to, " ", join("", @lines), "\n" if @to;
	}')
ARROWS
ok 'leaves arrows alone'           innocent arrows cli/a.c '#include "lib/ops/a.h"'
ok 'finds a system header in lib/' planted pure_includes lib/base/a.c '#  include <unistd.h>'
ok 'finds printf in lib/'          planted pure_calls lib/base/a.c 'int f(void) { return printf("x"); }'
ok 'finds malloc in lib/'          planted pure_calls lib/base/a.c '	char *p = malloc (3);'
ok 'finds exit after a comment'    planted pure_calls lib/base/a.c '/* no */ void f(void) { exit(1); }'
ok 'finds a counter in lib/'       planted lib_state lib/a.c 'int f(void); int f(void) { static int n; return n++; }'
ok 'finds a format in kernels/'    planted kernels_includes kernels/a.c '#include "formats/format.h"'
ok 'finds fopen in kernels/'       planted kernels_calls kernels/a.c 'x = fopen("a", "r");'
ok 'finds printf in the engine'    planted engine_calls lib/dump/a.c 'printf("x");'
ok 'finds a signal in the engine'  planted engine_calls lib/ops/a.c 'sigaction(SIGINT, &a, NULL);'
ok 'finds a stream in the engine'  planted engine_streams lib/ops/a.c 'fprintf(stderr, "x");'
ok 'finds a thread elsewhere'      planted threads lib/ops/a.c '#include <pthread.h>'
ok 'finds an engine in a parser'   planted arrows formats/parse/a.c '#include "formats/vllm/offload.h"'
ok 'finds an engine in another'    planted arrows formats/llama/a.c '#include "formats/vllm/offload.h"'
ok 'knows stores that hold chunks' innocent arrows formats/mooncake/a.c '#include "formats/lmcache/lmcache.h"'
ok 'finds getenv in formats/'      planted formats_calls formats/a.c 'if (getenv("X"))'
ok 'finds stderr in formats/'      planted formats_streams formats/a.c 'fprintf(stderr, "x");'
ok 'finds printf in cli/'          planted cli_prints cli/a.c '	printf("%s", model);'
ok 'finds fprintf in cli/'         planted cli_prints cli/a.c '	fprintf(stderr, "%s", path);'
ok 'finds a name that is put'      planted cli_puts cli/a.c '	puts(s->model);'
ok 'finds a name that is fput'     planted cli_puts cli/a.c '	fputs(path, stderr);'
ok 'finds a result in a page'       planted pages print/page/a.c '#include "print/diff.h"'
ok 'finds an include beside'       planted rooted cli/a.c '#include "opt.h"'
ok 'finds zstd in cli/'            planted libraries cli/a.c '#include <zstd.h>'
ok 'finds jansson in lib/'         planted json lib/a.c '#include <jansson.h>'
ok 'leaves snprintf alone'         innocent pure_calls lib/base/a.c 'snprintf(b, n, "exit(1)");'
ok 'leaves plainf alone'           innocent cli_prints cli/a.c 'plainf("%s", snprintf(b, n, "x"));'
ok 'leaves literals alone'         innocent cli_puts cli/a.c 'puts(a ? "x" : "y"); puts("x" Y);'
ok 'leaves comments alone'         innocent pure_calls lib/base/a.c '/* never printf() */'
ok 'leaves members alone'          innocent formats_calls formats/a.c 'f->abort(w); w.exit(1);'
ok 'leaves names of files alone'   innocent formats_streams formats/a.c 's = "/dev/stdout";'
ok 'leaves constants alone'        innocent lib_state lib/a.c 'extern const char *const t[1]; const char *const t[1] = { "a" };'
done_testing
