"""Shared parts of the suites for gen, replay and tune."""

import json

import base

MIB = 1 << 20


class TraceTest(base.CommandTest):
    def trace(self, *lines, name="trace"):
        """Writes a text trace of these operations."""
        return self.write(name, "".join(line + "\n" for line in lines))

    def generate(self, kind, *options, name=None):
        path = self.path(name or kind)
        self.expect(0, "gen", kind, *options, "-o", path)
        return path

    def replay(self, *arguments, status=0):
        return json.loads(self.expect(status, "replay", "--json", *arguments).stdout)


def peak_of(path):
    """Returns the maximum of allocated bytes in a text trace, without the command."""
    live, now, most = {}, 0, 0
    with open(path, encoding="ascii") as file:
        for line in file:
            word = line.split()
            if word and word[0] == "a":
                live[word[1]] = int(word[2])
                now += int(word[2])
            elif word and word[0] == "f":
                now -= live.pop(word[1])
            most = max(most, now)
    return most
