#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2154	# variables of common.bash, dumps.bash and run
# expect.bats - kvtool expect: the command line
# (clauses, reports and malformed contracts: tests/oracle_expect.py)

load common
load dumps

mamba=$kv/mamba2g4/tp2_SD/rank1.npy

# refused STATUS TEXT ARG...: nothing is printed, and the sentence has TEXT
refused() { tells "$1" "$2" expect "${@:3}"; }

@test "expect write says what a dump is" {
	expect 0 expect-nhd expect write "$nhd"
	expect 0 expect-mamba expect write --pool "$mamba"
}

@test "what a dump has none of is said to be empty" {
	kvtool expect write "$nhd" | sed '/^layers =/a parts = x:0+32' >c
	refused 1 'g0: parts is empty, expected x:0+32' check c "$nhd"
}

@test "expect write -o: an existing contract is replaced with -f only" {
	kvtool expect write -o c "$nhd"
	cmp c <(kvtool expect write "$nhd")
	refused 5 "exists" write -o c "$hnd"
	cmp c <(kvtool expect write "$nhd")
	kvtool expect write -f -o c "$hnd"
	cmp c <(kvtool expect write "$hnd")
	only c
}

@test "expect write without a pool holds for a pool of another size" {
	kvtool slice -q --blocks 0:40 -o small.npy "$nhd"
	kvtool expect write -o c "$nhd"
	kvtool expect check c small.npy
	kvtool expect write -f --pool -o c "$nhd"
	run -1 --separate-stderr kvtool expect check c small.npy
	[ "${#stderr_lines[@]}" = 2 ]
	said "blocks is 40, expected 48" "strides is L:81920"
}

@test "expect write --digest: other data breaks it" {
	kvtool expect write --digest -o c "$hnd"
	run -1 --separate-stderr kvtool expect check c "$kv/s260k/paged_bs32/packed_nhd.bf16.npy"
	said "digest.blocks is kvd1:blocks:"
	kvtool expect check c "$hnd"
}

@test "expect check --digest with any number of threads and little memory" {
	kvtool convert -q "$nhd" in.h5
	kvtool expect write --digest -o c in.h5
	grep -q "^digest.*= kvd1:tokens:b73809ebc064eb21a0cc395e4393a5c6" c
	for n in 1 7; do
		kvtool expect write --digest --threads=$n --mem-limit=4M -o c$n in.h5
		cmp c c$n
		kvtool expect check --threads=$n --mem-limit=4M c in.h5
	done
	refused 4 'more than --mem-limit allows' check --mem-limit=1k c in.h5
}

@test "expect check: all files, the highest status wins" {
	kvtool expect write -o c "$nhd"
	run -1 --separate-stderr kvtool expect check c "$hnd" "$nhd"
	[ "$output" = "$nhd: matches c (18 clauses)" ]
	printf 'no dump' >junk
	run -3 --separate-stderr kvtool expect check c "$hnd" junk "$nhd"
	said "c:11: $hnd: g0: layout is" "junk: "
	[ "$output" = "$nhd: matches c (18 clauses)" ]
	run -1 --separate-stderr kvtool expect check -q c "$hnd" "$nhd"
	[ -z "$output" ]
}

@test "expect check reads a contract from a pipe" {
	kvtool expect check <(kvtool expect write "$nhd") "$nhd"
}

@test "a report replaces a file with -f alone, and is in no other's way" {
	echo old >r.xml
	kvtool expect write -o c "$nhd"
	refused 5 "r.xml: exists; --force replaces it" check --report=junit=r.xml c "$nhd"
	[ "$(cat r.xml)" = old ]
	kvtool expect check -f --report=junit=r.xml c "$nhd"
	grep -q '<testsuites>' r.xml
	kvtool expect check --report=junit=/dev/null c "$nhd"
	[ -c /dev/null ]
	refused 5 "cannot create" check --report=tap=none/such c "$nhd" -q
	only c r.xml
}

