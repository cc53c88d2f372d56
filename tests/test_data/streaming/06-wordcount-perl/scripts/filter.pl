#!/usr/bin/perl
# Counts requests: host and answer code of each log line.
use strict;
use warnings;
while (my $line = <STDIN>) {
    next unless $line =~ /^(\S+) \S+ \S+ \[[^\]]*\] "[^"]*" (\d{3}) /;
    print "$1 $2\t1\n";
}
