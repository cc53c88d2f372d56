#!/usr/bin/env bash
# Workflows beside a shell, and beside jobs of one task, on this machine.
#
#     bench/workflows.sh [--runs N] [--scale N] [--seed N] [--only streams|memory|steps|cached|snakemake|dag|waves|sim|crossnode|jobs]
#
# --runs: rounds (5), in opposite orders; --scale: by what sizes are divided (1: three programs over 2 GB, 5,000 steps, a file of 100,000
# steps). `streams`: `cat` three times, as steps that stream to each other and as a pipe of `sh`; CPU seconds of all processes. The output is
# durable in both. `memory`: a step that copies a file, and one that reads the copy, whose size is known by a run before; bytes that all processes
# write to disks, beyond those of the same steps with an empty file. `cached`: 10,000 copies of a file, none of which must run again. `snakemake`: 2,000 steps of `touch`, beside the newest
# Snakemake 9, which it installs below BENCH_DIR. `steps`: steps that run `true`, and jobs of one task that do; then steps with a file each, and jobs
# that do nothing, of a server whose nodes only report them. `dag`: a chain and a fan of steps are read, checked, planned, and submitted to a server
# without nodes. `waves`: the shape of BLAST, a hundredth of its times, with programs that wait, on 1 to 8 slots.
# `crossnode`: a program that writes a line each tenth of a second, and one that waits as long for each line, as steps on nodes of one slot: the
# reader reads the stream on another node while it is written, or the file when it is written; then the same with the node of the reader killed in the middle.
# `jobs`: a step that sorts 5 million rows of the sort benchmark, with its run remembered and not; and three such steps one after the other, as a flow and
# with files between them.
# `sim`: simulated clusters run the shape of BLAST, and workflows of all recipes of the package wfcommons, generated from --seed (1); never divided. Each
# recipe runs three times: its steps are new; their times are known, which the must is about; the known times have errors. The first time it installs
# the package below BENCH_DIR.
# Prints each row with its must, its aim and the median of the ratios; appends the figures to bench/results/DATE-workflows.tsv; ends non-zero when a must is missed. Environment:
# SAILFISH (the program), BENCH_DIR (default /var/tmp).
set -euo pipefail
runs=5 scale=1 seed=1 only=
while [ $# -gt 0 ]; do
    case $1 in
        --runs) runs=$2; shift 2 ;;
        --scale) scale=$2; shift 2 ;;
        --seed) seed=$2; shift 2 ;;
        --only) only=$2; shift 2 ;;
        *) echo "unknown option $1" >&2; exit 2 ;;
    esac
done
sailfish=$(realpath "${SAILFISH:?names the program}")
root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d "${BENCH_DIR:-/var/tmp}/workflows-XXXXXX")
cluster=
trap '[ -z "$cluster" ] || { kill -TERM "$cluster"; wait "$cluster" || true; } 2>> "$work/log"; rm -rf "$work"' EXIT
results=$root/bench/results/$(date -u +%Y-%m-%d)-workflows.tsv
[ -s "$results" ] || printf 'row\tround\tcontender\tseconds\tcpu_seconds\tpeak_kib\twritten_blocks\n' > "$results"
touch "$work/rows"
wants() { [ -z "$only" ] || [ "$only" = "$1" ]; } # wants ROWS
timed() { # timed ROW ROUND CONTENDER COMMAND...
    /usr/bin/time -f '%e %U %S %M %O' -o "$work/time" "${@:4}" > /dev/null 2>> "$work/log" || { tail -5 "$work/log" >&2; exit 1; }
    read -r seconds user system peak blocks < "$work/time"
    printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "$seconds" "$(awk "BEGIN { print $user + $system }")" "$peak" "$blocks" \
        | tee -a "$results" "$work/rows" > /dev/null
}
in_turn() { # in_turn ROUND FIRST SECOND: each names a function, which gets the round
    if [ $(($1 % 2)) = 1 ]; then "$2" "$1" && "$3" "$1"; else "$3" "$1" && "$2" "$1"; fi
}
# The same memory and disk for both: nothing to write back, no file to replace, pages for another 2 GB.
settle() { rm -f "$work/by-steps" "$work/by-shell" && cp "$work/large" "$work/pages" && rm "$work/pages" && sync; }
streamed() { settle && timed streams "$1" ours "$sailfish" workflow run "$work/forgotten.toml" --state "$work/state" --slots 3; }
in_shell() { settle && timed streams "$1" shell sh -c "cat '$work/large' | cat | cat > '$work/by-shell' && sync '$work/by-shell'"; }
if wants streams; then
    head -c $((2000000000 / scale)) /dev/urandom > "$work/large"
    cat > "$work/cats.toml" << END
