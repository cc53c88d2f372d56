#!/usr/bin/env bash
# streaming-corpus.sh [--write] [CASE...]  - runs cases of tests/test_data/streaming with stock Hadoop, and compares the outputs with the
# stored outputs. --write stores the outputs instead. Each case runs in a copy of its directory, because the local runner leaves links and
# shipped files. If a case has expected.sorted, all lines of its output are compared after LC_ALL=C sort; otherwise the parts are compared.
# *.gz is unpacked first. expected.names lists the files of the output directory, expected.counters the counters that the scripts reported.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
corpus=$here/../../tests/test_data/streaming
write=; [ "${1:-}" != --write ] || { write=1; shift; }
[ $# -gt 0 ] || set -- $(cd "$corpus" && ls -d [0-9]*/ | tr -d /)
scratch=$(mktemp -d); trap 'rm -rf "$scratch"' EXIT
failed=0
for name in "$@"; do
  work=$scratch/$name; cp -r "$corpus/$name" "$work"; rm -rf "$work"/expected*
  rc=0; (cd "$work" && export LOG_LEVEL=INFO && eval "$here/hadoop-streaming.sh $(cat command)") > "$work/log" 2>&1 || rc=$?
  if [ $rc != 0 ] || [ ! -f "$work/output/_SUCCESS" ]; then
    echo "$name: exit $rc"; grep -aE 'Exception|ERROR' "$work/log" | head -5 || true; failed=1; continue
  fi
  now=$work/now; mkdir -p "$now/expected"
  (cd "$work/output" && ls) > "$now/expected.names"
  for part in "$work"/output/part-*; do
    case $part in
      *.gz) gzip -dc "$part" > "$now/expected/$(basename "$part" .gz)" ;;
      *) cp "$part" "$now/expected/" ;;
    esac
  done
  cat "$now"/expected/part-* | LC_ALL=C sort > "$now/expected.sorted"
  # The counters of the job follow the last "Counters:" line. The groups before and after the groups of the scripts are Hadoop's.
  awk '/Job: Counters: /{ n = 0; on = 1; next } on && /^\t/{ line[n++] = $0; next } { on = 0 }
    END { for (i = 0; i < n; i++) { if (line[i] ~ /^\t[^\t]/) { group = substr(line[i], 2); ours = group !~ /^(File System Counters|Map-Reduce Framework|Shuffle Errors|File (In|Out)put Format Counters ?)$/ }
      else if (ours) print group "," substr(line[i], 3) } }' "$work/log" | LC_ALL=C sort > "$now/expected.counters"
  [ -s "$now/expected.counters" ] || rm "$now/expected.counters"
  if [ -f "$corpus/$name/expected.sorted" ]; then rm -r "$now/expected"; else rm "$now/expected.sorted"; fi
  if [ -n "$write" ]; then
    rm -rf "$corpus/$name"/expected "$corpus/$name"/expected.names "$corpus/$name"/expected.counters
    cp -r "$now"/expected* "$corpus/$name/"; echo "$name: stored $(wc -l < "$now/expected.names") names"
  else
    mkdir -p "$work/stored"; cp -r "$corpus/$name"/expected* "$work/stored/"
    if diff -r "$work/stored" "$now" > "$work/diff"; then echo "$name: equal"; else echo "$name: differs"; head -10 "$work/diff" || true; failed=1; fi
  fi
done
exit $failed
