# SPDX-License-Identifier: GPL-2.0
#
# bash's completion for remora, which knows its own commands (complete.hpp).

_remora()
{
	local candidates=()

	mapfile -t candidates < <("${COMP_WORDS[0]}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
	COMPREPLY=()
	if [[ ${candidates[0]-} == :files ]]; then
		compopt -o default
	else
		COMPREPLY=("${candidates[@]%%$'\t'*}")
	fi
}

complete -F _remora remora
