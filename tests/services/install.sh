#!/bin/sh
# Install the real servers that the tests start (Debian or Ubuntu packages). Quick when all are there.
# Nothing here is started or enabled: the tests run their own daemons, keys and sockets.
set -eu

PATH="$PATH:/usr/sbin:/sbin"
packages="slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge prometheus prometheus-alertmanager"

have() { command -v "$1" >/dev/null 2>&1; }
have_plugins() { for f in /usr/lib/*/slurm*/select_cons_tres.so /usr/lib*/slurm/select_cons_tres.so; do [ -e "$f" ] && return 0; done; return 1; }
have_slurm() { have slurmctld && have slurmd && have scontrol && have sbatch && have munged && have_plugins; }
have_prometheus() { have prometheus && have promtool && have prometheus-alertmanager && have amtool; }
have_chromium() { have chromium || have chromium-browser || have google-chrome-stable || have google-chrome; }
complete() { have_slurm && have_prometheus && have_chromium; }

if complete; then
    exit 0
fi

# A browser is large: not a second one where there is one.
have_chromium || packages="$packages chromium"
by_hand="apt-get install --no-install-recommends $packages"
if [ "$(id -u)" -ne 0 ] || ! have apt-get; then
    echo "tests: Slurm, munge, Prometheus, Alertmanager or Chromium are missing and cannot be installed from here; as root, run: $by_hand" >&2
    if [ "${CI:-}" = "true" ]; then
        exit 1
    fi
    exit 0 # the tests that need them skip and say why
fi

export DEBIAN_FRONTEND=noninteractive
# invoke-rc.d(8): 101 forbids the packages' own scripts to start their services. A policy that is there stays.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    trap 'exit 1' HUP INT TERM
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
fi

echo "tests: installing $packages"
attempt=1
while [ "$attempt" -le 3 ]; do
    # shellcheck disable=SC2086 # a list of package names
    if apt-get update -qq && apt-get install -y -qq --no-install-recommends $packages >/dev/null && complete; then
        exit 0
    fi
    echo "tests: attempt $attempt of 3 to install the test services failed" >&2
    attempt=$((attempt + 1))
    sleep 3
done
echo "tests: could not install the test services; see apt's messages above, then run: $by_hand" >&2
exit 1
