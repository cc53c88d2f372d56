#!/usr/bin/env perl
use strict;
use warnings;
while (<STDIN>) {
    print lc(substr($1, 0, 1)), "\t", length($1), "\n" while /([A-Za-z]+)/g;
}