@test "mistakes on the command line" {
	refused 2 "expected write, check or compare, or backend"
	refused 2 "or backend, layout, connector, got chek" chek c "$nhd"
	refused 2 "expected one dump and at most one output, got 3" write "$nhd" "$hnd" x
	refused 2 "got 2 operands and -o" write -o x "$nhd" y
	refused 5 "exists" write "$nhd" "$hnd"
	refused 2 "a contract and dumps" check c
	refused 2 "options of check" write --json "$nhd"
	refused 2 "options of write" check -o x c "$nhd"
	refused 2 "expected junit=FILE or tap=FILE" check --report=xunit=f c "$nhd"
	refused 2 "expected junit=FILE or tap=FILE" check --report=junit c "$nhd"
	refused 2 "only one of" check --json --report=tap=- c "$nhd"
	printf 'kvtool-contract 1\nmodel = m0%s\n' "$(printf ' | m%d' {1..31})" >most
	refused 1 'model is stories260K' check most "$nhd"
	printf 'kvtool-contract 1\nmodel = m0%s\n' "$(printf ' | m%d' {1..32})" >more
	refused 3 'model: more than 32 alternatives' check more "$nhd"
	refused 5 "none: cannot open" check none "$nhd"
	refused 5 "cannot read" check . "$nhd"
}

@test "describe --expect takes clauses" {
	kvtool describe -j --expect 'alignment>=2048' --expect 'block_size=16|32' \
		--expect 'backend=FLASH_ATTN@packed' --expect g0.dtype=bf16 "$nhd" >/dev/null
	run -1 --separate-stderr kvtool describe -j --expect 'g0.alignment>=4096' "$nhd"
	said "g0: alignment is 2048, expected at least 4096"
	tells 2 "did you mean 'FLASH_ATTN'?" describe -j --expect backend=FLASH_ATN "$nhd"
	tells 2 'kvtool digest' describe -j --expect \
		digest.tokens=kvd1:tokens:b73809ebc064eb21a0cc395e4393a5c6 "$nhd"
}

@test "what vLLM would choose: mistakes on the command line" {
	refused 2 "expected one dump or none, got 2" backend a b
	refused 2 "--with is 'snks', did you mean 'sinks'?, expected one of mla, sparse" \
		backend --with=snks
	refused 2 "--on is 'cuda', expected cuda:9.0 with the compute capability" \
		backend --on=cuda
	refused 2 "--on is 'rocm:mi', expected" backend --on=rocm:mi
	refused 2 "--on is 'cuda:9', expected" backend --on=cuda:9
	refused 5 "missing.h5" backend missing.h5
	refused 2 "--backend is 'flash', which is no backend of vLLM" layout --backend=flash
	refused 2 "--request: 'BNLHC' is no layout of vLLM, expected LBHNC (HND)" \
		layout --request=BNLHC
	refused 2 "--shape is '8,16', expected heads, slots and bytes of a page" \
		layout --shape=8,16
	refused 2 "perhaps ,dcp or ,whole" layout --shape=8,16,64,pcp
	refused 2 "--cache is '', expected a type" layout --cache=
	refused 2 "expected host in the third part" layout --cache=uint8:nvfp4:gpu
	refused 2 "there is no type 'bfloat61'; expected one such as" layout --cache=bfloat61
	refused 2 "--shape is '9223372036854775808,1,1', expected" \
		layout --shape=9223372036854775808,1,1
	refused 2 "--cache-dtype is 'fp8_e4m', did you mean 'fp8_e4m3'?" \
		backend --cache-dtype=fp8_e4m
	refused 2 "--cache-dtype is '', expected vLLM's name" backend --cache-dtype=
	refused 2 "--dtype is 'bf17', expected a type" backend --dtype=bf17 --head-dim=64
	refused 2 "--with is 'sinks', expected mla, hisparse or no-model" layout --with=sinks
	refused 2 "'nixl' is no connector of vLLM, expected a name such as NixlConnector" \
		layout --connector=nixl
	refused 2 "MultiConnector is what several connectors are already" \
		connector MultiConnector NixlConnector
	refused 3 "LBNHC is requested, but possible are LBHNC" \
		layout --backend=CPU_ATTN --request=NHD
	refused 3 "workers 0 and 1 report different layouts: LBHNC; LBNHC" \
		layout --worker=LBHNC --worker=NHD
	refused 3 "worker 0 reports no layout" layout --worker=
	refused 3 "no layout is in every list" layout --backend=CPU_ATTN --backend=HPC_ATTN
}

