#!/usr/bin/env python3
"""Draws the screen of a terminal as SVG.

usage: picture.py SCREEN            prints the picture
       picture.py --check SCREEN SVG   exits 1 if SVG is not the picture of SCREEN

top.txt is the screen of `accelcache top`, as `tmux capture-pane -p` wrote it while four programs ran
under the library on the simulated device.  To draw a new one: picture.py top.txt >top.svg
"""
import html
import sys

WIDTH, HEIGHT, MARGIN = 8.4, 19, 16  # of a character, of a line, around the screen
LIGHT, DIM, BRIGHT, BACK = "#d5dbe3", "#8b96a5", "#7fd1ff", "#1b2129"


def style(number, line, last):
    """Colour and weight of a line: the title, the heads of tables, the keys, the rest."""
    if number == 0:
        return BRIGHT, "bold"
    if number == last:
        return DIM, "normal"
    return (DIM, "bold") if "RESERVED" in line else (LIGHT, "normal")


def picture(text):
    lines = text.rstrip("\n").split("\n")
    width = max(map(len, lines)) * WIDTH + 2 * MARGIN
    height = len(lines) * HEIGHT + 2 * MARGIN
    rows = []
    for number, line in enumerate(lines):
        words = line.lstrip(" ")
        if not words:
            continue
        colour, weight = style(number, line, len(lines) - 1)
        x = MARGIN + (len(line) - len(words)) * WIDTH
        y = MARGIN + (number + 0.75) * HEIGHT
        rows.append(f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" font-weight="{weight}" '
                    f'textLength="{len(words) * WIDTH:.1f}" xml:space="preserve">'
                    f"{html.escape(words)}</text>")
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
            f'width="{width:.0f}" height="{height:.0f}" font-size="14" font-family='
            '"ui-monospace, SFMono-Regular, Menlo, Consolas, monospace">\n'
            f'<rect width="100%" height="100%" rx="8" fill="{BACK}"/>\n' + "\n".join(rows) + "\n</svg>\n")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def main(arguments):
    if arguments[0] != "--check":
        print(picture(read(arguments[0])), end="")
        return 0
    if picture(read(arguments[1])) == read(arguments[2]):
        return 0
    print(f"{arguments[2]} is not the picture of {arguments[1]}: picture.py SCREEN >SVG draws it anew")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
