#!/bin/sh
# pay.sh: pay the order that FENCED_LOCK names, with the token in FENCED_TOKEN. Run it
# under with-lock.sh or "fencectl run", which set both.
#
# Exit codes, as with-lock.sh has them: 0 paid; 69 the store could not answer, or does not
# know whether it has written, and 75 the store turns callers away for now: a repeat can
# help. It cannot after 64, the store does not take this request, 77, it does not let us
# in, and 78, it refused the token: a newer holder was there. 70 is a fault of the store.
set -eu

store=${STORE_ADDR:-http://127.0.0.1:7440}
answer=$(mktemp)
trap 'rm -f "$answer"' EXIT
status=$(curl -sS -X PUT --max-time 5 -H "Fencing-Token: $FENCED_TOKEN" \
	-o "$answer" -w '%{http_code}' "$store/$FENCED_LOCK") || status=000
case $status in
200) echo "paid $FENCED_LOCK with token $FENCED_TOKEN" ;;
412)
	jq -r '"refused: token \(.presented) is stale, the current one is \(.current)"' "$answer" >&2
	exit 78
	;;
*)
	why=$(jq -r '[.title, .detail | strings] | join(": ")' "$answer" 2>/dev/null) || why=
	echo "the store answers HTTP $status${why:+: $why}" >&2
	case $status in
	401 | 403) exit 77 ;;
	409) exit 78 ;;
	429) exit 75 ;;
	4??) exit 64 ;;
	500) exit 70 ;;
	*) exit 69 ;;
	esac
	;;
esac