@test "a backend that is selected is taken, or vLLM fails" {
	ask=(expect backend --head-dim=128 --dtype=bf16 --block-size=16 --on=cuda:9.0)
	run -0 kvtool "${ask[@]}" --select=TRITON_ATTN
	[[ ${lines[-1]} == "for full_attention TRITON_ATTN is selected, and vLLM takes it" ]]
	run -1 kvtool "${ask[@]}" --select=TRITON_MLA
	[[ ${lines[-1]} == *"TRITON_MLA is selected, and vLLM fails: non-MLA not supported" ]]
	# that of its kind beats the other; of other kinds it says nothing
	run -0 kvtool "${ask[@]}" --with=window --select=TRITON_MLA \
		--select=sliding_window=FLEX_ATTENTION
	[[ ${lines[-1]} == "for sliding_window FLEX_ATTENTION is selected, and vLLM takes it" ]]
	run -0 kvtool "${ask[@]}" --select=sliding_window=TRITON_MLA
	[[ ${lines[-1]} == *"it takes FLASH_ATTN" ]]
	run -1 kvtool expect backend -j --select=FLASH_ATTN --with=mla --with=window
	[ "$(json '[o["groups"][0][k] for k in ("kind", "selected", "taken", "asked")]' \
		<<<"$output")" = "['sliding_window_mla', 'FLASH_ATTN', None, []]" ]
	refused 2 "--select: there is no key 'mla'" backend --select=mla=FLASHMLA
	refused 2 "--select is 'FLASH_ATN', did you mean 'FLASH_ATTN'?" backend \
		--select=FLASH_ATN
}

@test "two names of one type are one type, and not two" {
	shows 0 'zeroing    no: ' expect layout --cache=bf16 --cache=bfloat16
	shows 0 'zeroing    yes: ' expect layout --cache=bf16 --cache=float16
}

@test "write says what it wrote, unless that is on standard output, or -q" {
	run -0 kvtool expect write -o c.kvc "$nhd"
	[ "$output" = "c.kvc: 18 clauses of $nhd; to check others: kvtool expect check c.kvc FILE..." ]
	run -0 kvtool expect check c.kvc "$nhd"
	[ "$output" = "$nhd: matches c.kvc (18 clauses)" ]
	run -0 kvtool expect write -q -f "$nhd" c.kvc
	[ -z "$output" ]
	kvtool expect write "$nhd" >d.kvc
	kvtool expect write "$nhd" - | cmp - d.kvc
	cmp c.kvc d.kvc
}

@test "backends of a latent, of a packed content, and of no attention" {
	run -0 kvtool expect backend --with=mla --with=sparse --cache-dtype=fp8_ds_mla \
		--block-size=64 --head-dim=576 --all-reasons
	[ "${lines[1]}" = "could be of" ]
	[[ ${lines[2]} == "  vLLM 0.32  "*" FLASHMLA_SPARSE"* ]]
	[[ $output == *$'\n  TRITON_MLA: kv_cache_dtype not supported, sparse not supported\n'* ]]
	run -0 kvtool expect backend --with=connector --head-dim=128
	[[ $output == *'  KV connector not supported: ROCM_ATTN'* ]]
	may ROCM_AITER_UNIFIED_ATTN --with=connector --head-dim=128
	may FLEX_ATTENTION "$nhd"
	run -1 may FLEX_ATTENTION "${nhd/nhd/hnd}"
}

