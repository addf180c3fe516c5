"""accelcache-dev gen: traces are repeatable, well formed, and have the properties of their kind."""

import hashlib
import os
import unittest

import base
import frame

KINDS = {  # streams, and true if the program synchronises
    "fixed": ({0}, True),
    "varlen": ({0}, True),
    "lora": ({0, 1, 2}, True),
    "serving": ({0, 1}, True),
    "amr": ({0, 1}, True),
    "graph": ({0, 1}, True),
    "grow": ({0}, True),
    "islands": ({0}, True),
    "rmm": ({0}, False),
}
# Digests are equal on all machines: gen uses integer arithmetic on the seed.
DIGESTS = {
    "fixed": "edbf4f7bd3ccec72",
    "varlen": "b1c8a604888468c6",
    "lora": "01d7b9dc50746065",
    "serving": "8b696da6cffbf23f",
    "amr": "8563ea21f11673a8",
    "graph": "c833ece5adb4730f",
    "grow": "6cda5148d1aac3e9",
    "islands": "e7ef5e8e0ea7ce21",
    "rmm": "8ecf1e026501c181",
}


class Gen(frame.TraceTest):
    def text(self, kind, *options):
        return self.expect(0, "gen", kind, "--ops", "20000", *options).stdout

    def test_well_formed(self):
        for kind, (streams, synchronises) in KINDS.items():
            with self.subTest(kind):
                live, seen, used, now, most, count, syncs = {}, set(), set(), 0, 0, 0, 0
                lines = self.text(kind).splitlines()
                for line in lines:
                    if line.startswith("#"):
                        continue
                    count += 1
                    what, *numbers = line.split(" ")
                    numbers = [int(number) for number in numbers]
                    if what == "a":
                        block, size, stream = numbers
                        self.assertNotIn(block, seen)
                        self.assertGreater(size, 0)
                        seen.add(block)
                        used.add(stream)
                        live[block] = size
                        now += size
                        most = max(most, now)
                    elif what == "f":
                        (block,) = numbers
                        now -= live.pop(block)
                    else:
                        self.assertEqual(line, "s")
                        syncs += 1
                self.assertEqual(live, {})
                self.assertGreaterEqual(count, 20000)
                self.assertEqual(used, streams)
                self.assertEqual(syncs > 0, synchronises)
                self.assertEqual(lines[-1], f"# {count} operations, peak live {most} bytes")

    def test_repeatable(self):
        for kind in KINDS:
            with self.subTest(kind):
                first = self.text(kind, "--seed", "7")
                self.assertEqual(first, self.text(kind, "--seed", "7"))
                self.assertEqual(hashlib.sha256(first.encode()).hexdigest()[:16], DIGESTS[kind])
                if kind != "fixed":  # its sizes do not depend on the seed
                    self.assertNotEqual(first.splitlines()[1:],
                                        self.text(kind, "--seed", "8").splitlines()[1:])

    def test_varying_sizes(self):
        """Steps of "fixed" are equal except the first. Steps of other kinds differ."""
        def sizes(kind, operations):
            text = self.expect(0, "gen", kind, "--ops", str(operations)).stdout
            return len({line.split()[2] for line in text.splitlines() if line.startswith("a")})
        self.assertEqual(sizes("fixed", 10000), sizes("fixed", 40000))
        for kind in ("varlen", "lora", "serving", "amr", "graph"):
            self.assertGreater(sizes(kind, 60000), 1.5 * sizes(kind, 10000), kind)

    def test_rmm(self):
        text = self.expect(0, "gen", "rmm", "--ops", "5000", "--max", "64M").stdout
        made = [int(line.split()[2]) for line in text.splitlines() if line.startswith("a")]
        self.assertEqual(len(made), 2500)
        self.assertLessEqual(max(made), 64 << 20)
        self.assertGreater(max(made), 60 << 20)
        path = self.generate("rmm", "--ops", "5000")
        self.assertLess(frame.peak_of(path), 16000 << 20)
        self.assertGreater(frame.peak_of(path), 15000 << 20)

    def test_file(self):
        path = self.generate("amr", "--ops", "100")
        with open(path, encoding="ascii") as file:
            self.assertEqual(file.read(), self.expect(0, "gen", "amr", "--ops", "100").stdout)
        result = self.expect(1, "gen", "amr", "-o", self.path("no/such/folder"))
        self.assertIn("No such file", result.stderr)
        if os.path.exists("/dev/full"):
            self.assertIn("could not be written",
                          self.expect(1, "gen", "amr", "--ops", "9", "-o", "/dev/full").stderr)

    def test_usage(self):
        for arguments in ((), ("nothing",), ("amr", "lora"), ("amr", "--ops", "0"),
                          ("amr", "--ops", "1x"), ("amr", "--seed", "-1"), ("amr", "--max", "1M"),
                          ("rmm", "--max", "much"), ("amr", "--fast")):
            result = self.expect(2, "gen", *arguments)
            self.assertEqual(result.stdout, "")
            self.assertIn("accelcache-dev gen", result.stderr)
        out = self.expect(0, "gen", "--help").stdout
        for kind in KINDS:
            self.assertRegex(out, rf"(?m)^  {kind} ")


if __name__ == "__main__":
    unittest.main(verbosity=2)
