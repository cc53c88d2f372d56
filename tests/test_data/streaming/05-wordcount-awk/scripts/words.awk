# A word is a run of letters; counts of a line are gathered before they are printed.
{
    line = tolower($0)
    gsub(/[^a-z]+/, " ", line)
    count = split(line, word, " ")
    for (i = 1; i <= count; i++) seen[word[i]]++
    for (each in seen) { print each "\t" seen[each]; delete seen[each] }
}
