#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check_layers.sh - who may include whom, and what a layer may not call
#
# lib/ is pure; kernels/ and formats/ know lib/ and themselves; only cli/ prints,
# exits and reads the environment.  Each rule is also run on lines that break it,
# because a grep that finds nothing may be a grep that cannot find.
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

lib_includes()     { includes lib | not "\"lib/|<($libc)\\.h>"; }
lib_calls()        { calls lib "$print|$stop|$memory|$files|getenv|pthread_\\w+"; }
kernels_includes() { includes kernels | not "\"(lib|kernels)/|<($libc|$system)\\.h>"; }
# which variable hides devices is part of a message, and of nothing else
kernels_calls()    { calls kernels "$print|$stop|$files|getenv" | not '^kernels/gpu_device\.c:.*getenv'; }
formats_includes() { includes formats | only '"' | not '"(lib|formats)/'; }
formats_calls()    { calls formats "v?printf|puts|putchar|perror|$stop|getenv"; }
formats_streams()  { code formats '\b(stdin|stdout|stderr)\b'; }
rooted()           { includes lib kernels formats cli | only '"' | not '"(lib|kernels|formats|cli)/'; }
# Names of files and from files may hold anything; plainf() makes them plain.  These
# write the program's own words, or a format that has an escape of its own.
own="plain|opt|help|json_out|html(_map|_charts)?|sim_(page|svg|trace|emit)|diff_svg|expect_report"
cli_prints()       { calls cli 'v?f?printf' | not "^cli/($own)\.c:"; }
# what is left of a literal here is nothing, and of a choice of two '? :'
cli_puts()         { code cli '(?<![\w.>])f?puts\s*\(\s*[a-z(*]' | not '\? *:' |
		not "^cli/($own)\.c:|fputs\(text, stdout\)|fputs\(.*->examples, stdout\)"; }
libraries()        { includes lib kernels cli | only '<(hdf5|H5\w*|zstd\w*|xxhash|zlib)\.h>'; }
json()             { includes lib kernels | only '<jansson\.h>'; }

# A writable object in lib/ would be global state.  Compiled here, plainly, for
# sanitizers add objects of their own.
lib_state() {
	objects=$(mktemp -d) || return 1
	for file in lib/*.c; do
		"${CC:-cc}" -std=c11 -D_POSIX_C_SOURCE=200809L -I. -fno-pie -c \
			-o "$objects/$(basename "$file" .c).o" "$file" || return 1
	done
	(cd "$objects" && nm -A ./*.o) | only ' [bBdDCsS] '
	rm -rf "$objects"
}

# planted RULE FILE LINE: the rule must object to this line in an otherwise empty tree
planted() {
	tree=$(mktemp -d) || return 1
	(
		cd "$tree" || exit 1
		mkdir lib kernels formats cli tests bench
		printf '%s\n' "$3" >"$2"
		[ -n "$("$1")" ]
	)
	result=$?
	rm -rf "$tree"
	return "$result"
}
innocent() { ! planted "$@" >/dev/null; }

none 'lib/ includes itself and libc only'        lib_includes
none 'lib/ prints, allocates and opens nothing'  lib_calls
none 'lib/ has no global state'                  lib_state
none 'kernels/ includes lib/ and itself only'    kernels_includes
none 'kernels/ prints, exits and opens nothing'  kernels_calls
none 'formats/ includes lib/ and itself only'    formats_includes
none 'formats/ neither prints nor exits, and asks no environment' formats_calls
none 'formats/ knows no standard stream'         formats_streams
none 'cli/ prints through plainf()'               cli_prints
none 'cli/ puts no strings that may be foreign'  cli_puts
none 'includes are written from the root'        rooted
none 'HDF5, zstd, xxHash and zlib stay in formats/'    libraries
none 'jansson stays in formats/ and cli/'        json

ok 'finds a format in lib/'        planted lib_includes lib/a.c '#include "formats/snapshot.h"'
ok 'finds a system header in lib/' planted lib_includes lib/a.c '#  include <unistd.h>'
ok 'finds printf in lib/'          planted lib_calls lib/a.c 'int f(void) { return printf("x"); }'
ok 'finds malloc in lib/'          planted lib_calls lib/a.c '	char *p = malloc (3);'
ok 'finds exit after a comment'    planted lib_calls lib/a.c '/* no */ void f(void) { exit(1); }'
ok 'finds a counter in lib/'       planted lib_state lib/a.c 'int f(void); int f(void) { static int n; return n++; }'
ok 'finds a format in kernels/'    planted kernels_includes kernels/a.c '#include "formats/format.h"'
ok 'finds fopen in kernels/'       planted kernels_calls kernels/a.c 'x = fopen("a", "r");'
ok 'finds a kernel in formats/'    planted formats_includes formats/a.c '#include "kernels/kernels.h"'
ok 'finds getenv in formats/'      planted formats_calls formats/a.c 'if (getenv("X"))'
ok 'finds stderr in formats/'      planted formats_streams formats/a.c 'fprintf(stderr, "x");'
ok 'finds printf in cli/'          planted cli_prints cli/a.c '	printf("%s", model);'
ok 'finds fprintf in cli/'         planted cli_prints cli/a.c '	fprintf(stderr, "%s", path);'
ok 'finds a name that is put'      planted cli_puts cli/a.c '	puts(s->model);'
ok 'finds a name that is fput'     planted cli_puts cli/a.c '	fputs(path, stderr);'
ok 'finds an include beside'       planted rooted cli/a.c '#include "opt.h"'
ok 'finds zstd in cli/'            planted libraries cli/a.c '#include <zstd.h>'
ok 'finds jansson in lib/'         planted json lib/a.c '#include <jansson.h>'
ok 'leaves snprintf alone'         innocent lib_calls lib/a.c 'snprintf(b, n, "exit(1)");'
ok 'leaves plainf alone'           innocent cli_prints cli/a.c 'plainf("%s", snprintf(b, n, "x"));'
ok 'leaves literals alone'         innocent cli_puts cli/a.c 'puts(a ? "x" : "y"); puts("x" Y);'
ok 'leaves comments alone'         innocent lib_calls lib/a.c '/* never printf() */'
ok 'leaves members alone'          innocent formats_calls formats/a.c 'f->abort(w); w.exit(1);'
ok 'leaves names of files alone'   innocent formats_streams formats/a.c 's = "/dev/stdout";'
ok 'leaves constants alone'        innocent lib_state lib/a.c 'extern const char *const t[1]; const char *const t[1] = { "a" };'
done_testing
