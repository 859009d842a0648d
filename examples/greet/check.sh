#!/usr/bin/env bash
# check.sh SERVER CLIENT: runs both and compares what the client prints; the server must end in good
# order when it is asked to.
set -euo pipefail

work=$(mktemp -d)
server=''
trap '[ -z "$server" ] || kill "$server" 2>/dev/null; rm -rf "$work"' EXIT

"$1" 127.0.0.1:0 >"$work/server" 2>"$work/errors" &
server=$!
for _ in $(seq 100); do
  [ ! -s "$work/server" ] || break
  sleep 0.1
done
read -r _ address fingerprint <"$work/server" ||
  { echo "the server did not start:" >&2; cat "$work/errors" >&2; exit 1; }

timeout 30 "$2" "$address" "$fingerprint" >"$work/client"
diff - "$work/client" <<'EXPECTED'
Hello, world!
Hello 1, streamer!
Hello 2, streamer!
Hello 3, streamer!
server counted 3 requests
Hi, alice!
Hi, bob!
Hi, carol!
EXPECTED

kill -TERM "$server"
wait "$server" || { echo "the server ended with $?:" >&2; cat "$work/errors" >&2; exit 1; }
server=''
echo "1 passed, 0 failed"
