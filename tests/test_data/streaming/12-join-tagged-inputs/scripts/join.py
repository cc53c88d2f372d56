#!/usr/bin/env python3
"""Inner join; orders without a user are told to the stderr and left out."""
import sys

known, name = None, None
for line in sys.stdin:
    user, tag, *rest = line.rstrip("\n").split("\t")
    if tag == "0":
        known, name = user, "\t".join(rest)
    elif user == known:
        print(user, name, *rest, sep="\t")
    else:
        print(f"order {rest[0]} has no user {user}", file=sys.stderr)