[[step]]
name = "first"
words = ["cat"]
stdin = "large"
stdout = "a"
[[step]]
name = "second"
words = ["cat"]
stdin = "a"
stdout = "b"
[[step]]
name = "third"
words = ["cat"]
stdin = "b"
stdout = "by-steps"
END
    sed 's/^stdin/cache = false\n&/' "$work/cats.toml" > "$work/forgotten.toml"
    for round in $(seq "$runs"); do
        in_turn "$round" streamed in_shell
        settle && timed streams "$round" remembered "$sailfish" workflow run "$work/cats.toml" --state "$work/state" --slots 3
    done
    streamed 0
    cmp "$work/large" "$work/by-steps"
fi
through_edge() { # through_edge ROUND CONTENDER: a run with nothing to skip
    rm -f "$work/$2/size" && sync
    timed memory "$1" "$2" "$sailfish" workflow run "$work/$2/edge.toml" --state "$work/state-memory" --slots 1
}
filled() { through_edge "$1" filled; }
empty() { through_edge "$1" empty; }
if wants memory; then
    mkdir "$work/filled" "$work/empty" && touch "$work/empty/source"
    head -c $((256000000 / scale)) /dev/urandom > "$work/filled/source"
    printf '[[step]]\nname = "%s"\ncommand = "%s"\ninputs = ["%s"]\noutputs = ["%s"]\n' write 'cat source > copy' source copy \
        read 'wc -c < copy > size; cksum copy >> size' copy size | tee "$work/filled/edge.toml" > "$work/empty/edge.toml"
    in_turn 0 filled empty
    for round in $(seq "$runs"); do in_turn "$round" filled empty; done
fi
count=$((5000 / scale))
as_steps() { timed steps "$1" ours "$sailfish" workflow run "$work/trues.toml" --state "$work/state"; }
as_jobs() { timed steps "$1" jobs "$sailfish" submit --state "$work/state" --count "$count" -- true; }
if wants steps; then
    for number in $(seq "$count"); do printf '[[step]]\nname = "%s"\nwords = ["true"]\n' "$number"; done > "$work/trues.toml"
    for round in $(seq "$runs"); do in_turn "$round" as_steps as_jobs; done
fi
begin_server() { # begin_server: with a new state; sets url
    rm -rf "$work/state-server" "$work/server" && touch "$work/server"
    "$sailfish" server --listen 127.0.0.1:0 --state "$work/state-server" > "$work/server" 2>> "$work/log" &
    cluster=$!
    until url=$(grep -om 1 'http://[0-9.:]*' "$work/server"); do kill -0 "$cluster" && sleep 0.1; done
}
end_cluster() { kill -TERM "$cluster" && { wait "$cluster" || true; } && cluster=; }
reported() { # reported ROUND CONTENDER [OPTION]: no node runs anything
    begin_server
    timed reported "$1" "$2" "$sailfish" bench jobs --server "$url" --jobs "$((count * 4))" ${3:-}
    end_cluster
}
reported_steps() { reported "$1" steps --steps; }
reported_jobs() { reported "$1" jobs; }
if wants steps; then for round in $(seq "$runs"); do in_turn "$round" reported_steps reported_jobs; done; fi
if wants waves; then
    head -c 20000000 /dev/urandom > "$work/database"
    waves=$((16 / (scale > 2 ? 2 : scale)))
    for number in $(seq "$waves"); do
        printf '[[step]]\nname = "search %s"\ncommand = "sleep 2.07; echo found > hits-%s"\ninputs = ["database"]\noutputs = ["hits-%s"]\n' "$number" "$number" "$number"
        printf '[[step]]\nname = "read %s"\ncommand = "sleep 0.06; cat hits-%s > result-%s"\ninputs = ["hits-%s"]\noutputs = ["result-%s"]\n' "$number" "$number" "$number" "$number" "$number"
    done > "$work/waves.toml"
    for slots in 1 2 4 8; do
        rm -f "$work"/result-* && timed waves "$slots" "$waves" "$sailfish" workflow run "$work/waves.toml" --state "$work/state-waves-$slots" --slots "$slots"
    done
