#!/bin/sh
# One lower-case word a line. LC_ALL=C makes tr work on bytes.
LC_ALL=C
export LC_ALL
tr -cs 'A-Za-z' '\n' | tr 'A-Z' 'a-z' | sed '/^$/d'
