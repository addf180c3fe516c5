# Completion of `accelcache` for bash: source this file, or install it as
# share/bash-completion/completions/accelcache.

_accelcache() {
    local subcommands="run stat ps config doctor trace gen replay tune bench export report ctl oom where top"
    local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} at options=
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        mapfile -t COMPREPLY < <(compgen -W "$subcommands help --help --version" -- "$word")
        return
    fi
    case ${COMP_WORDS[1]} in
    run) options="--conf --dump --trace --lib --sim --compare --repeat --warm-up --strict --max-peak --fail-on-leak --junit --keep --stdin --json --help" ;;
    stat) options="--all --brief --json --diff --summary --remove --help" ;;
    top) options="--interval --sort --json --help" ;;
    ctl | oom | where) options="--json --help" ;;
    ps) options="--running --no-header --json --help" ;;
    config) options="--all --json --markdown --stats --help" ;;
    doctor) options="--lib --sim --dump --json --help" ;;
    trace) options="--long --summary --json --help" ;;
    export) options="--format --output --help" ;;
    report) options="--output --library --help" ;;
    gen) options="--seed --ops --max --help" ;;
    replay)
        options="--conf --capacity --min-capacity --repeat --pending --streams --costs --ordinal"
        options+=" --device --json --help"
        ;;
    tune)
        options="--objective --capacity --pending --streams --costs --ordinal --seconds --json --help"
        ;;
    bench)
        options="--quick --only --instructions --without --sim --conf --lib --rounds --pass-us --pairs --json --spread --markdown --help"
        ;;
    help)
        ((COMP_CWORD == 2)) && mapfile -t COMPREPLY < <(compgen -W "$subcommands" -- "$word")
        return
        ;;
    *) return ;;
    esac
    # Behind the program's name everything belongs to the program.
    if [[ ${COMP_WORDS[1]} == run || ${COMP_WORDS[1]} == doctor ]]; then
        for ((at = 2; at < COMP_CWORD; at++)); do
            case ${COMP_WORDS[at]} in
            --)
                if ((at + 1 == COMP_CWORD)); then
                    mapfile -t COMPREPLY < <(compgen -c -- "$word")
                else
                    mapfile -t COMPREPLY < <(compgen -f -- "$word")
                fi
                return
                ;;
            --conf | --dump | --trace | --lib | --repeat | --warm-up | --max-peak | --junit | --keep | --stdin) ((at++)) ;;
            -*) ;;
            *)
                mapfile -t COMPREPLY < <(compgen -f -- "$word")
                return
                ;;
            esac
        done
    fi
    case $previous in
    --conf | --repeat | --warm-up | --max-peak | --rounds | --pass-us | --pairs | --seed | --ops | --max | --capacity | \
        --pending | --ordinal | --seconds) return ;;
    -f | --format)
        mapfile -t COMPREPLY < <(compgen -W "torch-snapshot perfetto pprof prometheus csv folded" -- "$word")
        return
        ;;
    --interval) return ;;
    --sort) mapfile -t COMPREPLY < <(compgen -W "reserved allocated rate hit fragmentation pid" -- "$word") && return ;;
    --streams) mapfile -t COMPREPLY < <(compgen -W "real" -- "$word") && return ;;
    --objective) mapfile -t COMPREPLY < <(compgen -W "memory time balanced" -- "$word") && return ;;
    --costs | -o | --output | --dump | --trace | --lib | --stdin | --junit) mapfile -t COMPREPLY < <(compgen -f -- "$word") && return ;;
    --keep | --library) mapfile -t COMPREPLY < <(compgen -d -- "$word") && return ;;
    esac
    if [[ $word == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word")
    elif [[ ${COMP_WORDS[1]} == gen ]]; then
        mapfile -t COMPREPLY < <(compgen -W "fixed varlen lora serving amr graph grow islands rmm" -- "$word")
    elif [[ " stat trace replay tune export report oom where " == *" ${COMP_WORDS[1]} "* ]]; then
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
    elif [[ ${COMP_WORDS[1]} == run || ${COMP_WORDS[1]} == doctor ]]; then
        mapfile -t COMPREPLY < <(compgen -c -- "$word")
    elif [[ ${COMP_WORDS[1]} == ctl && $previous == snapshot ]]; then
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
    elif [[ ${COMP_WORDS[1]} == ctl && COMP_CWORD -gt 2 ]]; then
        mapfile -t COMPREPLY < <(compgen -W "dump snapshot trim reset-peaks set" -- "$word")
    elif [[ ${COMP_WORDS[1]} == bench && " ${COMP_WORDS[*]} " == *" --only "* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "rows hot_pair replace threads blocks cross tail
            launch hooks multistream instructions pinned startup memory hot hot_64m hot_64m_expandable
            two_sizes sizes_200 sizes_200_launch step backwards async async_idle handover
            handover_1m replace_1000 replace_1000_launch replace_100000 threads_100
            static_runtime driver c_api" -- "$word")
    fi
}
complete -o filenames -F _accelcache accelcache
