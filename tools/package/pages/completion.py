"""Makes completions of `accelcache` for bash, zsh and fish from its help texts."""
import re

FILES = ("FILE", "OUT")
FOLDERS = ("DIR", "FOLDER")
PIDS = "accelcache ps --no-header 2>/dev/null | cut -d' ' -f1"


def kind_of(metavar):
    """The kind of a value: file, folder, or anything else."""
    return "file" if metavar in FILES else "folder" if metavar in FOLDERS else "any"


def argument_of(sub):
    """The arguments after the options: command, keys, pid, file or nothing."""
    words = " ".join(sub.usage)
    for word, kind in (("PROGRAM", "command"), ("[STRING|KEY]", "keys"), ("PID dump", "pid"),
                       ("FILE", "file"), ("TRACE", "file"), ("A B", "file")):
        if word in words:
            return kind
    return "none"


def argument_words(sub, keys):
    """Returns the words that an argument may be, as far as they are known."""
    kind = argument_of(sub)
    if kind == "keys":
        return keys
    if kind == "pid":
        return [word for word in sub.section("") if re.fullmatch(r"[a-z-]+", word) and
                not word.startswith("-")]
    return []


def names(option):
    """Returns the words to offer: the long name, or the short one if there is no long one."""
    return option.long or option.short


def quoted(text):
    return "'" + text.replace("'", "'\\''") + "'"


def bash(command, keys):
    lines = ["# Completion of accelcache for bash: source this file, or install it as",
             "# share/bash-completion/completions/accelcache.", "", "_accelcache() {",
             '    local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}',
             '    local sub=${COMP_WORDS[1]} at',
             f'    local subcommands="{" ".join(sub.name for sub in command.subcommands)}"']
    tables = {"options": [], "kinds": [], "values": [], "arguments": [], "words": []}
    for sub in command.subcommands:
        tables["options"].append((sub.name, " ".join(names(o) for o in sub.options)))
        tables["arguments"].append((sub.name, argument_of(sub)))
        if argument_words(sub, keys):
            tables["words"].append((sub.name, " ".join(argument_words(sub, keys))))
        for option in sub.options:
            if option.metavar and not option.optional:
                for name in option.names():
                    tables["kinds"].append((f"{sub.name} {name}", kind_of(option.metavar)))
                    if sub.values(option):
                        tables["values"].append((f"{sub.name} {name}",
                                                 " ".join(sub.values(option))))
    for table, rows in tables.items():
        lines.append(f"    local -A {table}=(")
        lines += [f"        [{quoted(key)}]={quoted(value)}" for key, value in rows]
        lines.append("    )")
    lines.append(BASH_END)
    return "\n".join(lines)


BASH_END = """\
    COMPREPLY=()
    _accelcache_words() { mapfile -t COMPREPLY < <(compgen "$@" -- "$word"); }
    if ((COMP_CWORD == 1)); then
        _accelcache_words -W "$subcommands help --help --version"
        return
    fi
    if [[ $sub == help ]]; then
        ((COMP_CWORD > 2)) || _accelcache_words -W "$subcommands"
        return
    fi
    [[ -n ${options[$sub]:-} ]] || return
    # All words after the program's name belong to the program.
    if [[ ${arguments[$sub]} == command ]]; then
        for ((at = 2; at < COMP_CWORD; at++)); do
            case ${COMP_WORDS[at]} in
            --)
                ((at + 1 < COMP_CWORD)) || { _accelcache_words -c && return; }
                _accelcache_words -f
                return
                ;;
            -*) [[ -z ${kinds["$sub ${COMP_WORDS[at]}"]:-} ]] || ((at++)) ;;
            *)
                _accelcache_words -f
                return
                ;;
            esac
        done
    fi
    if [[ -n ${values["$sub $previous"]:-} ]]; then
        _accelcache_words -W "${values["$sub $previous"]}"
        return
    fi
    case ${kinds["$sub $previous"]:-} in
    file) _accelcache_words -f && return ;;
    folder) _accelcache_words -d && return ;;
    any) return ;;
    esac
    if [[ $word == -* ]]; then
        _accelcache_words -W "${options[$sub]}"
        return
    fi
    case ${arguments[$sub]} in
    command) _accelcache_words -c ;;
    file) _accelcache_words -f ;;
    keys | words) _accelcache_words -W "${words[$sub]}" ;;
    pid)
        if ((COMP_CWORD == 2)); then
            _accelcache_words -W "$(""" + PIDS + """)"
        else
            _accelcache_words -W "${words[$sub]}"
        fi
        ;;
    esac
}
complete -o filenames -F _accelcache accelcache
"""