fi
if wants cached; then
    echo text > "$work/source"
    for number in $(seq $((10000 / scale))); do
        printf '[[step]]\nname = "%s"\nwords = ["cp", "source", "made/%s"]\ninputs = ["source"]\noutputs = ["made/%s"]\n' "$number" "$number" "$number"
    done > "$work/copies.toml"
    timed cached 0 first "$sailfish" workflow run "$work/copies.toml" --state "$work/state-cached"
    for round in $(seq "$runs"); do
        timed cached "$round" again "$sailfish" workflow run "$work/copies.toml" --state "$work/state-cached"
    done
fi
small=$((2000 / scale))
by_snakemake() {
    rm -rf "$work/snakes" && mkdir -p "$work/snakes" && cp "$work/Snakefile" "$work/snakes"
    (cd "$work/snakes" && timed small "$1" snakemake "$work_venv/bin/snakemake" --quiet --cores 2)
}
by_workflow() { rm -rf "$work/small" "$work/state-small" && timed small "$1" ours "$sailfish" workflow run "$work/touches.toml" --state "$work/state-small" --slots 2; }
if wants snakemake; then
    work_venv=${BENCH_DIR:-/var/tmp}/sailfish-snakemake-9 # one folder for all runs
    [ -x "$work_venv/bin/snakemake" ] || { python3 -m venv "$work_venv" && "$work_venv/bin/python" -m pip install --quiet 'snakemake==9.*'; }
    for number in $(seq "$small"); do
        printf '[[step]]\nname = "%s"\nwords = ["touch", "small/%s"]\noutputs = ["small/%s"]\n' "$number" "$number" "$number"
    done > "$work/touches.toml"
    printf 'rule all:\n    input: expand("small/{number}", number=range(%s))\nrule one:\n    output: "small/{number}"\n    shell: "touch {output}"\n' \
        "$small" > "$work/Snakefile"
    for round in $(seq $(((runs + 1) / 2))); do in_turn "$round" by_workflow by_snakemake; done
fi
if wants dag; then
    python3 - "$work" $((100000 / scale)) << 'END'
