#!/bin/sh
# with-lock.sh LOCK COMMAND...: run a command under a lock, with curl and jq alone.
#
# The command finds FENCED_LOCK and FENCED_TOKEN in its environment. "fencectl run" does
# the same and more: it also stops the command when it is killed itself, and the
# command's children. This is for where it cannot be installed. It needs Linux's /proc.
#
# Exit codes: the command's own, and those of "fencectl run" where it was not started. A
# repeat can help after 69, no server could answer, and 75, another holds the lock or the
# quota is used up. It cannot after 64, the command line or a value is wrong, and 77, the
# API key may not do this. 70 is a fault of the server. 76: the lock was lost, and the
# command stopped, whatever it had done by then.
set -eu

if [ $# -lt 2 ]; then
	echo "usage: with-lock.sh LOCK COMMAND..." >&2
	exit 64
fi
server=${FENCED_ADDR:-http://127.0.0.1:7420}
lock=$1
shift
wait=${WAIT:-20s} # in line, 30s at most
ttl=15 # seconds without renewal after which the lock is free
keep=9 # seconds after which it counts as lost: the rest is for a last call and for stopping
attempt=
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
stopped= # by a signal, which is looked at once curl is through: it may have got the lock
trap 'stopped=130' INT
trap 'stopped=143' TERM
answer=$tmp/answer

# api METHOD PATH [curl option...] sets status and writes the body to $answer.
api() {
	method=$1 path=$2
	shift 2
	: >"$answer" # without an answer there is none from before either
	status=$(settings | curl -K - -sS -X "$method" -o "$answer" -w '%{http_code}' "$@") || status=000
}

# The URL and the keys go by stdin: everybody on the machine can see arguments, and the
# id of a hold is secret. So is the key of the attempt: whoever repeats it is told the id.
settings() {
	printf 'url = "%s"\nheader = "Content-Type: application/json"\n' "$server$path"
	[ -z "$attempt" ] || printf 'header = "Idempotency-Key: %s"\n' "$attempt"
	[ -z "${FENCED_API_KEY:-}" ] || printf 'header = "Authorization: Bearer %s"\n' "$FENCED_API_KEY"
}

# Seconds on a clock that goes on while the machine sleeps, as the lease does.
now() { cut -d. -f1 /proc/uptime; }

# fail WHAT ends the script after a call that the server did not answer as hoped, with
# its reason: answers that are errors have a title, and a detail where there is more.
fail() {
	[ -z "$stopped" ] || exit "$stopped"
	why=$(jq -r '[.title, .detail | strings] | join(": ")' "$answer" 2>/dev/null) || why=
	echo "$1 $lock: HTTP $status${why:+: $why}" >&2
	case $status in
	401 | 403) exit 77 ;;
	410) exit 76 ;;
	409 | 429) exit 75 ;;
	4??) exit 64 ;;
	500) exit 70 ;;
	*) exit 69 ;;
	esac
}

# The key names this attempt: curl's repeats find the same hold, never a second one. curl
# has more patience than the longest wait in line.
acquire() {
	attempt=$(cat /proc/sys/kernel/random/uuid)
	api POST /v1/holds --max-time 40 --retry 3 --retry-connrefused \
		-d "$(jq -n --arg lock "$lock" --arg owner "$(hostname) $$" --arg ttl "${ttl}s" --arg wait "$wait" \
			'{lock: $lock, owner: $owner, ttl: $ttl, wait: $wait}')"
	attempt=
	case $status in
	201) ;;
	409)
		jq -r '"\(.title): \(.holder.owner), token \(.holder.token)"' "$answer" >&2
		exit 75
		;;
	*) fail acquire ;;
	esac
	hold=$(jq -r .hold "$answer")
	FENCED_LOCK=$lock FENCED_TOKEN=$(jq .token "$answer")
	export FENCED_LOCK FENCED_TOKEN
}

# renew sets deadline, counted from the sending of the request that was answered.
renew() {
	sent=$(now)
	api POST "/v1/holds/$hold/renew" --max-time 2
	case $status in
	200) deadline=$((sent + keep)) ;;
	410) deadline=0 ;; # it has ended
	esac
}

# watch renews until the lock may be lost, and then stops the command. Its last pause ends
# with the deadline, by whole seconds: one for that, 2 for the call, 2 for the command.
watch() {
	answer=$tmp/renewal
	while left=$((deadline - $(now))) && [ "$left" -gt 0 ]; do
		sleep $((left < 3 ? left : 3)) >/dev/null 2>&1
		renew
	done
	echo "the lock $lock may be lost: stopping the command" >&2
	: >"$tmp/lost"
	kill -TERM "$command" || exit 0
	sleep 2 >/dev/null 2>&1
	kill -KILL "$command"
}

release() {
	answer=$tmp/release
	(api DELETE "/v1/holds/$hold" --max-time 5) || true
}

acquire
renew # it may have been waited for: the command starts with time that is really its own
[ "$status" = 200 ] && [ -z "$stopped" ] || { (release); fail renew; }
exec 3<&0 # a shell gives what it starts with & no standard input
"$@" <&3 3<&- &
command=$!
trap 'kill -TERM "$command"' INT TERM
[ -z "$stopped" ] || kill -TERM "$command"
watch 3<&- &
watcher=$!
code=0
wait "$command" || code=$?
while kill -0 "$command" 2>/dev/null; do wait "$command" || code=$?; done # after a signal to us
kill "$watcher" 2>/dev/null || true
release
[ ! -e "$tmp/lost" ] || code=76
exit "$code"
