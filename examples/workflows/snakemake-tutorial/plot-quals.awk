# Draws a histogram of the column QUAL of a VCF file, as SVG: ten bars up to the greatest quality.
!/^#/ { quality[++count] = $6; if ($6 > greatest) greatest = $6 }
END {
    for (variant = 1; variant <= count; variant++) {
        bar = int(10 * quality[variant] / (greatest + 1))
        variants[bar]++
        if (variants[bar] > most) most = variants[bar]
    }
    print "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"440\" height=\"260\" font-family=\"sans-serif\" font-size=\"11\">"
    for (bar = 0; bar < 10; bar++) {
        height = most ? 200 * variants[bar] / most : 0
        x = 20 + 40 * bar
        printf "<rect x=\"%d\" y=\"%.1f\" width=\"36\" height=\"%.1f\" fill=\"steelblue\"/>\n", x, 220 - height, height
        printf "<text x=\"%d\" y=\"%.1f\">%d</text>\n", x, 215 - height, variants[bar]
        printf "<text x=\"%d\" y=\"235\">%d</text>\n", x, bar * (greatest + 1) / 10
    }
    printf "<text x=\"20\" y=\"254\">variants by quality: %d</text>\n</svg>\n", count
}