import sys
work, count = sys.argv[1], int(sys.argv[2])
open(f"{work}/start", "w").close()
for name, before in (("chain", lambda step: step - 1), ("fan", lambda step: step // 100)):
    with open(f"{work}/{name}.toml", "w") as file:
        for step in range(1, count + 1):
            source = f"{name}-{before(step)}" if before(step) else "start"
            file.write(f'[[step]]\nname = "{step}"\nwords = ["cat"]\nstdin = "{source}"\nstdout = "{name}-{step}"\n')
END
    for round in $(seq "$runs"); do
        for shape in chain fan; do
            timed "dag, $shape" "$round" check "$sailfish" workflow check "$work/$shape.toml"
            timed "dag, $shape" "$round" plan "$sailfish" workflow plan "$work/$shape.toml" --slots 2
            begin_server
            timed "dag, $shape" "$round" submit "$sailfish" workflow run "$work/$shape.toml" --server "$url" --detach
            printf 'dag, %s\t%s\tserver\t\t\t%s\t\n' "$shape" "$round" "$(awk '/VmHWM/ { print $2 }' "/proc/$cluster/status")" | tee -a "$results" "$work/rows" > /dev/null
            end_cluster
        done
    done
fi
lines=$((100 / scale))
crossing() { # crossing HOW: a workflow whose reader gets the standard output of the writer as its `stdin`, or as a file
    cat << END
[[step]]
name = "writer"
cache = false
command = "for line in \$(seq $lines); do sleep 0.1; echo \$line; done"
stdout = "lines-$1"
[[step]]
name = "reader"
cache = false
$([ "$1" = stream ] && echo 'stdin = "lines-stream"' || echo 'inputs = ["lines-file"]')
command = "while read -r line; do sleep 0.1; echo \$line; done $([ "$1" = stream ] || echo '< lines-file')"
stdout = "read-$1"
END
}
begin_cluster() { # begin_cluster NODES
    rm -rf "$work/cluster" "$work/local" && touch "$work/local"
    "$sailfish" local --nodes "$1" --racks 1 --listen 127.0.0.1:0 --dir "$work/cluster" > "$work/local" 2>> "$work/log" &
    cluster=$!
    until url=$(grep -om 1 'http://[0-9.:]*' "$work/local"); do kill -0 "$cluster" && sleep 0.1; done
    until [ "$("$sailfish" nodes --server "$url" --json | grep -c '"name": "node-')" = "$1" ]; do sleep 0.1; done
}
by_stream() { timed crossnode "$1" stream "$sailfish" workflow run "$work/stream.toml" --server "$url"; }
by_file() { timed crossnode "$1" file "$sailfish" workflow run "$work/file.toml" --server "$url"; }
node_of_reader() { # the name of the node that runs the reader of the last workflow, or nothing
    "$sailfish" state --server "$url" --json "select nodes.name from attempts, jobs, nodes where attempts.job = jobs.job and \
        attempts.node = nodes.node and jobs.name = 'reader' and attempts.state = 'running'" | grep -o 'node-[0-9]*' || true
}
with_a_kill() { # with_a_kill HOW: with a node to spare; the one of the reader is killed after half of the lines
    begin_cluster 3
    (
        node=
        until [ -n "$node" ]; do sleep 0.1; node=$(node_of_reader); done
        sleep "$((lines / 20))"
        kill -KILL "$(pgrep -P "$cluster" -f -- "--name $node( |\$)")"
    ) 2>> "$work/log" &
    timed crossnode 1 "$1, killed" "$sailfish" workflow run "$work/$1.toml" --server "$url"
    wait $! && end_cluster
}
if wants crossnode; then
    for how in stream file; do crossing "$how" > "$work/$how.toml"; done
    begin_cluster 2
    for round in $(seq "$runs"); do in_turn "$round" by_stream by_file; done
    end_cluster
    for how in stream file; do with_a_kill "$how" && cmp <(seq "$lines") "$work/read-$how"; done
fi
sorting() { # sorting NAME INPUT KEYS: a job that sorts rows
    printf '[[step]]\nname = "%s"\ninputs = ["%s"]\n%s\n[step.job]\noutput = "%s"\ninput_format = "fixed:100:10"\noutput_format = "raw"\npartitions = 4\n' \
        "$1" "$2" "$3" "$1"
}
sorted() { # sorted ROUND CONTENDER: a run with nothing to skip
    rm -rf "$work/sorted-$2" "$work/state-jobs" "$work"/sorted-[123] && sync
    timed jobs "$1" "$2" "$sailfish" workflow run "$work/$2.toml" --state "$work/state-jobs"
}
remembered() { sorted "$1" remembered; }
forgotten() { sorted "$1" forgotten; }
flow() { sorted "$1" flow; }
files() { sorted "$1" files; }
if wants jobs; then
    "$sailfish" tera gen --layout modern --state "$work/state-jobs" --rows $((5000000 / scale)) --output "$work/unsorted" > /dev/null 2>> "$work/log"
    sorting sorted-remembered 'unsorted/part-*' '' > "$work/remembered.toml"
    sorting sorted-forgotten 'unsorted/part-*' 'cache = false' > "$work/forgotten.toml"
    for how in flow files; do
        keep=$([ "$how" = flow ] || echo 'keep = true')
        { sorting sorted-1 'unsorted/part-*' "$keep"; sorting sorted-2 'sorted-1/part-*' "$keep"; sorting sorted-3 'sorted-2/part-*' ''; } > "$work/$how.toml"
    done
    for round in $(seq $(((runs + 1) / 2))); do in_turn "$round" remembered forgotten && in_turn "$round" flow files; done
fi
missed=0
sim_rows() {
    local venv=${BENCH_DIR:-/var/tmp}/sailfish-wfcommons-1.6 # one folder for all runs
    if ! [ -x "$venv/bin/python" ]; then python3 -m venv "$venv.new" && mv "$venv.new" "$venv"; fi
    "$venv/bin/python" -c 'import wfcommons' 2> "$work/log" || "$venv/bin/python" -m pip install --quiet wfcommons==1.6
    PYTHONHASHSEED=0 "$venv/bin/python" "$root/bench/workflows/recipes.py" "$seed" 1000 > "$work/tasks.tsv"
    (cd "$root" && cargo run --quiet --release --locked --package sim --example workflow_figures -- "$seed" "$work/tasks.tsv") > "$work/sim" || missed=1
    awk -F '\t' -v seed="$seed" -v results="$results" '
        /^#/ { print; next }
        $3 == "s" { sub(/^ +/, "", $1); printf "sim, %s\t%s\t%s\t%s\t\t\n", of, seed, $1, $2 >> results; next }
        { if (!/^ /) { of = $1; sub(/: makespan .*/, "", of) }
          printf "%-99s %8.3f  %s%s\n", $1, $2, $4 == "-" ? "report" : "must <= " $4 ", aim " $5, $6 == "" ? "" : "  MISSED" }' "$work/sim"
}
if wants sim; then sim_rows; fi
python3 - "$work/rows" << 'END' || missed=1
import statistics, sys
rows = [line.rstrip("\n").split("\t") for line in open(sys.argv[1])]
rows = [row for row in rows if row[1] != "0"]
SECONDS, CPU, PEAK, BLOCKS = 3, 4, 5, 6
def values(row, contender, column):
    return [float(each[column]) for each in rows if each[0] == row and each[2] == contender and each[column]]
def ratio(row, above, below, column):
    pairs = list(zip(values(row, above, column), values(row, below, column)))
    return statistics.median(above / below for above, below in pairs) if pairs else None
def most(row, contender, column):
    found = values(row, contender, column)
    return statistics.median(found) if found else None
def on_disk(row, above, below):
    """Whole MiB that one writes to disks beyond the other; the state of each run is less than one."""
    more = [above - below for above, below in zip(values(row, above, BLOCKS), values(row, below, BLOCKS))]
    return int(max(statistics.median(more), 0) * 512 / 2**20) if more else None
shown = [
    ("three programs over 2 GB, CPU seconds: steps / pipe of a shell", ratio("streams", "ours", "shell", CPU), 1.1, 1.03, "<="),
    ("the same, seconds", ratio("streams", "ours", "shell", SECONDS), None, None, ""),
    ("the same with runs remembered, that is with hashing: CPU seconds", ratio("streams", "remembered", "shell", CPU), None, None, ""),
    ("a file of 256 MB between two steps: MiB of it that reach a disk", on_disk("memory", "filled", "empty"), 0, 0, "<="),
    ("10,000 steps, all skipped: seconds", most("cached", "again", SECONDS), 2, 0.5, "<="),
    ("2,000 steps of `touch`: seconds of Snakemake / ours", ratio("small", "snakemake", "ours", SECONDS), 30, 100, ">="),
    ("waiting programs on two nodes, seconds: stream / file", ratio("crossnode", "stream", "file", SECONDS), 0.7, 0.6, "<="),
    ("the same, the reader's node killed in the middle: stream / file", ratio("crossnode", "stream, killed", "file, killed", SECONDS), None, None, ""),
    ("a job that sorts 500 MB, seconds: remembered / `cache = false`", ratio("jobs", "remembered", "forgotten", SECONDS), None, None, ""),
    ("three such jobs one after the other, seconds: flow / files between them", ratio("jobs", "flow", "files", SECONDS), None, None, ""),
    ("`true`, as rates: steps / jobs of one task", ratio("steps", "jobs", "ours", SECONDS), 0.8, 0.95, ">="),
    ("reported by nodes that run nothing, as rates: steps with a file / jobs", ratio("reported", "jobs", "steps", SECONDS), 0.5, 0.8, ">="),
]
for slots in ("1", "2", "4", "8"):
    waves = [row for row in rows if row[0] == "waves" and row[1] == slots]
    if waves:
        ideal = int(waves[0][2]) * (2.07 + 0.06) / int(slots)
        shown.append((f"shape of BLAST, programs that wait, {slots} slots: ideal / ours", ideal / float(waves[0][SECONDS]), 0.9, 0.97, ">="))
for shape in ("chain", "fan"):
    shown.append((f"{shape} of 100,000 steps: check, seconds", most(f"dag, {shape}", "check", SECONDS), 5, 2, "<="))
    shown.append((f"{shape} of 100,000 steps: plan, seconds", most(f"dag, {shape}", "plan", SECONDS), 5, 2, "<="))
    peak = most(f"dag, {shape}", "check", PEAK)
    shown.append((f"{shape} of 100,000 steps: peak MiB of check", peak and peak / 1024, None, None, ""))
    shown.append((f"{shape} of 100,000 steps: submit, seconds", most(f"dag, {shape}", "submit", SECONDS), 5, 2, "<="))
    peak = most(f"dag, {shape}", "server", PEAK)
    shown.append((f"{shape} of 100,000 steps: peak MB of the server", peak and peak * 1024 / 1e6, 200, 100, "<="))
missed = False
for name, value, must, aim, sign in shown:
    if value is None:
        continue
    holds = must is None or (value <= must if sign == "<=" else value >= must)
    missed |= not holds
    limit = "report" if must is None else f"must {sign} {must}, aim {aim}"
    print(f"{name:66} {value:8.3f}  {limit}{'' if holds else '  MISSED'}")
sys.exit(missed)
END
exit $missed
