# Lines of PROTOCOL.md for checks written in bash:  . "$(dirname "$0")/report.sh"
# shellcheck shell=bash
report_failed=0

report_text() { # the argument as a JSON string, without control characters
    local text=${1:0:2000}
    text=${text//\\/\\\\}
    text=${text//\"/\\\"}
    text=${text//$'\n'/\\n}
    text=${text//$'\t'/\\t}
    printf '"%s"' "$(LC_ALL=C tr -d '\000-\037\177' <<<"$text")"
}

report_pass() { # check, evidence
    printf '{"check": "%s", "result": "pass", "evidence": %s}\n' "$1" "$(report_text "$2")"
}

report_fail() { # check, reason
    report_failed=1
    printf '{"check": "%s", "result": "fail", "reason": %s}\n' "$1" "$(report_text "$2")"
}

report_skip() { # check, reason
    printf '{"check": "%s", "result": "skip", "reason": %s}\n' "$1" "$(report_text "$2")"
}

report_value() { # check, value (a number), unit, evidence
    printf '{"check": "%s", "result": "fact", "value": %s, "unit": "%s", "evidence": %s}\n' \
        "$1" "$2" "$3" "$(report_text "$4")"
}

report_end() { # exits
    exit "$report_failed"
}
