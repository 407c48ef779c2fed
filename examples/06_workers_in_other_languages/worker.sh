#!/bin/sh
# A worker in thirty lines of shell: claim, keep the lease, work, finish. Needs curl and jq.
# Usage: HOLDFAST=http://127.0.0.1:8484 [TOKEN=holdfast_…] [SECONDS_OF_WORK=5] sh worker.sh NAME
api=${HOLDFAST:-http://127.0.0.1:8484} name=${1:-shell}

post() { # path, body; fails unless the answer is a success
    curl --silent --show-error --fail-with-body --max-time 40 "$api/v1/leases/$1" \
        ${TOKEN:+--header "Authorization: Bearer $TOKEN"} --header 'Content-Type: application/json' --data "$2"
}

extend() { # until the lease is lost or this worker is gone: nothing may extend for a dead one. What failed is repeated
    while sleep 1 && kill -0 $$ 2>/dev/null; do
        post extend "{\"worker_id\": \"$name\", \"lease_seconds\": 3, \"leases\": [{\"lease\": $1}]}" | grep -q '"lost"' && return
    done
}

while :; do
    claim="{\"queues\": [\"greetings\"], \"tasks\": [\"greet\"], \"worker_id\": \"$name\", \"lease_seconds\": 3, \"wait_seconds\": 20}"
    answer=$(post claim "$claim") || { sleep 1; continue; } # the server is away: its clients come back
    lease=$(printf '%s\n' "$answer" | jq --compact-output '.leases[0].lease // empty')
    [ -n "$lease" ] || continue
    who=$(printf '%s\n' "$answer" | jq --raw-output '.leases[0].job.kwargs.name')
    extend "$lease" & extending=$!
    printf '%s\n' "$name greets $who"
    sleep "${SECONDS_OF_WORK:-0}"
    kill $extending 2>/dev/null
    result=$(jq --null-input --arg text "Hello, $who, from $name" '$text')
    verdict=$(post finish "{\"leases\": [{\"lease\": $lease, \"outcome\": \"complete\", \"result\": $result}]}") &&
        printf '%s\n' "$name: $(printf '%s\n' "$verdict" | jq --raw-output '.verdicts[0].verdict') for $who"
done
