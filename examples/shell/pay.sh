#!/bin/sh
# pay.sh: pay the order that FENCED_LOCK names, with the token in FENCED_TOKEN. Run it
# under with-lock.sh or "fencectl run", which set both.
#
# Exit codes: 0 paid; 69 the store could not answer; 78 refused: a newer holder was there.
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
	echo "the store answers HTTP $status" >&2
	exit 69
	;;
esac
