#!/usr/bin/env python3
"""duckdb_jobs.py sort IN OUT THREADS    sorts lines of 100 bytes by their first 10 characters
   duckdb_jobs.py words IN OUT THREADS   counts words separated by blanks: writes lines WORD TAB COUNT
DuckDB reads and writes the text as a table with one column and one row per line. Run it with the interpreter of setup-duckdb.sh's venv."""
import sys

import duckdb

job, source, out, threads = sys.argv[1:]
database = duckdb.connect()
database.execute(f"set threads = {int(threads)}")
database.execute(f"set temp_directory = '{out}.temporary'")
# There are no separators and no quotes: \x01 does not occur. If the rows end with CR LF, DuckDB must be told so: it would treat the CR as a
# line end of its own and read two rows per line. It writes LF.
line_end = "\\r\\n" if job == "sort" else "\\n"
lines = f"""read_csv('{source}', columns = {{'line': 'VARCHAR'}}, header = false, auto_detect = false, delim = '\x01',
    quote = '', escape = '', new_line = '{line_end}', strict_mode = false)"""
queries = {
    "sort": f"select line from {lines} order by substr(line, 1, 10)",
    "words": f"""select word || chr(9) || count(*)::varchar
        from (select unnest(string_split(line, ' ')) as word from {lines}) where word <> '' group by word""",
}
database.execute(f"copy ({queries[job]}) to '{out}' (format csv, header false, delimiter '\x01', quote '', escape '')")