@test "the release stands first, then who could have it, then how many could not" {
	run -0 kvtool expect backend "$nhd"
	[ "${lines[1]}" = "could have been written by" ]
	[ "${lines[2]}" = "  vLLM 0.32  FLASH_ATTN, FLASH_ATTN_DIFFKV, FLEX_ATTENTION" ]
	[ "${lines[3]}" = "  vLLM 0.26  the same" ]
	[ "${lines[4]}" = "  vLLM 0.24  FLASH_ATTN_DIFFKV" ]
	[ "${lines[5]}" = "  vLLM 0.22  the same" ]
	[ "${#lines[@]}" -le 14 ]
	# every backend is of one list or counted for one reason
	all=$(kvtool expect backend --json "$nhd" | json 'len(o["groups"][0]["backends"])')
	no=$(sed -n 's/^not \([0-9]*\) of vLLM 0.32 .*/\1/p' <<<"$output")
	[ $((no + 3)) = "$all" ]
	[ "$(awk '/^  +[0-9]+  / { n += $1 } END { print n }' <<<"$output")" = "$no" ]
	while read -r n _ names; do
		more=$(sed -n 's/.* and \([0-9]*\) more$/\1/p' <<<"$names")
		[ "$n" = $((${more:-0} + $(grep -oE '\b[A-Z][A-Z0-9_]{3,}\b' <<<"${names#*: }" | wc -l))) ]
	done < <(grep -E '^ +[0-9]+  ' <<<"$output")
	# all reasons have each of them once
	run -0 kvtool expect backend --all-reasons "$nhd"
	[ "$(sed '1,/^not of/d' <<<"$output" | cut -d : -f 1 | sort -u | wc -l)" = "$no" ]
	run -0 kvtool expect backend --release=0.22.1 "$nhd"
	[ "${lines[2]}" = "  vLLM 0.22  FLASH_ATTN_DIFFKV" ]
	[[ ${lines[3]} == "  vLLM 0.32  FLASH_ATTN, "* ]]
	[ "${lines[5]}" = "  vLLM 0.24  FLASH_ATTN_DIFFKV" ]
	[[ $output == *"not implemented in this release of vLLM: "* ]]
	run -0 kvtool expect backend --release=list
	[ "${lines[0]%% *}" = 0.32 ]
	refused 2 "--release: '0.25' is no release of vLLM whose facts are known, expected 0.22, 0.24, 0.26 or 0.32" \
		backend --release=0.25
}

@test "before 0.32 an order is NHD or HND, and the backend decides where bytes are" {
	run -0 kvtool expect layout --release=0.24 --backend=FLASH_ATTN
	[[ $output == *"layout     NHD: "*"bytes      FLASH_ATTN: LBKSHD"* ]]
	shows 0 'layout     HND: the connector asks for it|FLASH_ATTN: LKBHSD' expect layout \
		--release=0.22 --backend=FLASH_ATTN --connector=NixlConnector
	# what a backend needs on a device beats the user
	shows 0 'layout     HND: |bytes      FLASHINFER: LBHSC' expect layout --release=0.26 \
		--backend=FLASHINFER --request=NHD --on=cuda:10.0
	shows 0 'the same$' expect layout --release=0.26 --backend=FLASH_ATTN "$nhd"
	shows 1 'another one$' expect layout --release=0.24 --backend=FLASH_ATTN "$nhd"
	refused 2 "in release 0.24 the backend decides where bytes are: expected --backend" \
		layout --release=0.24 "$nhd"
	refused 2 "--shape, --worker and --resolved are of release 0.32, not of 0.26" \
		layout --release=0.26 --shape=8,16,65536
	refused 2 "--backend is B12X, of which release 0.26 has no code or no layout" \
		layout --release=0.26 --backend=B12X
	refused 2 "release 0.22 of vLLM has no NixlPullConnector, which is there since 0.24" \
		layout --release=0.22 --connector=NixlPullConnector
	shows 0 'zeroing    no: ' expect layout --release=0.26 --cache=bf16 --cache=float16
}

@test "a device decides where a backend puts bytes" {
	run -0 kvtool expect layout --backend=FLASHINFER --on=cuda:10.0
	[[ $output == *"layout     LBHNC"*"possible   LBHNC, BLHNC"* ]]
	run -0 kvtool expect layout --backend=ROCM_AITER_FA --on=rocm:shuffle
	[[ $output == *"layout     LHBNC"*"bytes      ROCM_AITER_FA: aiter-shuffle-kv-first"* ]]
	run -0 kvtool expect layout --backend=ROCM_AITER_UNIFIED_ATTN \
		--connector=ExampleConnector
	[[ $output == *$'possible   LBHNC\n'* ]]
}

