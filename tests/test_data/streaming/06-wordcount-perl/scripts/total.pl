#!/usr/bin/perl
use strict;
use warnings;
my ($last, $sum);
while (my $line = <STDIN>) {
    chomp $line;
    my ($key, $count) = split /\t/, $line;
    if (defined $last && $key ne $last) { print "$last\t$sum\n"; $sum = 0; }
    $last = $key;
    $sum += $count;
}
print "$last\t$sum\n" if defined $last;
