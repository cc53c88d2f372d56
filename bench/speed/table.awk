# Prints the speed table from raw rows. -v build=... cores=... notes=FILE (group, contender, why there is no figure)
BEGIN {
    FS = "\t"
    while ((getline reason < notes) > 0) {
        split(reason, part, "\t")
        why[part[1], part[2]] = part[3]
    }
}
$1 == "# fresh" && $3 == build {
    contenders = 0
    load = 0
    split("", rounds); split("", wall); split("", cpu); split("", rss); split("", anonymous); split("", shuffled)
    next
}
$3 == build {
    key = $4 "/" $5
    if (!(key in rounds)) order[++contenders] = key
    rounds[key]++
    bytes[key] = $7
    if ($8 != "-") shuffled[key] = $8
    wall[key] = wall[key] " " $9
    cpu[key] = cpu[key] " " $10 + $11
    if ($12 > rss[key] + 0) rss[key] = $12
    if ($13 > anonymous[key] + 0) anonymous[key] = $13
    if ($15 > load + 0) load = $15
}
# Sets low and high too.
function median(list,    count, values, i, j, swap) {
    count = split(list, values, " ")
    for (i = 1; i <= count; i++)
        for (j = i + 1; j <= count; j++)
            if (values[j] + 0 < values[i] + 0) { swap = values[i]; values[i] = values[j]; values[j] = swap }
    low = values[1]
    high = values[count]
    return count % 2 ? values[(count + 1) / 2] : (values[count / 2] + values[count / 2 + 1]) / 2
}
function missing(key,    part) {
    if (key in rounds) return ""
    split(key, part, "/")
    if ((part[1], part[2]) in why) return "not run: " why[part[1], part[2]]
    if ((part[1], "*") in why) return "not run: " why[part[1], "*"]
    return "not measured (--rows " part[1] ")"
}
function show(text, value, unit, must, aim, verdict) {
    printf "%-66s %10s %-7s %8s %8s  %s\n", text, value, unit, must, aim, verdict
}
# must and aim: "<= 1.5" or ">= 6"
function judge(value, demand,    part) {
    split(demand, part, " ")
    return part[1] == "<=" ? value <= part[2] + 0 : value >= part[2] + 0
}
function figure(text, value, unit, format, must, aim) {
    if (must == "") return show(text, sprintf(format, value), unit, "", "", "reported")
    show(text, sprintf(format, value), unit, must, aim,
        !judge(value, must) ? "MISSED" : aim == "" ? "met" : judge(value, aim) ? "met, aim met" : "met")
}
function ratio(text, above, below, must, aim,    gap) {
    gap = missing(above)
    if (gap == "") gap = missing(below)
    if (gap != "") return show(text, "-", "", must, aim, gap)
    figure(text, median(wall[above]) / median(wall[below]), "", "%.2f", must, aim)
}
function megabytes(text, key, must, aim,    gap) {
    gap = missing(key)
    if (gap != "") return show(text, "-", "", must, aim, gap)
    figure(text, bytes[key] / 1e6 / median(wall[key]) / cores, "MB/s", "%.0f", must, aim)
}
function growth(text, large, small, must, aim,    gap) {
    gap = missing(large)
    if (gap == "") gap = missing(small)
    if (gap != "") return show(text, "-", "", must, aim, gap)
    figure(text, bytes[large] / median(wall[large]) / (bytes[small] / median(wall[small])), "", "%.2f", must, aim)
}
function memory(text, keys, must,    count, list, i, peak, gap) {
    count = split(keys, list, " ")
    for (i = 1; i <= count; i++) {
        if (list[i] in rounds && anonymous[list[i]] + 0 > peak + 0) peak = anonymous[list[i]]
        if (gap == "") gap = missing(list[i])
    }
    if (peak == "") return show(text, "-", "", must, "", gap)
    figure(text, peak, "MiB", "%.0f", must, "")
}
function per_gigabyte(text, key,    gap) {
    gap = missing(key)
    if (gap == "" && !(key in shuffled)) gap = "not reported by the job"
    if (gap != "") return show(text, "-", "", "", "", gap)
    figure(text, median(cpu[key]) / (shuffled[key] / 1e9), "s/GB", "%.2f", "", "")
}
END {
    show("figure", "value", "", "must", "aim", "")
    ratio("tera sort 2 GB in memory / reference, to page cache", "tera/ours", "tera/reference", "<= 1.5", "<= 1.0")
    ratio("GNU sort / tera sort, 2 GB ascii, to page cache", "ascii/gnu-sort", "ascii/ours", ">= 6", ">= 12")
    ratio("DuckDB ORDER BY / tera sort, 2 GB ascii, to page cache", "ascii/duckdb", "ascii/ours", ">= 3", ">= 5")
    ratio("Spark local sort / tera sort, 1 GB, to page cache", "spark-sort/spark", "spark-sort/ours", ">= 8", ">= 15")
    ratio("tera sort skewed / uniform, 2 GB, to page cache", "tera/skewed", "tera/ours", "<= 1.25", "<= 1.1")
    ratio("tera sort 8 GB --memory 1G / (cp + sync), durable", "external/ours", "external/cp", "<= 4.0", "<= 3.0")
    growth("MB/s at 12 GB / at 3 GB, --memory 1G, durable", "growth/12g", "growth/3g", ">= 0.85", ">= 0.95")
    memory("peak RssAnon at --memory 1G (8, 3 and 12 GB)", "external/ours growth/12g growth/3g", "<= 1126.4")
    memory("peak RssAnon at --memory 64M (2 GB)", "memory/64m", "<= 128")
    megabytes("word count 1 GB, combining, per core, to page cache", "words/ours", ">= 150", ">= 300")
    ratio("Spark local word count / ours", "words/spark", "words/ours", ">= 8", ">= 16")
    ratio("DuckDB word count / ours", "words/duckdb", "words/ours", ">= 3", ">= 6")
    megabytes("words of 1 GB as sorted pairs, no combining, per core", "shuffle/ours", ">= 70", ">= 130")
    ratio("Python scripts 500 MB: cat | map | sort | reduce / ours", "streaming/pipe", "streaming/ours", ">= 1.5", ">= 1.8")
    ratio("the same: Hadoop Streaming, local runner / ours", "streaming/hadoop", "streaming/ours", ">= 2", ">= 4")
    per_gigabyte("user + sys per GB shuffled: tera sort in memory", "tera/ours")
    per_gigabyte("user + sys per GB shuffled: tera sort 8 GB, --memory 1G", "external/ours")
    per_gigabyte("user + sys per GB shuffled: words, no combining", "shuffle/ours")
    if (missing("small/ours") != "") show("job on a 1 KB file, start to finish, durable", "-", "", "<= 150", "<= 50", missing("small/ours"))
    else figure("job on a 1 KB file, start to finish, durable", median(wall["small/ours"]) * 1000, "ms", "%.0f", "<= 150", "<= 50")

    printf "\n%-22s %6s %9s %9s %9s %11s %9s %14s\n", "contender", "rounds", "median s", "best s", "worst s", "user+sys s",
        "peak MiB", "anonymous MiB"
    for (i = 1; i <= contenders; i++) {
        key = order[i]
        used = median(cpu[key])
        middle = median(wall[key])
        printf "%-22s %6d %9.3f %9.3f %9.3f %11.2f %9.0f %14.0f\n", key, rounds[key], middle, low, high, used, rss[key],
            anonymous[key]
    }
    printf "\nRatios are of medians. Every output was checked after its run. Highest load average before a run: %s\n", load
}
