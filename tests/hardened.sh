# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# hardened.sh - sourced by tests: what a program or library was not built with
#
# lacks FILE prints it, a word each, and nothing of a file that has all of it.  What lies
# inside is not asked: compilers differ in where they see a need.

lacks() {
	symbols=$(nm -D "$1") && dynamic=$(readelf -dW "$1") && parts=$(readelf -lW "$1") ||
		return 1
	echo "$symbols" | grep -q ' U __stack_chk_fail' || echo stack-protector
	echo "$symbols" | grep -q ' U __[a-z]*_chk@' || echo _FORTIFY_SOURCE
	echo "$dynamic" | grep -q 'BIND_NOW' || echo BIND_NOW
	echo "$parts" | grep -q 'GNU_RELRO' || echo RELRO
	echo "$parts" | grep -q 'GNU_STACK.* RW ' || echo noexecstack
	echo "$parts" | grep -q '^Elf file type is DYN' || echo PIE
	# the C library's part of any file has a few
	! takes_cet || [ "$(objdump -d "$1" | grep -c endbr)" -gt 8 ] || echo CET
}

# Where ${CC} has it, functions begin with an instruction that jumps may go to.
takes_cet() {
	${CC:-cc} -Werror -fcf-protection -c -o /dev/null -x c /dev/null 2>/dev/null
}
