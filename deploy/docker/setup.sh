#!/bin/sh
# Make the run folders of a head and of workers, unless they are there: flyball-setup /data head:7400 worker1 worker2
set -eu
data=$1 address=$2
shift 2
if [ ! -e "$data/head/flyball.toml" ]; then
    flyball init --role head --node head --head "$address" --store "$data/store" "$data/head"
fi
head_key=$(flyball --run "$data/head" keys list | awk '$2 == "head" { print $3 }')
for node; do
    if [ ! -e "$data/$node/flyball.toml" ]; then
        made=$(flyball init --role worker --node "$node" --head "$address" --head-key "$head_key" \
            --store "$data/store" "$data/$node")
        flyball --run "$data/head" keys authorize "$node" worker "$(echo "$made" | awk 'NR == 1 { print $NF }')"
    fi
done
