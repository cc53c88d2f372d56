#!/bin/sh
# The words come sorted, with the TAB of the empty value behind each.
cut -f1 | uniq -c | while read -r count word; do
    printf '%s\t%s\n' "$word" "$count"
done
