#compdef kvtool
# SPDX-License-Identifier: Apache-2.0
# completion.zsh - kvtool for zsh; asks kvtool itself, so it cannot go stale

_kvtool_list() {
	kvtool help "$1" 2>/dev/null | sed -e 1d -e '/^$/,$d' -e 's/ .*//'
}

_kvtool() {
	local -a list
	local option

	if (( CURRENT == 2 )); then
		list=(help ${(f)"$(kvtool --list-commands 2>/dev/null)"}
		      ${(f)"$(kvtool --list-options 2>/dev/null)"})
		compadd -a list
		return
	fi
	option=${words[CURRENT - 1]}
	if [[ $PREFIX == --*=* ]]; then
		option=${PREFIX%%=*}
		compset -P '*='
	fi
	case $option in
	--to|--layout|--expect-layout) list=(${(f)"$(_kvtool_list layouts)"}) ;;
	--format|--from) list=(${(f)"$(_kvtool_list formats)"}) ;;
	--dtype | --cache-dtype | --ssm-dtype) list=(${(f)"$(_kvtool_list dtypes)"}) ;;
	-m|--model|--config) list=(${(f)"$(kvtool size --model=list 2>/dev/null | cut -d ' ' -f 1 | uniq)"}) ;;
	--link) list=(${(f)"$(kvtool transfer-sim time --link=list 2>/dev/null | sed -e 1d -e 's/ .*//')"}) ;;
	--emulate) list=(${(f)"$(kvtool transfer-sim time --emulate=list 2>/dev/null | sed -e 1d -e 's/ .*//')"}) ;;
	help) list=(how layouts formats dtypes contents specs faults python
		    ${(f)"$(kvtool --list-commands 2>/dev/null)"}) ;;
	expect) list=(write check compare ${(f)"$(kvtool expect --list-modes 2>/dev/null)"}) ;;
	transfer-sim) list=(${(f)"$(kvtool transfer-sim --list-modes 2>/dev/null)"}) ;;
	*)
		if [[ $PREFIX == -* ]]; then
			list=(${(f)"$(kvtool ${words[2]} --list-options 2>/dev/null)"})
		else
			_files
			return
		fi ;;
	esac
	compadd -a list
}

_kvtool "$@"
