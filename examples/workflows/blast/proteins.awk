# Makes the file `database` of one protein a line, and the files `queries/000` to `queries/999`: a piece of a protein with one letter of eight
# changed. The file `origins` has the number of each query and the line of its protein.
#
#     awk -v proteins=20000 -v seed=1 -f proteins.awk

function random(below) {
    seed = (seed * 16807) % 2147483647
    return seed % below
}

function letter() {
    return substr("ACDEFGHIKLMNPQRSTVWY", random(20) + 1, 1)
}

BEGIN {
    for (protein = 1; protein <= proteins; protein++) {
        line = ""
        for (place = 1; place <= 200; place++) line = line letter()
        database[protein] = line
        print line > "database"
    }
    for (query = 0; query < 1000; query++) {
        protein = random(proteins) + 1
        start = random(101)
        line = ""
        for (place = 1; place <= 100; place++) line = line (random(8) ? substr(database[protein], start + place, 1) : letter())
        file = sprintf("queries/%03d", query)
        print line > file
        close(file)
        printf "%03d %d\n", query, protein > "origins"
    }
}
