#!/bin/sh
# Make the tokens of this deployment, once; a token that is there stays. A container runs this before all others.
# The group may read, others may not: who needs a token is in the group (compose.yaml: group_add).
set -eu
umask 027

tokens=${1:-/run/sickbay/tokens}
alertmanager=${2:-/run/sickbay/alertmanager}

make() {
    [ -s "$1" ] && return
    od -An -N32 -tx1 /dev/urandom | tr -d ' \n' >"$1.new"
    mv "$1.new" "$1"
}

make "$tokens/agent-secret"
make "$tokens/operator"
make "$tokens/grafana-admin"
make "$alertmanager/sickbay-token"