@test "kernels of another maker are not there to be asked" {
	run -0 kvtool expect backend --on=rocm --all-reasons
	[[ $output == *$'\n  FLASHINFER_MLA: runs on CUDA only\n'*": runs on CPUs only"* ]]
	[[ $(sed -n 's/^  vLLM 0.32//p' <<<"$output") != *FLASH[IM]* ]]
	shows 0 '  runs on ROCm only: ROCM_ATTN, ' expect backend --on=cuda:9.0 --with=connector
	refused 2 "--backend is ROCM_ATTN, which runs on ROCm only, not on cuda:9.0" \
		layout --backend=ROCM_ATTN --on=cuda:9.0
	run -0 kvtool expect layout --backend=ROCM_ATTN --on=rocm
	# without --on any machine will do
	run -0 kvtool expect backend
	[[ $output != *"only:"* ]]
}

# may NAME ARG...: is the backend among those that could have it?
may() {
	kvtool expect backend -j "${@:2}" |
		json "[b['backend'] for b in o['groups'][0]['backends'] if b['possible']]" |
		grep -q "'$1'"
}

# could NAME TYPE ROW BLOCK: the backend could have such rows, or pages of them
could() {
	head -c $((2 * 3 * $4 * $3)) /dev/zero >rows.bin
	kvtool expect backend --layout=mla --content-type="$2" --layers=2 --block-size="$4" \
		rows.bin >/dev/null
	may "$1" --layout=mla --content-type="$2" --layers=2 --block-size="$4" rows.bin
}

@test "vLLM has each content by the word that kvtool-content(7) has for it" {
	could FLASHMLA_SPARSE fp8-ds-mla 656 64
	could FLASHMLA_SPARSE nvfp4-ds-mla 352 64
	could FLASHMLA_SPARSE glm53-nope-656 656 64
	could FLASHMLA_SPARSE_DSV4 dsv4 584 256
	could FLASHMLA_SPARSE_DSV41 dsv41 528 128
	could FLASHMLA_MEGA_ATTN_DSV41 dsv41-fp4 288 128
	run -1 could FLASHMLA_SPARSE_DSV41 dsv41-fp4 288 128
}

@test "two contracts are compared in words" {
	kvtool relayout -q --to=hnd -o hnd32.npy "$kv/s260k/paged_bs32/packed_nhd.bf16.npy"
	kvtool expect write -o old.kvc "$nhd"
	kvtool expect write -o new.kvc hnd32.npy
	run -1 kvtool expect compare old.kvc new.kvc
	[ "${lines[0]}" = "old.kvc to new.kvc: NHD to HND, block 16 to 32" ]
	[ "${lines[1]}" = "new.kvc:11: g0: layout from LBSHC (nhd) to LBHSC (hnd)" ]
	run -1 kvtool expect compare -j old.kvc new.kvc
	[ "$(json "o['summary'], o['equal'], o['changes'][0]['was']" <<<"$output")" = \
		"('NHD to HND, block 16 to 32', False, 'LBSHC (nhd)')" ]
	run -1 kvtool expect compare -q old.kvc new.kvc
	[ -z "$output" ]
	run -0 kvtool expect compare old.kvc old.kvc
	[ "$output" = "old.kvc and old.kvc: the same (18 clauses)" ]
}

@test "what is spelt in another way is the same, and what one has alone is told" {
	printf 'kvtool-contract 1\ngroup g0\nlayout = nhd | hnd\ndtype = bf16\nlayers = 05\n' >a
	printf 'kvtool-contract 1\ngroup g0\nlayers = 5\ndtype = bfloat16\nlayout = LBHSC|LBSHC\n' >b
	run -0 kvtool expect compare a b
	printf 'kvtool-contract 1\nmodel = m\ngroup g0\nlayout = nhd\ngroup g1\nheads >= 4\n' >c
	printf 'kvtool-contract 1\ngroup g0\nlayout = nhd\nlayout != hnd\ngroup g2\n' >d
	run -1 kvtool expect compare c d
	[ "$output" = "c to d: no other layout, type or size, but other clauses
c:5: no more: group g1
c:2: no more: model m
d:5: new: group g2
d:4: g0: new: layout not LBHSC (hnd)" ]
	run -5 kvtool expect compare a nothing
	refused 3 "unknown clause 'layuot'" compare a <(printf 'kvtool-contract 1\nlayuot = nhd\n')
	refused 2 "expected two contracts" compare a
	refused 2 "expected two contracts" compare --digest a b
}
