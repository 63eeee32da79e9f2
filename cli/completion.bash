# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# completion.bash - kvtool for bash; asks kvtool itself, so it cannot go stale

_kvtool_words() {
	kvtool "$@" 2>/dev/null
}

# First column of a list of 'kvtool help', without its heading and footnote.
_kvtool_list() {
	_kvtool_words help "$1" | sed -e 1d -e '/^$/,$d' -e 's/ .*//'
}

_kvtool() {
	local word=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]-}
	local before=${COMP_WORDS[COMP_CWORD - 1]} list='' mode=''

	COMPREPLY=()
	if ((COMP_CWORD == 1)); then
		list="help $(_kvtool_words --list-commands)"
		[[ $word == -* ]] && list=$(_kvtool_words --list-options)
		mapfile -t COMPREPLY < <(compgen -W "$list" -- "$word")
		return
	fi

	# bash makes three words of --to=hnd
	if [[ $word == = ]]; then
		word=
	elif [[ $before == = ]]; then
		before=${COMP_WORDS[COMP_CWORD - 2]}
	fi
	# modes have options of their own
	if [[ $command =~ ^(transfer-sim|expect)$ && $COMP_CWORD -gt 2 && ${COMP_WORDS[2]} != -* ]]; then
		mode=${COMP_WORDS[2]}
	fi
	case $before in
	--to | --layout | --expect-layout) list=$(_kvtool_list layouts) ;;
	--format | --from) list=$(_kvtool_list formats) ;;
	--dtype | --cache-dtype | --ssm-dtype) list=$(_kvtool_list dtypes) ;;
	-m | --model | --config) list=$(_kvtool_words size --model=list | cut -d ' ' -f 1 | uniq) ;;
	--link) list=$(_kvtool_words transfer-sim time --link=list | sed -e 1d -e 's/ .*//') ;;
	--emulate) list=$(_kvtool_words transfer-sim time --emulate=list | sed -e 1d -e 's/ .*//') ;;
	help) list="how layouts formats dtypes contents specs faults python $(_kvtool_words --list-commands)" ;;
	transfer-sim) if [[ $word == -* ]]; then
			list=$(_kvtool_words transfer-sim --list-options)
		else
			list=$(_kvtool_words transfer-sim --list-modes)
		fi ;;
	expect) ((COMP_CWORD == 2)) && list="write check compare $(_kvtool_words expect --list-modes)" ;;
	*)
		[[ $word == -* ]] && list=$(_kvtool_words "$command" ${mode:+"$mode"} --list-options)
		;;
	esac
	# nothing of ours: bash completes file names (-o default)
	[[ -z $list ]] || mapfile -t COMPREPLY < <(compgen -W "$list" -- "$word")
}

complete -o default -F _kvtool kvtool
