# Prints hits, which are lines of a number and a protein, as a table of the query, its rank, the protein and the number.
BEGIN { print "query,rank,protein,words" }
{ printf "%s,%d,%d,%d\n", query, NR, $2, $1 }
