BEGIN { FS = OFS = "\t" }
{ print $2, $1 }
