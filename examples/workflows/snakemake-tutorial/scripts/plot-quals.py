"""Draws a histogram of the column QUAL of a VCF file, as SVG: ten bars up to the greatest quality."""

# Snakemake defines the name `snakemake` for scripts of rules.
source, target = snakemake.input[0], snakemake.output[0]  # noqa: F821
with open(source) as calls:
    qualities = [float(line.split("\t")[5]) for line in calls if not line.startswith("#")]
width = max(qualities) / 10
bars = [0] * 10
for quality in qualities:
    bars[min(9, int(quality / width))] += 1
with open(target, "w") as plot:
    plot.write('<svg xmlns="http://www.w3.org/2000/svg" width="440" height="260" font-family="sans-serif" font-size="11">\n')
    for place, count in enumerate(bars):
        height = 200 * count / max(bars)
        plot.write(f'<rect x="{20 + 40 * place}" y="{220 - height:.1f}" width="36" height="{height:.1f}" fill="steelblue"/>\n')
        plot.write(f'<text x="{20 + 40 * place}" y="{215 - height:.1f}">{count}</text>\n')
        plot.write(f'<text x="{20 + 40 * place}" y="235">{place * width:.0f}</text>\n')
    plot.write(f'<text x="20" y="254">variants by quality: {len(qualities)}</text>\n</svg>\n')
