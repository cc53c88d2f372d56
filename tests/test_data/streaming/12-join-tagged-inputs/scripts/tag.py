#!/usr/bin/env python3
"""user TAB 0 TAB name TAB language, or user TAB 1 TAB order TAB product TAB price."""
import os
import sys

is_user = "/users/" in os.environ["mapreduce_map_input_file"]
for line in sys.stdin:
    fields = line.rstrip("\n").split("|")
    if is_user:
        user, name, language = fields
        print(user, 0, name, language, sep="\t")
    else:
        order, user, product, price = fields
        print(user, 1, order, product, price, sep="\t")
