BEGIN { FS = "\t" }
NR > 1 && $1 != key { print key "\t" sum; sum = 0 }
{ key = $1; sum += $2 }
END { if (NR) print key "\t" sum }
