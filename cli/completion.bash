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
	local before=${COMP_WORDS[COMP_CWORD - 1]} list=

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
	case $before in
	--to | --layout | --expect-layout) list=$(_kvtool_list layouts) ;;
	--format | --from) list=$(_kvtool_list formats) ;;
	--dtype | --cache-dtype | --ssm-dtype) list=$(_kvtool_list dtypes) ;;
	-m | --model) list=$(_kvtool_words size --model=list | cut -d ' ' -f 1 | uniq) ;;
	help) list="how layouts formats dtypes contents specs faults python $(_kvtool_words --list-commands)" ;;
	expect) ((COMP_CWORD == 2)) && list="write check" ;;
	*)
		[[ $word == -* ]] && list=$(_kvtool_words "$command" --list-options)
		;;
	esac
	# nothing of ours: bash completes file names (-o default)
	[[ -z $list ]] || mapfile -t COMPREPLY < <(compgen -W "$list" -- "$word")
}

complete -o default -F _kvtool kvtool
