"""accelcache config: the table, values, errors."""

import json

import base


class Config(base.CommandTest):
    def test_table(self):
        out = self.expect(0, "config").stdout
        self.assertRegex(out, r"(?m)^enabled +true$")
        self.assertRegex(out, r"(?m)^large_segment_size_mb +20$")
        self.assertRegex(out, r"(?m)^  backend ")
        self.assertLessEqual(max(len(line) for line in out.splitlines() if line[:4] == "    "), 80)

    def test_values(self):
        out = self.expect(0, "config", "enabled:false,large_segment_size_mb:64").stdout
        self.assertRegex(out, r"(?m)^enabled +false   \(default true\)$")
        self.assertRegex(out, r"(?m)^large_segment_size_mb +64   \(default 20\)$")
        self.assertRegex(self.expect(0, "config", ACCEL_ALLOC_CONF="fence:sync").stdout,
                         r"(?m)^fence +sync   \(default auto\)$")

    def test_one_key(self):
        """The name of a key, in any case of its letters, shows that key."""
        for name in ("memory_limit", "Memory_Limit", "BACKEND"):
            out = self.expect(0, "config", name).stdout
            self.assertTrue(out.startswith(name.lower()), out)
            self.assertNotIn("large_segment_size_mb", out)

    def test_errors(self):
        result = self.expect(1, "config", "free_sync:true,enabld:true")
        self.assertEqual(result.stdout, "")
        self.assertIn("position 15", result.stderr)
        self.assertIn('nearest known key is "enabled"', result.stderr)
        self.assertEqual(result.stderr.splitlines()[2], " " * 17 + "^")
        self.assertIn("ACCEL_ALLOC_CONF: ", self.expect(1, "config", ACCEL_ALLOC_CONF="x").stderr)
        self.expect(2, "config", "a", "b")
        self.expect(2, "config", "--markdown", "enabled:true")
        self.expect(2, "config", "--stats")

    def test_warnings(self):
        result = self.expect(0, "config", "backend:cudaMallocAsync")
        self.assertIn("has no effect", result.stderr)

    def test_json(self):
        whole = json.loads(self.expect(0, "config", "--json", "enabled:false").stdout)
        keys = {row["key"]: row for row in whole["keys"]}
        self.assertEqual((keys["enabled"]["value"], keys["enabled"]["default"]), ("false", "true"))
        self.assertIsNone(keys["backend"]["value"])
        self.assertTrue(keys["backend"]["foreign"])
        self.assertIsNone(whole["error"])
        whole = json.loads(self.expect(1, "config", "--json", "enabled:2").stdout)
        self.assertEqual(whole["error"]["position"], 8)

    def test_fixed_keys(self):
        """Every format marks keys that cannot change once the cache is active."""
        keys = json.loads(self.expect(0, "config", "--json").stdout)["keys"]
        fixed = {row["key"] for row in keys if row["fixed"]}
        self.assertTrue(fixed > {"fence", "trace", "keep_free"} and "enabled" not in fixed, fixed)
        said = "Cannot change once the cache is active."
        out = self.expect(0, "config").stdout
        self.assertEqual(out.count(said), len(fixed))
        self.assertRegex(out, r"(?m)^fence .*\n    accepts .*\n    " + said)
        rows = self.expect(0, "config", "--markdown").stdout.splitlines()
        self.assertEqual({row.split("`")[1] for row in rows if said in row}, fixed)

    def test_json_stats(self):
        rows = json.loads(self.expect(0, "config", "--json", "--stats").stdout)
        kinds = {row["name"]: row["kind"] for row in rows["stats"]}
        self.assertEqual(kinds["num_ooms"], "count")
        self.assertEqual(kinds["max_split_size"], "setting")
        self.assertEqual(kinds["segment"], "pools")
        self.assertEqual(kinds["oversize_segments"], "stat")
        self.assertIn({"name": "trimmed_bytes", "kind": "count", "unit": "bytes",
                       "doc": "bytes that trims returned"}, rows["device_counters"])
        self.assertIn("submissions", [row["name"] for row in rows["counters"]])
        self.expect(2, "config", "--json", "--stats", "enabled:true")

    def test_markdown(self):
        out = self.expect(0, "config", "--markdown").stdout
        rows = [line for line in out.splitlines() if line.startswith("| ")]
        keys = json.loads(self.expect(0, "config", "--json").stdout)["keys"]
        own = [row["key"] for row in keys if not row["foreign"]]
        self.assertEqual([row.split("`")[1] for row in rows[1:] if row.startswith("| `")], own)
        for row in rows:
            self.assertEqual(row.replace("\\|", "").count("|"), 5)
        for row in keys:
            self.assertIn(f"`{row['key']}`", out)

    def test_markdown_stats(self):
        out = self.expect(0, "config", "--markdown", "--stats").stdout
        document = json.loads(self.fixture("dump"))
        device = document["devices"][0]
        for name in [*device["stats"], *device["counters"], *document["counters"]]:
            self.assertRegex(out, f"(?m)^(\\| `{name}[`.]|`{name}` \\(now `)")


if __name__ == "__main__":
    base.main()
