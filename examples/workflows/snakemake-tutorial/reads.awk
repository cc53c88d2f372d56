# Makes a genome and reads of three samples of it: data/genome.fa and data/samples/{A,B,C}.fastq.
#
# Every 500 bases all samples differ from the genome; every 700 bases one of them does. One base of 200 is read wrong.
# The numbers follow from the seed alone, on every awk: its own rand() differs between them (Park and Miller's generator).
#
#     awk -v seed=1 -f reads.awk

function random(below) {
    seed = (seed * 16807) % 2147483647
    return seed % below
}

function other(base) {
    return substr("ACGT", (index("ACGT", base) + random(3)) % 4 + 1, 1)
}

BEGIN {
    bases = 20000
    read_bases = 100
    reads = 3000
    for (place = 1; place <= bases; place++) genome = genome substr("ACGT", random(4) + 1, 1)
    print ">chromosome" > "data/genome.fa"
    for (place = 1; place <= bases; place += 60) print substr(genome, place, 60) > "data/genome.fa"
    for (place = 500; place <= bases; place += 500) common[place] = other(substr(genome, place, 1))
    for (sample = 1; sample <= 3; sample++) write_sample(sample, substr("ABC", sample, 1))
}

function write_sample(sample, name,    place, base, own, read, start, offset, line, file) {
    file = "data/samples/" name ".fastq"
    own = ""
    for (place = 1; place <= bases; place++) {
        base = substr(genome, place, 1)
        if (place in common) base = common[place]
        else if (place % 700 == 0 && place / 700 % 3 == sample - 1) base = other(base)
        own = own base
    }
    for (read = 1; read <= reads; read++) {
        start = random(bases - read_bases + 1) + 1
        line = ""
        for (offset = 0; offset < read_bases; offset++) {
            base = substr(own, start + offset, 1)
            line = line (random(200) ? base : other(base))
        }
        printf "@%s.%d\n%s\n+\n", name, read, line > file
        gsub(/./, "I", line)
        print line > file
    }
}
