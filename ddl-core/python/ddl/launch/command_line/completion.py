"""Completion of ddlrun's command line for shells, made from the table of options."""

from .options import SECTIONS, Option, usage

SHELLS = ("bash", "zsh", "fish")
_OPTIONS = tuple(option for section in SECTIONS.values() for option in section)


def script(shell: str) -> str:
    """The completion script of a shell. Raises LaunchError (USAGE)."""
    makers = {"bash": _bash, "zsh": _zsh, "fish": _fish}
    if shell not in makers:
        raise usage(
            f"-completion {shell!r} is no shell known here", f"write one of these: {' '.join(SHELLS)}"
        )
    return makers[shell]()


def _choices(option: Option) -> tuple[str, ...]:
    if option.metavar.startswith("L["):
        return tuple("pbnrmc")
    return SHELLS if option.metavar == "SHELL" else ()


def _names(wanted: list[Option]) -> list[str]:
    return [name for option in wanted for name in option.names]


_BASH = r"""# bash completion of ddlrun: source <(ddlrun --completion bash)
_ddlrun() {
    local cur=${COMP_WORDS[COMP_CWORD]} at=1 word name pending= only_program=
    COMPREPLY=()
    # Options and their values come first; the first word that is neither starts the program.
    while ((at < COMP_CWORD)); do
        word=${COMP_WORDS[at]}
        if [[ $word == -- ]]; then
            ((at++))
            only_program=1
            break
        fi
        [[ $word == -?* ]] || break
        name=${word#-} name=${name#-} name=${name//_/-}
        ((at++))
        if [[ " @VALUED@ " == *" $name "* ]]; then
            # bash cuts -np=2 into three words
            [[ ${COMP_WORDS[at]} == = ]] && ((at++))
            if ((at >= COMP_CWORD)); then
                pending=$name
                break
            fi
            ((at++))
        fi
    done
    if [[ -n $pending ]]; then
        [[ $cur == = ]] && cur=
        case $pending in
@CASES@
        esac
        return
    fi
    if ((at < COMP_CWORD)); then
        if declare -F _command_offset >/dev/null; then
            _command_offset "$at"
        else
            compopt -o filenames
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
        fi
    elif [[ -z $only_program && $cur == --* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "@LONG@" -- "$cur")
    elif [[ -z $only_program && $cur == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "@SHORT@" -- "$cur")
    else
        mapfile -t COMPREPLY < <(compgen -c -- "$cur" | sort -u)
    fi
}
complete -F _ddlrun ddlrun
"""


def _bash() -> str:
    valued = [option for option in _OPTIONS if option.kind != "flag"]
    cases = []
    for names, words in (
        (_names([o for o in valued if "FILE" in o.metavar or ".json" in o.metavar]), "compgen -f"),
        (_names([o for o in valued if "DIR" in o.metavar]), "compgen -d"),
    ):
        if names:
            cases.append(
                f"            {' | '.join(names)})\n                compopt -o filenames\n"
                f'                mapfile -t COMPREPLY < <({words} -- "$cur")\n                ;;'
            )
    for option in valued:
        if choices := _choices(option):
            cases.append(
                f"            {' | '.join(option.names)})\n"
                f"                mapfile -t COMPREPLY < <(compgen -W '{' '.join(choices)}' -- \"$cur\")\n"
                "                ;;"
            )
    made = _BASH.replace("@VALUED@", " ".join(_names(valued))).replace("@CASES@", "\n".join(cases))
    every = _names(list(_OPTIONS))
    made = made.replace("@LONG@", " ".join(f"--{name}" for name in every))
    return made.replace("@SHORT@", " ".join(f"-{name}" for name in every))


# What ends or structures a description in these shells.
_ZSH_SPECIAL = "[]:\\"
_FISH_SPECIAL = "\\"


def _quoted(text: str, special: str) -> str:
    """Inside single quotes: no quote ends them, and what is special there is escaped."""
    return "".join(f"\\{c}" if c in special else c for c in text).replace("'", "’")


def _zsh() -> str:
    lines = ["#compdef ddlrun", "_arguments -S \\"]
    for option in _OPTIONS:
        spellings = [f"{dash}{name}" for name in option.names for dash in ("-", "--")]
        repeated = "*" if option.kind == "list" else f"({' '.join(spellings)})"
        text = f"[{_quoted(option.help, _ZSH_SPECIAL)}]"
        if option.kind != "flag":
            action = " "
            if "FILE" in option.metavar or ".json" in option.metavar:
                action = "_files"
            elif "DIR" in option.metavar:
                action = "_files -/"
            elif choices := _choices(option):
                action = f"({' '.join(choices)})"
            text += f":{_quoted(option.metavar, _ZSH_SPECIAL)}:{action}"
        lines.append(f"  '{repeated}'{{{','.join(spellings)}}}'{text}' \\")
    lines += ["  '(-):program:_command_names -e' \\", "  '*::argument:_normal'", ""]
    return "\n".join(lines)


def _fish() -> str:
    lines = ["# fish completion of ddlrun: ddlrun --completion fish | source"]
    # Once there is a program, what follows is its own.
    lines.append("complete -c ddlrun -n '__fish_is_first_arg' -f -a '(__fish_complete_command)'")
    for option in _OPTIONS:
        words = ["complete -c ddlrun"]
        for name in option.names:
            words += [f"-s {name}"] if len(name) == 1 else [f"-o {name}", f"-l {name}"]
        if option.kind != "flag":
            takes_path = any(text in option.metavar for text in ("FILE", "DIR", ".json"))
            words.append("-r" if takes_path else "-x")
            if choices := _choices(option):
                words.append(f"-a '{' '.join(choices)}'")
        words.append(f"-d '{_quoted(option.help, _FISH_SPECIAL)}'")
        lines.append(" ".join(words))
    return "\n".join([*lines, ""])