def zsh_text(text):
    """The meaning of an option in brackets."""
    return re.sub(r"([\[\]:\\])", r"\\\1", text)


def zsh(command, keys):
    lines = ["#compdef accelcache", "# Completion of accelcache for zsh: install it in a folder of",
             "# $fpath as _accelcache.", "", "_accelcache_pids() {",
             f"    local -a pids=(${{(f)\"$({PIDS})\"}})",
             "    compadd -a pids", "}", "", "_accelcache() {",
             "    local curcontext=$curcontext state line", "    local -a subcommands=("]
    lines += [f"        {quoted(sub.name + ':' + zsh_text(sub.summary))}"
              for sub in command.subcommands]
    lines += ["        'help:show the help of a subcommand'", "    )",
              "    _arguments -C '(- *)'{-h,--help}'[show the help]' \\",
              "        '(- *)'{-V,--version}'[show the version]' \\",
              "        '1:subcommand:->subcommand' '*::argument:->argument' && return",
              "    case $state in", "    subcommand) _describe subcommand subcommands ;;",
              "    argument)", "        case $words[1] in",
              "        help) _describe subcommand subcommands ;;"]
    actions = {"file": "_files", "folder": "_files -/", "any": " "}
    for sub in command.subcommands:
        specs = []
        for option in sub.options:
            value = ""
            if option.metavar:
                words = sub.values(option)
                action = f"({' '.join(words)})" if words else actions[kind_of(option.metavar)]
                value = f":{option.metavar.replace('|', ' ')}:{action}"
            sign = ""
            if option.optional:
                sign, value = "=-", ":" + value
            meaning = f"[{zsh_text(option.text)}]{value}"
            for name in option.names():
                # An option is offered once, unless it takes several values.
                specs.append(f"'*'{name}{sign}{quoted(meaning)}")
        kind = argument_of(sub)
        if kind == "command":
            specs += ["'(-)1:program:_command_names -e'", "'*::argument:_normal'"]
        elif kind == "file":
            specs.append("'*:file:_files'")
        elif kind == "pid":
            specs += ["'1:process:_accelcache_pids'",
                      f"'2:request:({' '.join(argument_words(sub, keys))})'"]
        elif kind in ("keys", "words"):
            specs.append(f"'1:{kind}:({' '.join(argument_words(sub, keys))})'")
        joined = " \\\n                ".join(specs)
        lines.append(f"        {sub.name})\n            _arguments -S \\\n"
                     f"                {joined}\n            ;;")
    lines += ["        esac", "        ;;", "    esac", "}", "", '_accelcache "$@"', ""]
    return "\n".join(lines)


def fish(command, keys):
    lines = ["# Completion of accelcache for fish: install it as",
             "# share/fish/vendor_completions.d/accelcache.fish.", "", "complete -c accelcache -f"]
    def add(condition, rest):
        lines.append(f"complete -c accelcache -n {quoted(condition)} {rest}")
    add("__fish_use_subcommand", "-s h -l help -d 'Show the help'")
    add("__fish_use_subcommand", "-s V -l version -d 'Show the version'")
    for sub in command.subcommands:
        add("__fish_use_subcommand", f"-a {sub.name} -d {fish_quoted(sub.summary)}")
    add("__fish_use_subcommand", "-a help -d 'Show the help of a subcommand'")
    add("__fish_seen_subcommand_from help",
        f"-a '{' '.join(sub.name for sub in command.subcommands)}'")
    for sub in command.subcommands:
        inside = f"__fish_seen_subcommand_from {sub.name}"
        for option in sub.options:
            rest = "".join(f" -{'l' if name.startswith('--') else 's'} {name.lstrip('-')}"
                           for name in option.names())
            if option.metavar and not option.optional:
                words = sub.values(option)
                rest += {"file": " -rF", "folder": " -xa '(__fish_complete_directories)'",
                         "any": " -x"}[kind_of(option.metavar)]
                if words:
                    rest += f" -a {fish_quoted(' '.join(words))}"
            add(inside, rest.strip() + f" -d {fish_quoted(option.text)}")
        kind = argument_of(sub)
        if kind == "command":
            add(inside, "-xa '(__fish_complete_subcommand --fcs-skip=2)'")
        elif kind == "file":
            add(inside, "-F")
        elif kind == "pid":
            add(inside, f"-a {fish_quoted('(' + PIDS + ')')}")
        if argument_words(sub, keys):
            add(inside, f"-a {fish_quoted(' '.join(argument_words(sub, keys)))}")
    return "\n".join(lines) + "\n"


def fish_quoted(text):
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
