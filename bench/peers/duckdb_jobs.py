#!/usr/bin/env python3
"""duckdb_jobs.py sort IN OUT THREADS    lines of 100 bytes in the order of their first 10 characters
   duckdb_jobs.py words IN OUT THREADS   word count of text parted by blanks: lines WORD TAB COUNT
Text goes in and out as a table of one column, a row a line. Run it with the interpreter of setup-duckdb.sh's venv."""
import sys

import duckdb

job, source, out, threads = sys.argv[1:]
database = duckdb.connect()
database.execute(f"set threads = {int(threads)}")
database.execute(f"set temp_directory = '{out}.temporary'")
# No character parts columns or quotes them: \x01 does not occur. The rows end with CR LF, of which LF is written; told
# that lines end with LF alone, DuckDB takes the CR for one more line end and makes two rows of each.
line_end = "\\r\\n" if job == "sort" else "\\n"
lines = f"""read_csv('{source}', columns = {{'line': 'VARCHAR'}}, header = false, auto_detect = false, delim = '\x01',
    quote = '', escape = '', new_line = '{line_end}', strict_mode = false)"""
queries = {
    "sort": f"select line from {lines} order by substr(line, 1, 10)",
    "words": f"""select word || chr(9) || count(*)::varchar
        from (select unnest(string_split(line, ' ')) as word from {lines}) where word <> '' group by word""",
}
database.execute(f"copy ({queries[job]}) to '{out}' (format csv, header false, delimiter '\x01', quote '', escape '')")
