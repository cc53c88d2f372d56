#!/bin/sh
# Input: offset TAB from TAB to. The sum of the numbers from..to stands for a long computation.
while IFS="$(printf '\t')" read -r offset from to; do
    printf '%s-%s\t%s\n' "$from" "$to" "$(((from + to) * (to - from + 1) / 2))"
done
